"""Pipes that bytes pass through between two sockets without being copied into this process (splice(2)).

A direction borrows one while bytes are under way and returns it empty; so there are as many as there are directions
that wait, not as there are connections. Called by `splice`.
"""

import contextlib
import fcntl
import os

from sandboxd import limits

# Kept for the next borrower; more are closed.
_SPARE = 32


class Pipe:
    """`held`: bytes inside."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.held = 0
        with contextlib.suppress(OSError):  # pipe(7): past a user's share of pages it keeps its usual 64 KiB
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, limits.PUMP_BUFFER)

    def close(self) -> None:
        """Drop it, with what is inside."""
        os.close(self.reader)
        os.close(self.writer)


class Pipes:
    """A small stock."""

    def __init__(self) -> None:
        self._spare: list[Pipe] = []

    def borrow(self) -> Pipe:
        """An empty pipe. Raises OSError where there are no descriptors left."""
        return self._spare.pop() if self._spare else Pipe()

    def give_back(self, pipe: Pipe) -> None:
        """One that isn't empty is dropped: its bytes are of another connection."""
        if pipe.held or len(self._spare) >= _SPARE:
            pipe.close()
        else:
            self._spare.append(pipe)
