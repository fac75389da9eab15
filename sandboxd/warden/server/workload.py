"""A launched workload as the warden sees it: the lifeline to its gate, and how it ended.

The gate kills everything when the lifeline ends, so whatever ends the warden ends the workload. Called by
`sandboxes`.
"""

import contextlib
import select
import signal
import socket
import threading
import time

from sandboxd import channel, limits
from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import Exited
from sandboxd.warden.server.cgroups import Cgroup

_KILLED = 128 + signal.SIGKILL


class Workload:
    """`lifeline`: connected to the gate. `pidfd`: the gate. Reports once, on the stream that `exit_reader` reads."""

    def __init__(self, lifeline: socket.socket, pidfd: int, cgroup: Cgroup) -> None:
        self._lifeline = lifeline
        self._pidfd = pidfd
        self._cgroup = cgroup
        self._ended = threading.Event()
        self.exit_reader, self._exit_writer = socket.socketpair()
        self._watcher = threading.Thread(target=self._watch, name="lifeline", daemon=True)
        self._watcher.start()

    def signal(self, number: int) -> None:
        """To the workload's process group; nothing once it has ended."""
        with contextlib.suppress(OSError):
            self._lifeline.send(bytes([number]))

    def stop(self, grace: float) -> None:
        """TERM, after `grace` seconds KILL; returns once its gate is gone. Raises SandboxdError `stop_failed`."""
        if grace > 0:
            self.signal(signal.SIGTERM)
            self._ended.wait(min(grace, limits.STOP_MOST))
        kill_process(self._pidfd)
        self._watcher.join(limits.STOP_KILL)

    def close(self) -> None:
        """End it: the gate kills everything and exits. Idempotent."""
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_RDWR)
        self._watcher.join(limits.STOP_KILL)
        self.exit_reader.close()

    def _watch(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            while len(data) < 4 and (chunk := self._lifeline.recv(4 - len(data))):
                data += chunk
        code = min(int.from_bytes(data), 255) if len(data) == 4 else _KILLED
        oom = code == _KILLED and self._cgroup.killed_by_memory()
        with contextlib.suppress(OSError):
            channel.send(self._exit_writer, Exited(code, oom))
        self._exit_writer.close()
        self._lifeline.close()
        self._ended.set()


def accept_lifeline(listener: socket.socket, pidfd: int) -> socket.socket:
    """The gate's connection, after which nobody else can make one. Raises SandboxdError `gate_refused`."""
    with listener:
        ready, _, _ = select.select([listener, pidfd], [], [], limits.LIFELINE)
        if listener not in ready:
            why = "ended" if ready else f"did not come back within {limits.LIFELINE:g} s"
            raise SandboxdError("gate_refused", f"the gate did not take its orders: it {why}")
        lifeline, _ = listener.accept()
    lifeline.setblocking(True)
    lifeline.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return lifeline


def kill_process(pidfd: int) -> None:
    """SIGKILL, and wait for the end. Raises SandboxdError `stop_failed` where it can't be killed."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    deadline = time.monotonic() + limits.STOP_KILL
    while not select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if time.monotonic() >= deadline:
            raise SandboxdError("stop_failed", f"the sandbox did not end within {limits.STOP_KILL:g} s of SIGKILL")
