"""A process named for good: by its pid and its start time, since a pid alone is given out again.

Whoever owns a container, a directory or a lease is written down so. Called by the warden and the controller.
"""

import os


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (proc(5), field 22 of `stat`). None: it has ended, whether or
    not anyone has waited for it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # before it is a name that may hold anything
            return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def own_start_ticks() -> int:
    """The same of this process."""
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    return ticks


def lives(pid: int, start: int) -> bool:
    """Whether that very process still runs."""
    return start_ticks(pid) == start
