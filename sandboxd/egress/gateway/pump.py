"""Performs one flow: sockets, timers, lookups and dialing around the pure state machine (`egress.flow`).

Owns the connection's sockets to their end, keeps what may be buffered bounded, and turns a bug into a closed
connection. Not here: any verdict. Called by `sandboxes`.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandboxd import limits
from sandboxd.audit.events import Sink, SinkError, Subject
from sandboxd.egress.commands import (
    ClientData,
    ClientEof,
    ClientLost,
    ClientNotSecured,
    ClientSecured,
    Close,
    Command,
    Connected,
    ConnectFailed,
    Dial,
    EofClient,
    EofUpstream,
    InputEvent,
    Record,
    Resolve,
    Resolved,
    ResolveFailed,
    Revoked,
    SecureClient,
    SecureUpstream,
    Splice,
    SpliceEnded,
    StartTimer,
    StopTimer,
    TimedOut,
    ToClient,
    ToUpstream,
    UpstreamData,
    UpstreamEof,
    UpstreamLost,
    UpstreamNotSecured,
    UpstreamSecured,
)
from sandboxd.egress.flow import Flow
from sandboxd.egress.gateway import splice
from sandboxd.egress.gateway.dialer import DialError, dial
from sandboxd.egress.gateway.end import End, EndCalls
from sandboxd.egress.gateway.resolver import ResolveError, ResolverShare
from sandboxd.egress.gateway.secured import HandshakeCalls, Secured
from sandboxd.egress.quotas import Allowances, Quotas
from sandboxd.policy.matching import CompiledEgress
from sandboxd.reasons import Reason

log = logging.getLogger(__name__)

# After an orderly close what still comes from inside is read and thrown away for so long: a close with unread bytes
# would be a reset, and the reset could overtake the answer.
_LINGER = 2.0


class Certificates(Protocol):
    """Contexts for both sides of an intercepted connection."""

    def for_upstream(self, alpn: tuple[str, ...]) -> ssl.SSLContext: ...
    def for_client(self, host: str, alpn: str) -> ssl.SSLContext: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a pump needs from its gateway."""

    loop: asyncio.AbstractEventLoop
    sink: Sink
    resolver: ResolverShare
    quotas: Quotas
    certificates: Certificates
    ended: Callable[["Pump"], None]


class Pump:
    """One connection from accept to close; `client` is its own from here on."""

    def __init__(self, around: Surroundings, client: socket.socket, flow: Flow) -> None:
        self._around = around
        self._loop = around.loop
        self._flow = flow
        self._client_calls = EndCalls(
            data=lambda data: self._feed(ClientData(data)),
            eof=lambda: self._client_over(ClientEof()),
            lost=lambda: self._client_over(ClientLost()),
            drained=self._drained,
        )
        self._upstream_calls = EndCalls(
            data=lambda data: self._feed(UpstreamData(data)),
            eof=lambda: self._feed(UpstreamEof()),
            lost=lambda: self._feed(UpstreamLost()),
            drained=self._adjust_reading,
        )
        self._client: End | Secured = End(self._loop, client, self._client_calls)
        self._upstream: End | Secured | None = None
        self._shaking = False  # TLS to upstream is being made
        self._splice: splice.Splice | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._over = False

    def start(self) -> None:
        """Begin: the flow decides first, then perhaps reads."""
        self._guarded(self._flow.start)

    def attend(self, subject: Subject, tools: frozenset[str]) -> None:
        """As `Flow.attend`."""
        self._flow.attend(subject, tools)

    def judge_again(self, policy: CompiledEgress, reason: Reason) -> None:
        """The sandbox's policy was replaced, or its time came: what is no longer allowed is reset, for `reason`."""
        try:
            allowed = self._flow.judge_again(policy)
        except Exception:
            log.exception("a connection could not be judged again because of a bug")
            self.revoke(Reason.INTERNAL)
        else:
            if not allowed:
                self.revoke(reason)

    def revoke(self, reason: Reason) -> None:
        """End it now; what was passed is on record."""
        self._feed(Revoked(reason, *self._stop_splice()))
        self._finish(reset=True)

    # --- events to commands --------------------------------------------------------------------------------------

    def _feed(self, event: InputEvent) -> None:
        if not self._closing:
            self._guarded(lambda: self._flow.handle(event))

    def _guarded(self, step: Callable[[], Sequence[Command]]) -> None:
        """A bug must neither pass bytes nor end the process: the connection is reset and the reason recorded."""
        if self._over or self._closing:
            return
        try:
            self._perform_all(step())
        except SinkError:
            self._finish(reset=True)
        except Exception:
            log.exception("a connection was closed because of a bug")
            self._give_up()
        self._adjust_reading()

    def _give_up(self) -> None:
        try:
            for command in self._flow.handle(Revoked(Reason.INTERNAL, *self._stop_splice())):
                if isinstance(command, Record):
                    self._around.sink.emit(command.event)
        except Exception:
            log.exception("the end of that connection could not be recorded")
        self._finish(reset=True)

    def _perform_all(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if self._over:
                return
            self._perform(command)

    def _perform(self, command: Command) -> None:
        match command:
            case Record(event):
                self._around.sink.emit(event)
            case ToClient(data):
                if self._upstream is None or self._take(self._around.quotas.bytes_in, len(data)):
                    self._client.send(data)
            case ToUpstream(data):
                if self._take(self._around.quotas.bytes_out, len(data)):
                    self._outside.send(data)
            case EofClient():
                self._client.finish()
            case EofUpstream():
                self._outside.finish()
            case Resolve(host):
                self._begin(self._resolve(host))
            case Dial(addresses, port, seconds):
                self._begin(self._dial(addresses, port, seconds))
            case Splice(idle):
                self._begin_splice(idle)
            case SecureUpstream(host, alpn):
                self._secure_upstream(host, alpn)
            case SecureClient(host, alpn, first):
                self._secure_client(host, alpn, first)
            case StartTimer(timer, seconds):
                self._stop_timer(timer)
                self._timers[timer] = self._loop.call_later(seconds, self._timed_out, timer)
            case StopTimer(timer):
                self._stop_timer(timer)
            case Close(reset):
                self._close(reset=reset)

    def _take(self, allowances: Allowances, count: int) -> bool:
        """Whether so many bytes may pass, which are counted; else the connection ends."""
        now = self._loop.time()
        if allowances.bounded and allowances.left(now) < count:
            self.revoke(Reason.QUOTA_BYTES)
            return False
        allowances.take(count, now)
        return True

    # --- outward -------------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._task = self._loop.create_task(self._guarded_work(work))

    async def _guarded_work(self, work: Coroutine[None, None, None]) -> None:
        """As `_guarded`, for what takes time: a lookup that breaks must not leave the client waiting."""
        try:
            await work
        except Exception:
            log.exception("a connection was closed because of a bug")
            self._task = None
            self._give_up()

    async def _resolve(self, host: str) -> None:
        try:
            answer: InputEvent = Resolved(await self._around.resolver.resolve(host))
        except ResolveError as error:
            answer = ResolveFailed(str(error))
        self._task = None
        self._feed(answer)

    async def _dial(self, addresses: tuple[bytes, ...], port: int, seconds: float) -> None:
        try:
            sock, address = await dial(addresses, port, seconds=seconds)
        except DialError as error:
            self._task = None
            self._feed(ConnectFailed(error.reason, error.detail))
            return
        self._task = None
        if self._over or self._closing:
            sock.close()
            return
        self._upstream = End(self._loop, sock, self._upstream_calls)
        self._feed(Connected(address))

    @property
    def _outside(self) -> End | Secured:
        assert self._upstream is not None, "a flow sends outside only after Connected"
        return self._upstream

    # --- TLS that is intercepted ---------------------------------------------------------------------------------

    def _secure_upstream(self, host: str, alpn: tuple[str, ...]) -> None:
        assert isinstance(self._upstream, End)
        context = self._around.certificates.for_upstream(alpn)
        told = HandshakeCalls(self._upstream_secured, self._upstream_failed)
        self._shaking = True
        self._upstream = Secured(self._upstream, context, self._upstream_calls, told, host)
        self._upstream.begin()

    def _upstream_secured(self, alpn: str) -> None:
        self._shaking = False
        self._feed(UpstreamSecured(alpn))

    def _upstream_failed(self, detail: str) -> None:
        self._shaking = False
        if self._upstream is not None:
            self._upstream.close(reset=False)
            self._upstream = None
        self._feed(UpstreamNotSecured(detail))

    def _secure_client(self, host: str, alpn: str, first: bytes) -> None:
        assert isinstance(self._client, End)
        context = self._around.certificates.for_client(host, alpn)
        self._shaking = False  # the flow waits for upstream no longer
        told = HandshakeCalls(lambda _: self._feed(ClientSecured()), lambda why: self._feed(ClientNotSecured(why)))
        self._client = Secured(self._client, context, self._client_calls, told)
        self._client.begin(first)

    # --- splice --------------------------------------------------------------------------------------------------

    def _begin_splice(self, idle: float) -> None:
        assert isinstance(self._client, End)
        assert isinstance(self._upstream, End)
        client_ended = self._client.eof
        client, to_client = self._client.release()
        upstream, to_upstream = self._upstream.release()
        self._splice = splice.Splice(
            self._loop,
            client,
            upstream,
            idle,
            self._splice_ended,
            out=self._around.quotas.bytes_out,
            back=self._around.quotas.bytes_in,
            to_client=to_client,
            to_upstream=to_upstream,
            client_ended=client_ended,
        )
        self._splice.start()

    def _splice_ended(self, how: splice.How) -> None:
        out, back = self._stop_splice()
        self._feed(SpliceEnded(out, back, how))

    def _stop_splice(self) -> tuple[int, int]:
        """Bytes out and in until now; none where there is no splice."""
        if self._splice is None:
            return 0, 0
        passed, self._splice = self._splice, None
        passed.stop()
        return passed.bytes_out, passed.bytes_in

    # --- bounds --------------------------------------------------------------------------------------------------

    def _adjust_reading(self) -> None:
        """An end is read only while the flow can take it: not during lookups, dialing and TLS to upstream (the flow
        would have to hold it), nor while the other end is behind."""
        if self._over or self._closing or self._splice is not None:
            return
        behind = self._upstream.queued if self._upstream is not None else 0
        ahead = self._client.queued
        # What an end has said makes answers to it too (in HTTP/2): one that reads none is heard no more.
        self._client.read(
            self._task is None and not self._shaking and behind < limits.PUMP_BUFFER and ahead < 2 * limits.PUMP_BUFFER
        )
        if self._upstream is not None:
            self._upstream.read(ahead < limits.PUMP_BUFFER and behind < 2 * limits.PUMP_BUFFER)

    def _timed_out(self, timer: str) -> None:
        self._timers.pop(timer, None)
        self._feed(TimedOut(timer))

    def _stop_timer(self, timer: str) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    # --- the end -------------------------------------------------------------------------------------------------

    def _close(self, *, reset: bool) -> None:
        if reset or self._client.released:
            self._finish(reset=reset)
            return
        self._closing = True
        self._stop_all()
        self._client.finish()
        self._client.read(True)
        if self._client.eof and not self._client.queued:
            self._finish(reset=False)
        else:
            self._linger(limits.IDLE if self._client.queued else _LINGER)

    def _linger(self, seconds: float) -> None:
        self._stop_timer("linger")
        self._timers["linger"] = self._loop.call_later(seconds, self._finish)

    def _drained(self) -> None:
        if not self._closing:
            self._adjust_reading()
        elif self._client.eof:
            self._finish()
        else:
            self._linger(_LINGER)

    def _client_over(self, event: InputEvent) -> None:
        """The client ended or broke; while lingering that is what was waited for."""
        if self._closing and not self._client.queued:
            self._finish()
        else:
            self._feed(event)

    def _stop_all(self) -> None:
        for timer in tuple(self._timers):
            self._stop_timer(timer)
        if self._task is not None:
            self._task.cancel()
        if self._upstream is not None:
            self._upstream.close(reset=False)

    def _finish(self, *, reset: bool = False) -> None:
        """Everything is closed; idempotent."""
        if self._over:
            return
        self._over = True
        self._stop_splice()
        if reset and self._upstream is not None:
            self._upstream.close(reset=True)
        self._stop_all()
        self._client.close(reset=reset)
        self._around.ended(self)
