"""A container's control group: who is in it, its socket memory, whether its memory limit killed.

Version 1 and 2. Called by `identity`, and by `sandboxes` for the limits that Docker does not set.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from sandboxd import limits
from sandboxd.errors import SandboxdError

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Directories of one process's group: `processes` where they are listed, `memory` where memory is limited;
    `unified`: version 2."""

    processes: Path
    memory: Path
    unified: bool

    def pids(self) -> tuple[int, ...]:
        """Every process in it."""
        return tuple(int(line) for line in (self.processes / "cgroup.procs").read_text().split())

    def limit_sockets(self) -> None:
        """Charge and bound socket memory. Version 1 does not charge it unless this is written (Docker's own option
        silently does nothing); version 2 counts it within memory.max. Raises SandboxdError `socket_memory`."""
        try:
            if not self.unified:
                (self.memory / "memory.kmem.tcp.limit_in_bytes").write_text(str(limits.SOCKET_MEMORY))
            charged = self.sockets_charged()
        except OSError:
            charged = False
        if not charged:
            raise SandboxdError(
                "socket_memory",
                "this kernel does not charge a sandbox for its sockets' memory",
                hint="boot without cgroup.memory=nosocket; sandboxd doctor tells more",
            )

    def sockets_charged(self) -> bool:
        """Whether socket memory is bounded; with version 2, whether the kernel counts it. Raises OSError."""
        if self.unified:
            return any(line.startswith("sock ") for line in (self.memory / "memory.stat").read_text().splitlines())
        return int((self.memory / "memory.kmem.tcp.limit_in_bytes").read_text()) <= limits.SOCKET_MEMORY

    def killed_by_memory(self) -> bool:
        """Whether the memory limit has killed anything in it; False once it is gone."""
        with contextlib.suppress(OSError):
            name = "memory.events" if self.unified else "memory.oom_control"
            fields = dict(line.split() for line in (self.memory / name).read_text().splitlines())
            return int(fields.get("oom_kill", "0")) > 0
        return False


def cgroup_of(pid: int) -> Cgroup:
    """The group of a process. Raises OSError where it is gone."""
    groups = parse_cgroups(Path(f"/proc/{pid}/cgroup").read_text())
    if "pids" in groups and "memory" in groups:
        return Cgroup(_ROOT / "pids" / groups["pids"], _ROOT / "memory" / groups["memory"], unified=False)
    path = _ROOT / groups[""]
    return Cgroup(path, path, unified=True)


def parse_cgroups(text: str) -> dict[str, str]:
    """Controller → path without its leading slash, from /proc/PID/cgroup; version 2's under the empty name. Pure."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    return groups
