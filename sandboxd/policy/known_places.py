"""Places on the Internet that `lint` knows something about. Data only; a name stands for itself and all below it."""

from typing import NamedTuple


class Ports(NamedTuple):
    """A port and what it is misused for."""

    number: int
    what: str


# Tunnels and request catchers: whatever is sent there is forwarded to, or shown to, whoever set one up.
RELAYS = (
    "ngrok.io", "ngrok.app", "ngrok.dev", "ngrok-free.app", "ngrok-free.dev", "trycloudflare.com", "localhost.run",
    "lhr.life", "serveo.net", "loca.lt", "localtunnel.me", "bore.pub", "pagekite.me", "telebit.io", "localxpose.io",
    "loclx.io", "pinggy.io", "pinggy.link", "zrok.io", "devtunnels.ms", "webhook.site", "requestbin.com",
    "requestbin.net", "pipedream.net", "beeceptor.com", "requestcatcher.com", "hookbin.com", "mockbin.org",
    "interact.sh", "oast.fun", "oast.live", "oast.me", "oast.online", "oast.pro", "oast.site", "oastify.com",
    "burpcollaborator.net", "dnslog.cn", "ceye.io", "canarytokens.com", "corsproxy.io", "allorigins.win",
)  # fmt: skip

# Paste sites and anonymous file drops: anyone can leave text there without a name.
PASTES = (
    "pastebin.com", "paste.ee", "hastebin.com", "dpaste.com", "dpaste.org", "rentry.co", "rentry.org", "ix.io",
    "sprunge.us", "termbin.com", "0x0.st", "paste.rs", "p.ip.fi", "controlc.com", "ghostbin.com", "privatebin.net",
    "justpaste.it", "textbin.net", "bpa.st", "paste.debian.net", "paste.ubuntu.com", "paste.opensuse.org",
    "gist.github.com", "transfer.sh", "file.io", "gofile.io", "tmpfiles.org", "temp.sh", "catbox.moe", "bashupload.com",
    "filebin.net", "oshi.at", "anonfiles.com", "wetransfer.com", "ufile.io", "pixeldrain.com", "telegra.ph",
)  # fmt: skip

# Names under which anyone can keep content of their own, told apart by path only.
SHARED_HOSTS = (
    "raw.githubusercontent.com", "gist.githubusercontent.com", "objects.githubusercontent.com",
    "user-images.githubusercontent.com", "codeload.github.com", "gitlab.com", "bitbucket.org", "codeberg.org",
    "s3.amazonaws.com", "storage.googleapis.com", "firebasestorage.googleapis.com", "drive.google.com",
    "docs.google.com", "script.google.com", "sites.google.com", "forms.gle", "dropbox.com",
    "content.dropboxapi.com", "onedrive.live.com", "1drv.ms", "graph.microsoft.com", "icloud.com", "mega.nz", "box.com",
    "huggingface.co", "kaggle.com", "colab.research.google.com", "archive.org", "web.archive.org",
    "translate.goog", "cdn.jsdelivr.net", "unpkg.com", "esm.sh", "cdnjs.cloudflare.com",
    "hub.docker.com",
)  # fmt: skip

# Messengers whose bots and webhooks take any text from anyone who has a token of their own.
MESSENGERS = (
    "api.telegram.org", "discord.com", "discordapp.com", "hooks.slack.com", "slack.com", "webhook.office.com",
    "api.twilio.com", "api.sendgrid.com", "api.mailgun.net", "ntfy.sh", "pushover.net", "api.pushbullet.com",
    "maker.ifttt.com", "hooks.zapier.com", "hook.eu1.make.com",
)  # fmt: skip

# Public resolvers that answer over HTTPS or TLS: a name query there is a message to anyone.
RESOLVERS = (
    "dns.google", "dns.google.com", "cloudflare-dns.com", "one.one.one.one", "dns.quad9.net", "doh.opendns.com",
    "dns.adguard.com", "dns.adguard-dns.com", "dns.nextdns.io", "doh.cleanbrowsing.org", "dns.mullvad.net",
    "doh.dns.sb", "dns.alidns.com", "doh.pub", "freedns.controld.com",
)  # fmt: skip

# Content networks that serve many customers from the same addresses and certificates: behind one allowed name a
# request can name another customer's, unseen where TLS is spliced.
FRONTING = (
    "cloudfront.net", "azureedge.net", "azurefd.net", "fastly.net", "fastlylb.net", "freetls.fastly.net",
    "global.ssl.fastly.net", "akamaized.net", "akamaihd.net", "edgekey.net", "edgesuite.net", "akamai.net",
    "workers.dev", "pages.dev", "cdn.cloudflare.net", "r2.dev", "b-cdn.net", "cdn77.org", "stackpathcdn.com",
    "netdna-cdn.com", "kxcdn.com", "edgecastcdn.net", "llnwd.net", "vercel.app", "netlify.app", "onrender.com",
    "herokuapp.com", "appspot.com", "run.app", "web.app", "firebaseapp.com", "googleusercontent.com",
    "cdn.jsdelivr.net", "unpkg.com", "trafficmanager.net",
)  # fmt: skip

# Domains of one company whose subdomains belong to its customers.
CUSTOMERS_BELOW = (
    "amazonaws.com", "cloudfront.net", "azure.com", "azure.net", "azurewebsites.net", "windows.net", "azurefd.net",
    "azureedge.net", "cloudapp.net", "cloudapp.azure.com", "googleapis.com", "googleusercontent.com", "appspot.com",
    "run.app", "herokuapp.com", "digitaloceanspaces.com", "ondigitalocean.app", "linodeobjects.com",
    "backblazeb2.com", "wasabisys.com", "oraclecloud.com", "myqcloud.com", "aliyuncs.com", "ovh.net", "hetzner.cloud",
    "fly.dev", "railway.app", "render.com", "onrender.com", "vercel.app", "netlify.app", "github.io", "gitlab.io",
    "githubusercontent.com", "workers.dev", "pages.dev", "r2.dev", "firebaseio.com", "web.app", "supabase.co",
    "sharepoint.com", "salesforce.com", "force.com", "my.site.com", "zendesk.com", "atlassian.net", "slack.com",
    "blogspot.com", "wordpress.com", "substack.com", "tumblr.com", "wixsite.com", "weebly.com", "myshopify.com",
    "duckdns.org", "no-ip.org", "dyndns.org", "sslip.io", "nip.io",
)  # fmt: skip

MISUSED_PORTS = (
    Ports(21, "FTP: opens further connections, in the clear"),
    Ports(23, "telnet: a remote shell in the clear"),
    Ports(25, "SMTP: mail to anyone"),
    Ports(53, "DNS: tunnels through any name server"),
    Ports(139, "NetBIOS: Windows file sharing"),
    Ports(445, "SMB: Windows file sharing"),
    Ports(465, "SMTP: mail to anyone"),
    Ports(587, "SMTP: mail to anyone"),
    Ports(853, "DNS over TLS: tunnels through any name server"),
    Ports(1080, "SOCKS: a proxy to anywhere"),
    Ports(2375, "Docker's API: root on its host"),
    Ports(2376, "Docker's API: root on its host"),
    Ports(3128, "a web proxy to anywhere"),
    Ports(3389, "RDP: a remote desktop"),
    Ports(4444, "the usual port of reverse shells"),
    Ports(5900, "VNC: a remote desktop"),
    Ports(6443, "Kubernetes' API"),
    Ports(6667, "IRC: anyone listens"),
    Ports(8118, "a web proxy to anywhere"),
    Ports(8888, "often a proxy or a notebook server"),
    Ports(9050, "Tor: anywhere"),
    Ports(9001, "Tor: anywhere"),
    Ports(10250, "a kubelet: commands in its containers"),
)

# Top-level names that no public name server knows: inside networks.
INSIDE_NAMES = ("internal", "local", "lan", "home", "corp", "intranet", "private", "home.arpa", "sandboxd", "test")
