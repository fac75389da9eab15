"""What sandboxd needs of this machine, one function a need; each looks, changes nothing, and knows the fix.

Called by `doctor`. Not here: how it is shown.
"""

import ctypes
import errno
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sandboxd import limits
from sandboxd.errors import SandboxdError
from sandboxd.settings import Settings
from sandboxd.warden.server.engine import Engine

Level = Literal["ok", "warn", "fail"]
SETUP = "run deploy/setup"
IMAGES = ("sandboxd/base", "sandboxd/python", "sandboxd/node", "sandboxd/shell")
# Numbers of x86-64 and of every architecture that came later.
_CALLS = {"pidfd_open": 434, "openat2": 437, "mount_setattr": 442, "open_tree": 428, "move_mount": 429}
_RULES = Path(__file__).parent.parent / "warden" / "server" / "seal.nft"
_FREE_LEAST = 2 * 1024 * limits.MIB


@dataclass(frozen=True, slots=True)
class Check:
    """One need. `detail`: what was found; `fix`: what to do, empty where it is ok."""

    name: str
    level: Level
    detail: str
    fix: str = ""


class Machine:
    """What several checks ask, asked once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = Engine(str(settings.docker_socket))

    @cached_property
    def docker(self) -> dict[str, Any] | SandboxdError:
        """Docker's own description, or why there is none."""
        try:
            return self.engine.info()
        except SandboxdError as error:
            return error


def run_checks(settings: Settings) -> list[Check]:
    """All of them, those that only repeat an earlier failure left out."""
    machine = Machine(settings)
    checks: list[Callable[[Machine], Iterable[Check]]] = [
        _python, _root, _kernel_calls, _seccomp, _file_systems, _tools, _seal, _user_namespaces, _docker, _runtimes,
        _cgroups, _users, _gate, _images, _directories, _disk,
    ]  # fmt: skip
    return [check for work in checks for check in work(machine)]


def _python(_: Machine) -> Iterable[Check]:
    version = sys.version.split()[0]
    yield Check("python", "ok", version)


def _root(_: Machine) -> Iterable[Check]:
    if os.geteuid() == 0:
        yield Check("privileges", "ok", "root")
    else:
        fix = "start run, image build and probe as root, for instance with sudo"
        yield Check("privileges", "fail", f"uid {os.geteuid()}", fix)


def _kernel_calls(_: Machine) -> Iterable[Check]:
    libc = ctypes.CDLL(None, use_errno=True)
    missing: list[str] = []
    for name, number in _CALLS.items():
        if libc.syscall(number, -1, 0, 0, 0, 0) < 0 and ctypes.get_errno() == errno.ENOSYS:
            missing.append(name)
    release = os.uname().release
    if missing:
        yield Check("kernel", "fail", f"{release} lacks {', '.join(missing)}", "Linux 5.12 or newer")
    else:
        yield Check("kernel", "ok", f"{release}: {', '.join(_CALLS)}")


def _seccomp(_: Machine) -> Iterable[Check]:
    try:
        actions = Path("/proc/sys/kernel/seccomp/actions_avail").read_text().split()
    except OSError:
        actions = []
    if "errno" in actions:
        yield Check("seccomp", "ok", "filters with errno")
    else:
        yield Check("seccomp", "fail", "no seccomp filters", "a kernel with CONFIG_SECCOMP_FILTER")


def _file_systems(_: Machine) -> Iterable[Check]:
    known = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    missing = {"overlay", "tmpfs"} - known
    if missing:
        yield Check("file systems", "warn", f"not loaded: {', '.join(sorted(missing))}", "modprobe overlay")
    else:
        yield Check("file systems", "ok", "overlay, tmpfs")


def _tools(_: Machine) -> Iterable[Check]:
    for tool, package in (("nft", "nftables"), ("ip", "iproute2"), ("unshare", "util-linux")):
        path = shutil.which(tool)
        if path is None:
            yield Check(tool, "fail", "not on the PATH", f"apt-get install {package}")
            continue
        flag = "-V" if tool == "ip" else "--version"
        found = subprocess.run([path, flag], capture_output=True, text=True, check=False).stdout.strip()
        yield Check(tool, "ok", found.splitlines()[0][:60] if found else path)


def _seal(_: Machine) -> Iterable[Check]:
    """The rules are loaded for real, into a namespace that ends with the command."""
    if os.geteuid() != 0 or not shutil.which("nft") or not shutil.which("unshare"):
        return
    rules = b"create table inet sandboxd\n" + _RULES.read_bytes()
    tried = subprocess.run(["unshare", "--net", "nft", "-f", "-"], input=rules, capture_output=True, check=False)
    if tried.returncode == 0:
        yield Check("seal", "ok", "the rules load into a new network namespace")
    else:
        said = tried.stderr.decode(errors="replace").strip().splitlines() or ["nft failed"]
        fix = "modules nf_tables, nft_redir, nft_fib, nft_ct, nft_connlimit, nft_limit, nft_reject, nf_conntrack"
        yield Check("seal", "fail", said[0][:100], fix)


def _user_namespaces(_: Machine) -> Iterable[Check]:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return
    tried = subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False)
    if tried.returncode == 0:
        yield Check("workspaces", "ok", "user namespaces for idmapped mounts")
    else:
        yield Check(
            "workspaces", "warn", "no user namespaces: --workspace won't work", "sysctl user.max_user_namespaces"
        )


def _docker(machine: Machine) -> Iterable[Check]:
    if isinstance(machine.docker, SandboxdError):
        yield Check("docker", "fail", machine.docker.message, machine.docker.hint or f"start dockerd, or {SETUP}")
        return
    info = machine.docker
    yield Check("docker", "ok", f"{info['ServerVersion']}, {info.get('Driver')}, at {machine.settings.docker_socket}")
    options: list[str] = info.get("SecurityOptions") or []
    if not any("seccomp" in option for option in options):
        yield Check("docker seccomp", "fail", "Docker applies no seccomp profiles", "a Docker built with seccomp")


def _runtimes(machine: Machine) -> Iterable[Check]:
    if isinstance(machine.docker, SandboxdError):
        return
    runtimes: dict[str, Any] = machine.docker.get("Runtimes") or {}
    if "runc" not in runtimes:
        yield Check("runtime runc", "fail", "Docker doesn't know it", "install runc")
    else:
        yield Check("runtime runc", "ok", "known to Docker")
    runsc = runtimes.get("runsc")
    needed = ("--network=host", "--oci-seccomp")  # the warden refuses it without either
    fix = f"{SETUP}: it registers runsc with {' '.join(needed)} in /etc/docker/daemon.json, then restart dockerd"
    if runsc is None:
        yield Check("runtime runsc", "warn", "Docker doesn't know it: --runtime runsc won't work", fix)
    elif missing := [word for word in needed if word not in (runsc.get("runtimeArgs") or [])]:
        yield Check("runtime runsc", "warn", f"registered without {' '.join(missing)}", fix)
    else:
        yield Check("runtime runsc", "ok", " ".join(runsc["runtimeArgs"]))


def _cgroups(machine: Machine) -> Iterable[Check]:
    if isinstance(machine.docker, SandboxdError):
        return
    info = machine.docker
    missing = [name for name in ("MemoryLimit", "PidsLimit", "CpuCfsQuota") if not info.get(name)]
    version = f"cgroup v{info.get('CgroupVersion', '1')}"
    if missing:
        yield Check("limits", "fail", f"{version} without {', '.join(missing)}", "enable the cgroup controllers")
    else:
        yield Check("limits", "ok", f"{version}: memory, pids, cpu")


def _users(machine: Machine) -> Iterable[Check]:
    for name in (machine.settings.controller_user, machine.settings.gateway_user):
        try:
            yield Check(f"user {name}", "ok", f"uid {pwd.getpwnam(name).pw_uid}")
        except KeyError:
            yield Check(f"user {name}", "fail", "not there", f"{SETUP}, or: useradd --system {name}")


def _gate(machine: Machine) -> Iterable[Check]:
    gate = machine.settings.gate
    try:
        head = gate.open("rb").read(64)
    except OSError as error:
        yield Check("gate", "fail", f"{gate}: {error.strerror}", f"{SETUP}: it compiles images/gate")
        return
    found = gate.stat()
    if head[:4] != b"\x7fELF" or not found.st_mode & 0o111:
        yield Check("gate", "fail", f"{gate} is not an executable", f"{SETUP}: it compiles images/gate")
    elif found.st_uid != 0 or found.st_mode & 0o022:
        yield Check(
            "gate", "fail", f"{gate} can be changed by others than root", f"chown root {gate}; chmod 755 {gate}"
        )
    else:
        yield Check("gate", "ok", str(gate))


def _images(machine: Machine) -> Iterable[Check]:
    if isinstance(machine.docker, SandboxdError):
        return
    missing: list[str] = []
    for name in IMAGES:
        try:
            machine.engine.inspect_image(name)
        except SandboxdError:
            missing.append(name)
    if missing:
        yield Check("images", "warn", f"missing: {', '.join(missing)}", f"{SETUP}, or images/build")
    else:
        yield Check("images", "ok", ", ".join(IMAGES))


def _directories(machine: Machine) -> Iterable[Check]:
    settings = machine.settings
    wanted = {settings.audit_dir: settings.gateway_user, settings.controller_dir: settings.controller_user}
    for path, owner in wanted.items():
        yield _directory(path, owner)


def _directory(path: Path, owner: str) -> Check:
    fix = f"install -d -o {owner} -g {owner} -m 700 {path}"
    try:
        found = path.stat()
        uid = pwd.getpwnam(owner).pw_uid
    except OSError as error:
        return Check(str(path), "fail", str(error.strerror), fix)
    except KeyError:
        return Check(str(path), "fail", f"no user {owner}", SETUP)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
        return Check(str(path), "fail", f"does not belong to {owner}", fix)
    if found.st_mode & 0o022:
        return Check(str(path), "warn", f"mode {found.st_mode & 0o7777:o}: others may write", f"chmod 700 {path}")
    return Check(str(path), "ok", f"{owner}, mode {found.st_mode & 0o7777:o}")


def _disk(machine: Machine) -> Iterable[Check]:
    places = {"state": machine.settings.state_dir}
    if not isinstance(machine.docker, SandboxdError):
        places["docker"] = Path(str(machine.docker.get("DockerRootDir", "/")))
    for name, path in places.items():
        try:
            free = shutil.disk_usage(path).free
        except OSError:
            continue  # its own check says so
        text = f"{free / 2**30:.1f} GiB free at {path}"
        if free < _FREE_LEAST:
            yield Check(f"disk ({name})", "warn", text, "free some: docker image ls, sandboxd image ls")
        else:
            yield Check(f"disk ({name})", "ok", re.sub(r"\.0 ", " ", text))
