"""The closed list of operations of the warden, as typed messages (design.md decision 4).

A sandbox goes one way: Create → Start → Seal → Probe → Launch → (Stop) → Remove; an operation out of order is
refused. Whatever a client made is reaped when its connection closes. Each request gets exactly one answer: the
reply named beside it, or `Refused`. Not here: any decision; the warden adds the hardening itself.
"""

from dataclasses import field
from typing import Literal

from sandboxd import channel
from sandboxd.channel import message

VERSION = 1

# Ports of the listeners inside every sealed namespace; the same numbers stand in seal.nft.
TCP_PORT = 15001
DNS_PORT = 15053
LIFELINE_PORT = 15099
# Inside a sandbox that trusts an authority of its own: all roots in PEM, and the same for Java.
ROOTS = "/.sandboxd/roots.pem"
JAVA_ROOTS = "/.sandboxd/roots.p12"
# Workloads' names resolve through this address: not local, so the seal redirects it like any other.
NAMESERVER = "198.18.0.1"
# Asked by the probe; the gateway answers with the sandbox's canary on any port.
CANARY_ADDRESS = "198.18.0.2"

Runtime = Literal["runc", "runsc"]


@message
class Mount:
    """A host directory (absolute) at an absolute path inside."""

    source: str
    target: str
    read_only: bool = True


@message
class Resources:
    """Bytes and counts. `cpus` in cores."""

    memory: int = 512 * 1024 * 1024
    cpus: float = 1.0
    pids: int = 256
    nofile: int = 4096
    tmp: int = 64 * 1024 * 1024


@message
class ContainerSpec:
    """All a client may ask of a container. `build`: the root is writable so that a package can be installed and
    committed; never with a mount. `files` (absolute path → text) are put into a build's root before it starts.
    `trust`: its programs trust what `Trust` says, and until then nobody.
    """

    sandbox: str
    agent: str
    workload: str
    image: str
    runtime: Runtime = "runc"
    resources: Resources = field(default_factory=Resources)
    mounts: tuple[Mount, ...] = ()
    unix_sockets: bool = True
    build: bool = False
    trust: bool = False
    files: dict[str, str] = field(default_factory=dict[str, str])


# --- requests ------------------------------------------------------------------------------------------------


@message
class Hello:
    """First on a connection → HelloReply."""

    version: int = VERSION


@message
class Confine:
    """→ Done. From now on this client's sandboxes see of the host these directories only, it commits images of these
    names only, and removes none. Said once, before a client gives up its privileges: nothing takes it back."""

    directories: tuple[str, ...] = ()
    images: tuple[str, ...] = ()


@message
class Create:
    """→ Created. The container exists, hardened; nothing runs."""

    spec: ContainerSpec


@message
class Start:
    """→ Done. The gate waits inside; nothing else runs."""

    sandbox: str


@message
class Seal:
    """→ Done. Identity checks, then wire, rules, sysctls; listeners handed to the gateway."""

    sandbox: str


@message
class Trust:
    """→ Done. A sandbox made with `trust` trusts `authority` (certificates in PEM) besides its image's own roots, or
    the host's where the image has none; `store` is the same for Java (PKCS12, base64). Between Start and Remove, as
    often as it changes; before Launch at least once."""

    sandbox: str
    authority: str
    store: str = ""


@message
class Probe:
    """→ Probed. The cheap part of the probe, from inside; `canary` is what the gateway must answer."""

    sandbox: str
    canary: str


@message
class Launch:
    """→ Launched with two descriptors: the raw attach stream (Docker's 8-byte frames), and the exit pipe on which
    one `Exited` message arrives, then the end. `env` is all of the environment."""

    sandbox: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str = "/"

    def __repr__(self) -> str:  # env holds secrets
        return f"Launch(sandbox={self.sandbox!r}, argv=<{len(self.argv)}>, env=<{len(self.env)}>)"


@message
class Connect:
    """→ Done with one descriptor: a TCP socket connected to 127.0.0.1:`port` inside the namespace."""

    sandbox: str
    port: int


@message
class Signal:
    """→ Done. Sent to the workload's process group."""

    sandbox: str
    number: int


@message
class Stop:
    """→ Done, once it is gone: TERM, after `grace` seconds KILL. Closing stdin is the attach stream's holder's part."""

    sandbox: str
    grace: float


@message
class Remove:
    """→ Done. Idempotent: container, namespace, scratch files, listeners are gone."""

    sandbox: str


@message
class Commit:
    """→ Committed. A `build` sandbox, while it runs, becomes image `name`; `labels` are added, `env` and `files`
    of the build are not part of it."""

    sandbox: str
    name: str
    labels: dict[str, str]


@message
class List:
    """→ Listing. Every container on the host that carries our labels."""


@message
class Images:
    """→ ImageListing. Images that carry our labels, or exactly `name` whatever it carries."""

    name: str = ""


@message
class RemoveImage:
    """→ Done. Only an image that carries our labels."""

    name: str


@message
class Gateway:
    """→ Done with one descriptor: a stream to the gateway's control (`sandboxd.egress.control`). Waits while a
    restarted gateway comes up."""


REQUESTS = channel.registry(
    Hello,
    Confine,
    Create,
    Start,
    Seal,
    Trust,
    Probe,
    Launch,
    Connect,
    Signal,
    Stop,
    Remove,
    Commit,
    List,
    Images,
    RemoveImage,
    Gateway,
)


# --- replies -------------------------------------------------------------------------------------------------


@message
class HelloReply:
    """`engine`: Docker's version; `runtimes`: those it has."""

    version: int
    engine: str
    runtimes: tuple[str, ...]


@message
class Done:
    """It was done; descriptors may come with it."""


@message
class Created:
    """`container`: Docker's full id; `image`: the image's id; `uid`: the sandbox's own user id."""

    container: str
    image: str
    uid: int


@message
class ProbeResult:
    """One attempt from inside: what it tried, whether it ended as it must, what was seen."""

    name: str
    ok: bool
    seen: str


@message
class Probed:
    """All attempts; a single `ok=False` and Launch is refused."""

    results: tuple[ProbeResult, ...]


@message
class Launched:
    """Two descriptors come with it: attach stream, exit pipe."""


@message
class Exited:
    """How the workload ended: `code` 0–255 (128+N after signal N); `oom`: the memory limit killed it."""

    code: int
    oom: bool = False


@message
class Committed:
    """The new image's id."""

    image: str


@message
class ContainerInfo:
    """One of our containers as Docker's labels tell it. `owner`: the pid of the warden that made it; `state`:
    Docker's word."""

    sandbox: str
    container: str
    agent: str
    workload: str
    image: str
    state: str
    owner: int
    alive: bool


@message
class Listing:
    """All of ours, whoever made them."""

    containers: tuple[ContainerInfo, ...]


@message
class ImageInfo:
    """`size` in bytes, `created` as seconds since the epoch."""

    id: str
    names: tuple[str, ...]
    labels: dict[str, str]
    size: int
    created: float
    command: tuple[str, ...]
    env: tuple[str, ...]


@message
class ImageListing:
    """Newest first."""

    images: tuple[ImageInfo, ...]


@message
class Refused:
    """Not done, and nothing changed beyond what the text says. `code` is stable; never holds a secret."""

    code: str
    message: str
    hint: str = ""


REPLIES = channel.registry(
    HelloReply, Done, Created, Probed, Launched, Exited, Committed, Listing, ImageListing, Refused
)


# --- warden → gateway ----------------------------------------------------------------------------------------


@message
class Listeners:
    """Three listening sockets inside `sandbox`'s namespace: TCP capture, DNS over TCP, DNS over UDP, in this order.
    Which of them accepted is the sandbox's identity. The warden keeps copies."""

    sandbox: str


@message
class Session:
    """One descriptor: a controller's connection, speaking `sandboxd.egress.control`."""


@message
class Gone:
    """`sandbox` was removed: close its listeners and connections."""

    sandbox: str


GATEWAY_LINK = channel.registry(Listeners, Session, Gone)
