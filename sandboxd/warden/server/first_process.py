"""What a container's first process must be before the seal: the gate, alone; or gVisor's sandbox with the gate in it,
on the namespace's own network stack and with our system calls.

Every refusal is a SandboxdError with a stable code. Called by `identity`.
"""

import contextlib
import os
import select
import time
from collections.abc import Iterable
from pathlib import Path

from sandboxd import limits
from sandboxd.errors import SandboxdError
from sandboxd.warden.server.cgroups import Cgroup

# Without the first its own network stack would not be caught, without the second our list would not hold.
_RUNSC_NEEDS = {"--network=host": "runsc_network", "--oci-seccomp=true": "runsc_seccomp"}
_RUNSC_HINT = "register it in Docker's daemon.json with --network=host and --oci-seccomp, as deploy/setup does"


def check_gate(pid: int, pidfd: int, gate: int, cgroup: Cgroup) -> None:
    """runc: the executable is the sandbox's own copy of the gate (descriptor `gate`), and no other process runs.
    Raises `not_the_gate`, `other_processes`."""
    if not _becomes_gate(pid, pidfd, gate):
        raise _refused("not_the_gate", "the container's first process is not the gate")
    others = [other for other in cgroup.pids() if other != pid]
    if others:
        raise _refused("other_processes", f"{len(others)} other processes run in the container already")


def _becomes_gate(pid: int, pidfd: int, gate: int) -> bool:
    """Docker's start returns a moment before runc, which did the preparing, executes the gate. No event tells when;
    what does not call itself runc's init is judged at once."""
    deadline = time.monotonic() + limits.GATE_EXECUTES
    while True:
        if same_file(os.stat(f"/proc/{pid}/exe"), os.fstat(gate)):
            return True
        preparing = Path(f"/proc/{pid}/comm").read_text().startswith("runc:")
        if not preparing or time.monotonic() > deadline or select.select([pidfd], [], [], 0.001)[0]:
            return False


def check_runsc(pid: int, container: str, binary: str, cgroup: Cgroup) -> None:
    """gVisor: the sandbox process of this container with the arguments that it needs, and nothing in the group but
    `binary`, Docker's registered runtime. What runs inside it, the host can't see: Docker was told the gate, and is
    asked again. Raises `not_runsc`, `runsc_network`, `runsc_seccomp`."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    check_runsc_arguments(words, container)
    for member in cgroup.pids():
        with contextlib.suppress(FileNotFoundError):  # a stub that has ended
            if not same_file(os.stat(f"/proc/{member}/exe"), os.stat(binary)):
                raise _refused("not_runsc", "the container's group holds a process that is not gVisor's")


def check_runsc_arguments(words: Iterable[str], container: str) -> None:
    """The sandbox process's command line. Pure."""
    words = list(words)
    if words[0] != "runsc-sandbox" or "boot" not in words or container not in words:
        raise _refused("not_runsc", "the container's first process is not gVisor's sandbox")
    options = words[: words.index("boot")]
    for option, code in _RUNSC_NEEDS.items():
        if option not in options:
            raise SandboxdError(code, f"runsc runs without {option}", hint=_RUNSC_HINT)


def same_file(a: os.stat_result, b: os.stat_result) -> bool:
    """Whether both are one inode."""
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


def _refused(code: str, message: str) -> SandboxdError:
    return SandboxdError(code, message, hint="the sandbox is not started; `sandboxd doctor` checks the host")
