"""The host's side of the set-up: packages, users, folders, the gate, .venv, images. Called by `deploy/setup`."""

import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from deploy.console import SetupError, run, say
from sandboxd.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PYTHON = (3, 11)


def _interpreter() -> str:
    """What .venv is made from: the distribution's, where it is new enough. One below a folder that only root may read
    could be neither run by others nor imported from once root is given up."""
    ours = "/usr/bin/python3"
    new_enough = f"import sys; sys.exit(sys.version_info < {OLDEST_PYTHON})"
    fits = Path(ours).exists() and subprocess.run([ours, "-c", new_enough]).returncode == 0
    return ours if fits else sys.executable


def _command(*names: str) -> Callable[[], bool]:
    return lambda: all(map(shutil.which, names))


def _static_libc() -> bool:
    """cc with its library's headers: gcc prints a path only where there is one."""
    cc = shutil.which("cc")
    asked = [cc or "cc", "-print-file-name=libc.a"]
    return bool(cc) and "/" in subprocess.run(asked, capture_output=True, text=True).stdout


def _can_make_venv() -> bool:
    return subprocess.run([_interpreter(), "-c", "import ensurepip, venv"], capture_output=True).returncode == 0


def _has_fuzzer() -> bool:
    """clang, and its runtime library for fuzzing."""
    if not shutil.which("clang"):
        return False
    asked = ["clang", "-print-runtime-dir"]
    where = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return any(Path(where).glob("libclang_rt.fuzzer*"))


# Debian package → whether the host has what it is for (from wherever).
NEEDED: dict[str, Callable[[], bool]] = {
    "ca-certificates": Path("/etc/ssl/certs/ca-certificates.crt").exists,
    "debian-archive-keyring": Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists,
    "gcc": _command("gcc", "cc"),
    "iproute2": _command("ip"),
    "libc6-dev": _static_libc,
    "mmdebstrap": _command("mmdebstrap"),
    "musl-tools": _command("musl-gcc"),
    "nftables": _command("nft"),
    "passwd": _command("useradd"),
    "python3-venv": _can_make_venv,
    "ripgrep": _command("rg"),
    "tcpdump": _command("tcpdump"),
}
FOR_TESTS: dict[str, Callable[[], bool]] = {"clang": _command("clang"), "libclang-rt-dev": _has_fuzzer}
# Only where apt has them: gVisor isn't in every release; Docker's client is a package of its own in newer ones.
OPTIONAL: dict[str, Callable[[], bool]] = {"runsc": _command("runsc")}
DOCKER: dict[str, Callable[[], bool]] = {"docker.io": _command("dockerd"), "docker-cli": _command("docker")}


def missing(wanted: dict[str, Callable[[], bool]]) -> list[str]:
    """The packages whose purpose the host can't serve yet."""
    return [package for package, there in wanted.items() if not there()]


def install_packages(*, test: bool) -> None:
    """Everything but Docker, which must find its configuration when it first starts."""
    if sys.version_info < OLDEST_PYTHON:
        version = ".".join(map(str, OLDEST_PYTHON))
        raise SetupError(f"this is Python {sys.version.split()[0]}", f"Python {version} or newer is needed")
    _install(missing(NEEDED) + (missing(FOR_TESTS) if test else []), missing(OPTIONAL))


def install_docker() -> None:
    """Docker Engine of the distribution, unless some dockerd and client are there."""
    wanted = missing(DOCKER)
    _install([name for name in wanted if name != "docker-cli"], [name for name in wanted if name == "docker-cli"])
    if left := missing(DOCKER):
        raise SetupError(f"still missing: {', '.join(left)}", "install Docker Engine, then run this again")


def _install(packages: list[str], optional: list[str]) -> None:
    offered = _offered(optional)
    if not packages and not offered:
        return
    if not shutil.which("apt-get"):
        raise SetupError(f"missing: {', '.join(packages)}", "there is no apt-get here: install them by hand")
    say("apt-get update")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    # A third party's broken entry must not keep Debian's own packages out; if it matters, the install says so.
    subprocess.run(["apt-get", "update", "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wanted = packages + _offered(optional)
    say(f"installing {' '.join(wanted)}")
    options = ["--yes", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=120"]
    run(["apt-get", "install", *options, *wanted], "does `apt-get update` work here? see apt's message above", env)


def _offered(packages: Iterable[str]) -> list[str]:
    """Those that apt could install."""
    return [name for name in packages if _candidate(name)]


def _candidate(package: str) -> bool:
    if not shutil.which("apt-cache"):
        return False
    done = subprocess.run(
        ["apt-cache", "policy", package], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    )
    return "Candidate:" in done.stdout and "Candidate: (none)" not in done.stdout


def make_users() -> None:
    """The two unprivileged users: the controller's and the gateway's."""
    settings = load_settings()
    for user in (settings.controller_user, settings.gateway_user):
        if not _exists(user):
            say(f"user {user}")
            options = ["--system", "--user-group", "--no-create-home", "--home-dir=/nonexistent"]
            run(["useradd", *options, "--shell=/usr/sbin/nologin", user], "make that system user by hand")


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def make_directories() -> None:
    """State and run folders, each its user's own and nobody else's to read."""
    settings = load_settings()
    for path, user, mode in _directories(settings):
        path.mkdir(parents=True, exist_ok=True)
        entry = pwd.getpwnam(user)
        found = path.stat()
        if (found.st_uid, found.st_gid, found.st_mode & 0o7777) != (entry.pw_uid, entry.pw_gid, mode):
            os.chown(path, entry.pw_uid, entry.pw_gid)
            path.chmod(mode)


def _directories(settings: Settings) -> list[tuple[Path, str, int]]:
    return [
        (settings.state_dir, "root", 0o755),
        (settings.audit_dir, settings.gateway_user, 0o700),
        (settings.controller_dir, settings.controller_user, 0o700),
        (settings.run_dir, "root", 0o755),
    ]


def install_gate() -> None:
    """Compiles the gate where it isn't there or its source is newer; replaced in one step."""
    gate = load_settings().gate
    sources = ROOT / "images/gate"
    newest = max(path.stat().st_mtime for path in (sources / "gate.c", sources / "orders.h", sources / "build"))
    if gate.exists() and gate.stat().st_mtime >= newest:
        return
    say(f"compiling the gate: {gate}")
    gate.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=gate.parent) as folder:
        built = Path(folder) / "gate"
        run([sources / "build", "gate", built], "is a C compiler with a static library installed (gcc, musl-tools)?")
        built.chmod(0o755)
        built.rename(gate)


def make_venv() -> None:
    """.venv with sandboxd and what its checks need, anew when pyproject.toml or the interpreter changed."""
    venv = ROOT / ".venv"
    stamp = venv / "made-from"
    interpreter = _interpreter()
    version = subprocess.run([interpreter, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    source = f"{hashlib.sha256((ROOT / 'pyproject.toml').read_bytes()).hexdigest()} {interpreter} {version}"
    if stamp.exists() and stamp.read_text() == source and (venv / "bin/sandboxd").exists():
        return
    python = venv / "bin/python"
    if not stamp.exists() or stamp.read_text().split()[1:] != source.split()[1:] or not python.exists():
        say("making .venv")
        run([interpreter, "-m", "venv", "--clear", venv], "can this Python make virtual environments?")
    say("installing sandboxd and its dependencies into .venv (half a minute)")
    install = [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    # compat: a plain path in site-packages; the default's import hook costs every start 10 ms.
    install += ["--config-settings", "editable_mode=compat"]
    run([*install, "-e", f"{ROOT}[dev]"], "pip uses this host's own configuration: does `pip download six` work?")
    stamp.write_text(source)


def build_images() -> None:
    """`images/build`, whose own progress is shown."""
    python = ROOT / ".venv/bin/python"
    if subprocess.run([python, ROOT / "images/build"]).returncode:
        raise SetupError("the images could not be built", "see above; then run this again")
