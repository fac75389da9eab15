"""A workload without a container: the other end of the relay, in the test's own hands.

`Bench` runs a real `Relay` in a thread between two ends that the test plays: the client's stdio as pipes (or sockets),
and the attach stream in Docker's framing. Every wait is bounded, so a deadlock fails instead of hanging.
"""

import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Generator
from typing import Any

from sandboxd import channel
from sandboxd.controller.relay import Relay, Streams, open_client_ends
from sandboxd.mcp.connections.frames import STDERR, STDOUT
from sandboxd.warden.protocol import Exited

PATIENCE = 20.0


def frame(stream: int, payload: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(payload)) + payload


def read_until(fd: int, enough: Any, patience: float = PATIENCE, most: int | None = None) -> bytes:
    """What comes out of `fd` until `enough(data)` or its end; what comes after `most` bytes stays where it is."""
    data = bytearray()
    while not enough(data):
        assert select.select([fd], [], [], patience)[0], f"nothing came; so far {bytes(data[:200])!r}"
        chunk = os.read(fd, 1 << 16 if most is None else min(most - len(data), 1 << 16))
        if not chunk:
            break
        data += chunk
    return bytes(data)


class FakeControl:
    """Notes what the relay asked for; `on_stop` plays the warden."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.signalled = threading.Event()
        self.stopped = threading.Event()
        self.on_stop = lambda: None

    def signal(self, number: int) -> None:
        self.signals.append(number)
        self.signalled.set()

    def stop(self) -> None:
        self.stopped.set()
        self.on_stop()


class Bench:
    """The ends: `client_in` (write), `client_out`, `client_err` (read), `attach` and `exit` of the workload."""

    def __init__(self, *, raw: bool = False, tap: Any = None) -> None:
        self.attach, attach = socket.socketpair()
        self.exit, exit_ = socket.socketpair()
        self.signals, signals = socket.socketpair()
        stdin, self.client_in = os.pipe()
        self.client_out, stdout = os.pipe()
        self.client_err, stderr = os.pipe()
        self.attach.settimeout(PATIENCE)
        self.control = FakeControl()
        self.control.on_stop = lambda: self.ends(143)
        self.relay = Relay(
            Streams(attach, exit_), open_client_ends(stdin, stdout, stderr), self.control, raw=raw, tap=tap
        )
        os.close(stdout)  # the relay reopened them
        os.close(stderr)
        self._stdin, self._given = stdin, (attach, exit_, signals)
        self.outcome: Exited | Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(signals,), daemon=True)
        self._thread.start()

    def _run(self, signals: socket.socket) -> None:
        try:
            self.outcome = self.relay.run(signals)
        except Exception as error:
            self.outcome = error

    # --- the client's part

    def says(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            assert select.select([], [self.client_in], [], PATIENCE)[1], "the relay takes nothing more"
            view = view[os.write(self.client_in, view[:4096]) :]

    def hears(self, count: int) -> bytes:
        return read_until(self.client_out, lambda data: len(data) >= count, most=count)

    def hears_line(self) -> bytes:
        return read_until(self.client_out, lambda data: data.endswith(b"\n"))

    def hears_complaint(self) -> str:
        return read_until(self.client_err, lambda data: data.endswith(b"\n")).decode()

    def hangs_up(self) -> None:
        os.close(self.client_in)
        self.client_in = -1

    # --- the workload's part

    def writes(self, data: bytes, stream: int = STDOUT) -> None:
        self.attach.sendall(frame(stream, data))

    def complains(self, data: bytes) -> None:
        self.writes(data, STDERR)

    def reads(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self.attach.recv(1 << 16)
            if not chunk:
                break
            data += chunk
        return bytes(data)

    def ends(self, code: int, *, oom: bool = False) -> None:
        with contextlib.suppress(OSError):
            channel.send(self.exit, Exited(code, oom))
            self.attach.close()
            self.exit.close()

    # --- how it ended

    def result(self) -> Exited | Exception | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the relay did not end"
        return self.outcome

    def close(self) -> None:
        """The client goes first: a relay never waits for one that is gone."""
        for fd in (self.client_in, self.client_out, self.client_err):
            if fd >= 0:
                os.close(fd)
        self.ends(137)
        self._thread.join(PATIENCE)
        for sock in (self.attach, self.exit, self.signals, *self._given):
            sock.close()
        for fd in (self._stdin, self.relay.client.stdout.fd, self.relay.client.stderr.fd):
            os.close(fd)


@contextlib.contextmanager
def open_bench(**options: Any) -> Generator[Bench, None, None]:
    bench = Bench(**options)
    try:
        yield bench
    finally:
        bench.close()
