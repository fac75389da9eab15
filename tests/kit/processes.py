"""Finding and ending the processes that `fork_processes` made, by their parents and names."""

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Family:
    """Pids of one run's guardian, warden and gateway."""

    guardian: int
    warden: int
    gateway: int

    def all(self) -> tuple[int, ...]:
        return (self.guardian, self.warden, self.gateway)


def find_family(parent: int) -> Family:
    """The three below `parent`, once all are there; the newest guardian where it has several."""
    guardian = max(pid for pid in children(parent) if name_of(pid) == "sandboxd-guard")
    by_name = {name_of(pid): pid for pid in children(guardian)}
    return Family(guardian, by_name["sandboxd-warden"], by_name["sandboxd-gate-w"])


def children(parent: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


def kill(*pids: int) -> None:
    """SIGKILL to each; the end of one may have been the end of the next."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_for_end(*pids: int, seconds: float = 20.0) -> None:
    """Until all have ended; they need not be ours. Reaps those that are."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([fd], [], [], seconds)[0], f"{name_of(pid)} ({pid}) still lives"
        finally:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
