"""The MCP relay: client stdio on one side, the attach stream of the workload on the other, in one poll loop.

Messages pass byte for byte, any number in flight, either way. A side that doesn't read makes the other wait, and never
costs more than `limits.STREAM_BUFFER` and one message; only stderr is thrown away instead, so that a client which
doesn't read it can't block the messages. Called by the CLI's `run` with streams that `controller.sandbox` launched.
Not here: what a line means (`controller.messages`), starting and stopping (`Control`).
"""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import FrameType

from sandboxd import channel, limits
from sandboxd.controller.messages import Fault, Outcome, Side, judge_line
from sandboxd.controller.outlets import Outlet, Read, open_outlet, open_reader, socket_outlet, socket_reader
from sandboxd.controller.ports import Control
from sandboxd.controller.terminal import ForTerminal
from sandboxd.controller.tool_calls import ToolCalls
from sandboxd.errors import SandboxdError
from sandboxd.mcp.connections.envelope import Envelope
from sandboxd.mcp.connections.frames import STDOUT, FrameReader
from sandboxd.mcp.connections.lines import LineSplitter
from sandboxd.warden.protocol import REPLIES, Exited

Tap = Callable[[Side, Envelope], None]

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_IN, _OUT = select.POLLIN, select.POLLOUT


@dataclass(frozen=True, slots=True)
class Streams:
    """What a launch gave: the raw attach stream, and the socket on which one `Exited` comes."""

    attach: socket.socket
    exit: socket.socket


@dataclass(frozen=True, slots=True)
class ClientEnds:
    """The client's stdio, opened while that may still need privileges."""

    stdin: int
    read: Read
    stdout: Outlet
    stderr: Outlet


def open_client_ends(stdin: int = 0, stdout: int = 1, stderr: int = 2) -> ClientEnds:
    """The three descriptors this process was started with, unless others are named."""
    return ClientEnds(stdin, open_reader(stdin), open_outlet(stdout), open_outlet(stderr))


class Relay:
    """One workload's relay; `run` once. `raw`: bytes pass, nothing is read as lines. `last_stderr`: the end of what
    the workload said there. `dropped`: lines that did not pass."""

    def __init__(
        self,
        streams: Streams,
        client: ClientEnds,
        control: Control,
        *,
        raw: bool = False,
        tap: Tap | None = None,
        calls: ToolCalls | None = None,
    ) -> None:
        self._streams = streams
        self.client = client
        self._control = control
        self._raw = raw
        self._tap = tap
        self._calls = calls
        self._held: list[bytes] = []  # what waits until the gateway knows of the calls in it
        self._for_terminal = ForTerminal() if not raw and os.isatty(client.stderr.fd) else None
        self.last_stderr = bytearray()
        self.dropped = 0
        self._said: set[tuple[Side, Fault]] = set()
        self._to_server = socket_outlet(streams.attach)
        self._read_attach = socket_reader(streams.attach)
        self._frames = FrameReader()
        self._client_lines = LineSplitter()
        self._server_lines = LineSplitter()
        self._unanswered = 0  # requests of the client that wait for an answer
        self._client_done = False  # nothing more comes from the client
        self._half_closed = False  # and the workload was told
        self._attach_done = False
        self._stopping = False
        self._ending_signals = 0
        self._exited: Exited | None = None
        self._deadline: float | None = None
        self._poll = select.poll()
        self._wanted: tuple[object, ...] = ()
        self._watched: set[int] = set()

    def run(self, signals: socket.socket) -> Exited:
        """Relay until the workload has ended and all it wrote is out. `signals`: from `forwarded_signals`. Raises
        SandboxdError where its end can't be known: the warden is gone, or it can't be stopped."""

        def forward(_: int) -> None:
            self._forward_signals(signals.recv(64))

        handlers: dict[int, Callable[[int], None]] = {
            self.client.stdin: self._from_client,
            self._streams.attach.fileno(): self._attach_ready,
            self.client.stdout.fd: self._stdout_ready,
            self.client.stderr.fd: self._stderr_ready,
            self._streams.exit.fileno(): self._workload_ended,
            signals.fileno(): forward,
        }
        if self._calls is not None:
            handlers[self._calls.fd] = self._gateway_told
            self._watch(self._calls.fd, _IN)
        while not self._finished():
            self._want(signals.fileno())
            for fd, events in self._poll.poll(self._timeout()):
                handlers[fd](events)
            self._check_deadline()
        self._say_total()
        self.client.stderr.flush()
        assert self._exited is not None
        return self._exited

    # --- what to wait for ------------------------------------------------------------------------------------

    def _want(self, signals: int) -> None:
        client, room = self.client, limits.STREAM_BUFFER
        out, err, to_server = client.stdout, client.stderr, self._to_server
        reading = not self._client_done and self._exited is None and to_server.pending < room and not self._held
        attach = (0 if self._attach_done or out.pending >= room else _IN) | (_OUT if to_server.pending else 0)
        # Nothing to write is watched too: this is how a vanished client shows.
        outward = None if out.lost else _OUT if out.pending else 0
        wanted = (reading, attach, outward, bool(err.pending), self._exited is None)
        if wanted == self._wanted:
            return
        self._wanted = wanted
        self._watch(client.stdin, _IN if reading else None)
        self._watch(self._streams.attach.fileno(), attach or None)
        self._watch(out.fd, outward)
        self._watch(err.fd, _OUT if err.pending else None)
        self._watch(self._streams.exit.fileno(), _IN if self._exited is None else None)
        self._watch(signals, _IN)

    def _watch(self, fd: int, mask: int | None) -> None:
        """A descriptor that nothing is wanted of is not polled: its hang-up would wake us for ever."""
        if mask is not None:
            self._poll.register(fd, mask)
            self._watched.add(fd)
        elif fd in self._watched:
            self._poll.unregister(fd)
            self._watched.discard(fd)

    def _timeout(self) -> int | None:
        return None if self._deadline is None else max(0, round((self._deadline - time.monotonic()) * 1000)) + 1

    def _finished(self) -> bool:
        if self._exited is None:
            return False
        out = self.client.stdout
        drained = self._attach_done and (out.lost or not out.pending) and not self.client.stderr.pending
        return drained or (self._deadline is not None and time.monotonic() >= self._deadline)

    def _check_deadline(self) -> None:
        if self._exited is not None or self._deadline is None or time.monotonic() < self._deadline:
            return
        if self._stopping:
            raise SandboxdError(
                "unstoppable", "the workload could not be stopped", hint="the warden removes its container"
            )
        self._stop()

    def _after(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def _stop(self) -> None:
        self._stopping = True
        self._control.stop()
        self._after(limits.STOP_TERM + limits.STOP_LOST)

    # --- client → workload -----------------------------------------------------------------------------------

    def _from_client(self, _: int) -> None:
        try:
            data = self.client.read()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if self._raw:
            self._to_server.send(data)
        else:
            lines = self._client_lines.feed(data) if data else self._client_lines.end()
            self._pass([judge_line(line, "client") for line in lines], "client")
        if not data:
            self._client_finished()

    def _client_finished(self) -> None:
        """In raw mode the end of stdin is a message like any other; an MCP client says goodbye with it."""
        self._client_done = True
        if not self._raw or self.client.stdout.lost:
            self._leave()
        self._half_close()

    def _leave(self) -> None:
        """A client that still listens gets the answers it waits for, within bounds: its input may come from a file."""
        if not self._stopping and self._exited is None:
            waits = self._unanswered and not self.client.stdout.lost
            self._after(limits.STOP_ANSWERS if waits else limits.STOP_EOF)

    def _half_close(self) -> None:
        if self._client_done and not self._half_closed and not self._to_server.pending and not self._held:
            self._half_closed = True
            with contextlib.suppress(OSError):  # it may be gone already
                self._streams.attach.shutdown(socket.SHUT_WR)
            if self._deadline is not None:
                self._leave()

    # --- workload → client -----------------------------------------------------------------------------------

    def _attach_ready(self, events: int) -> None:
        if events & _OUT:
            self._to_server.flush()
            self._half_close()
        if events & ~_OUT:
            self._from_workload()

    def _from_workload(self) -> None:
        try:
            data = self._read_attach()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._attach_done = True
            self._pass([judge_line(line, "server") for line in self._server_lines.end()], "server")
            return
        for stream, piece in self._frames.feed(data):
            if stream != STDOUT:
                self._pass_stderr(piece)
            elif self._raw:
                self.client.stdout.send(piece)
            else:
                self._pass([judge_line(line, "server") for line in self._server_lines.feed(piece)], "server")
        if self.client.stdout.lost:
            self._client_lost()

    def _pass_stderr(self, piece: bytes) -> None:
        self.last_stderr += piece
        if len(self.last_stderr) > 2 * limits.STDERR_RING:
            del self.last_stderr[: -limits.STDERR_RING]
        if self.client.stderr.pending < limits.STREAM_BUFFER:
            self.client.stderr.send(self._for_terminal.feed(piece) if self._for_terminal else piece)

    def _stdout_ready(self, events: int) -> None:
        """POLLERR or POLLHUP: nobody reads any more."""
        out = self.client.stdout
        if events & _OUT and out.flush() and self._exited is not None:
            self._after(limits.DRAIN)
        if events & ~_OUT:
            out.lose()
        if out.lost:
            self._client_lost()

    def _stderr_ready(self, events: int) -> None:
        self.client.stderr.flush()
        if events & ~_OUT:
            self.client.stderr.lose()

    def _client_lost(self) -> None:
        if not self._client_done:
            self._client_finished()
        elif self._deadline is None or self._unanswered:
            self._unanswered = 0
            self._leave()

    # --- both ways -------------------------------------------------------------------------------------------

    def _pass(self, outcomes: list[Outcome], sender: Side) -> None:
        hold = False
        if self._calls is not None and sender == "client":
            hold = self._calls.from_client(outcomes)
        elif self._calls is not None:
            outcomes = self._calls.from_server(outcomes)
        here, there = self.client.stdout, self._to_server
        if sender == "server":
            here, there = there, here
        for outcome in outcomes:
            if outcome.fault is not None:
                self._complain(sender, outcome.fault, outcome.complaint)
            elif outcome.envelope is not None:
                self._follow(sender, outcome.envelope)
            self._answer(here, outcome.to_sender)
            self._answer(there, outcome.to_receiver)
        forward = b"".join([outcome.forward for outcome in outcomes])
        if hold:
            self._held.append(forward)
        else:
            there.send(forward)
        if self._calls is not None:
            self._calls.settle()

    def _gateway_told(self, _: int) -> None:
        """Denials, or that it knows of the calls that wait."""
        assert self._calls is not None
        if self._calls.ready() and self._held:
            held, self._held = b"".join(self._held), []
            self._to_server.send(held)
            self._half_close()

    def _follow(self, sender: Side, envelope: Envelope) -> None:
        """An envelope passes."""
        if self._tap is not None:
            self._tap(sender, envelope)
        for one in envelope.members or (envelope,):
            if sender == "client" and one.kind == "request":
                self._unanswered += 1
            elif sender == "server" and one.kind == "response" and self._unanswered:
                self._unanswered -= 1
                if not self._unanswered and self._client_done:
                    self._leave()

    def _answer(self, outlet: Outlet, reply: bytes) -> None:
        """Someone who provokes answers and never reads them loses them."""
        if outlet.pending <= limits.STREAM_BUFFER + limits.MCP_MESSAGE:
            outlet.send(reply)

    def _complain(self, sender: Side, fault: Fault, text: str) -> None:
        """Said once; a server that logs to stdout would fill stderr with it."""
        self.dropped += 1
        if (sender, fault) not in self._said:
            self._said.add((sender, fault))
            self._say(text)

    def _say(self, text: str) -> None:
        self.client.stderr.send(f"sandboxd: {text}\n".encode())

    def _say_total(self) -> None:
        if self.dropped > len(self._said):
            self._say(f"{self.dropped} lines did not pass in all")

    # --- signals and the end ---------------------------------------------------------------------------------

    def _forward_signals(self, numbers: bytes) -> None:
        """A second signal that asks for the end is an order: TERM, then KILL."""
        for number in numbers:
            self._control.signal(number)
            self._ending_signals += number in _ENDING
        if self._ending_signals > 1 and not self._stopping:
            self._stop()

    def _workload_ended(self, _: int) -> None:
        try:
            received = channel.receive(self._streams.exit, REPLIES)
        except (OSError, SandboxdError):
            received = None
        if received is None or not isinstance(received[0], Exited):
            raise SandboxdError(
                "warden_gone", "the warden died; the workload was killed", hint="start it again; see the system's log"
            )
        self._exited = received[0]
        self._after(limits.DRAIN)


@contextlib.contextmanager
def forwarded_signals() -> Generator[socket.socket, None, None]:
    """While it lasts the signals of FORWARDED do nothing here but arrive as bytes on the socket."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = {number: signal.signal(number, _ignore) for number in FORWARDED}
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The number is read from the wake-up socket."""
