"""An HTTP/1.1 connection, plain or inside intercepted TLS: every request decided, heads written anew, one exchange at a
time (egress.md 4). Pure.

One client connection has one upstream connection, since every request of it names the same host and port. Not here:
the grammar (`wire.http*`), how the destination is resolved and vetted (`flow` and `intercept_flow`, the callers).
"""

import hashlib
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from sandboxd.egress.commands import (
    ClientData,
    ClientEof,
    ClientLost,
    Close,
    Command,
    InputEvent,
    StartTimer,
    StopTimer,
    TimedOut,
    ToClient,
    ToUpstream,
    UpstreamData,
    UpstreamEof,
    UpstreamLost,
)
from sandboxd.egress.denials import http_denial
from sandboxd.egress.injection import Admitted, Guard
from sandboxd.egress.ledger import Ledger, address_text
from sandboxd.egress.wire.http import (
    Body,
    ClientSide,
    EndOfRequest,
    EndOfResponse,
    RequestEvent,
    RequestHead,
    ResponseEvent,
    ResponseHead,
    UpstreamSide,
)
from sandboxd.egress.wire.outcome import Refusal
from sandboxd.policy.decide import decide
from sandboxd.policy.matching import CompiledEgress
from sandboxd.policy.requests import Decision, HttpRequest, Moment, Target
from sandboxd.reasons import Layer, Reason, Verdict

HEAD_TIMER = "head"
IDLE_TIMER = "idle"
# Ports that a Host leaves out (RFC 9110 4.2).
_PORTS = {b"http": 80, b"https": 443}
# The destination can't be reached, as opposed to: it must not be.
_BROKEN = frozenset((Reason.DNS_FAIL, Reason.UPSTREAM_TLS, Reason.UPSTREAM_REFUSED, Reason.CONNECT_FAILED))


class HttpFlow:
    """The exchanges of one connection that `decision` allowed. `reach` resolves, vets and dials: asked once, at the
    first request that is allowed; `vetted`, then `connected`, or `unreachable` follow. `scheme`: what the client
    speaks, `https` inside intercepted TLS."""

    def __init__(
        self,
        policy: CompiledEgress,
        target: Target,
        ledger: Ledger,
        decision: Decision,
        reach: Callable[[], list[Command]],
        guard: Guard,
        tools: frozenset[str] = frozenset(),
        scheme: bytes = b"http",
    ) -> None:
        self.policy = policy
        self.tools = tools
        self._guard = guard
        self._target = target
        self._ledger = ledger
        self._decision = decision
        self._reach = reach
        self._authority = _authority(target, _PORTS[scheme])
        self._client = ClientSide(scheme)
        self._upstream = UpstreamSide()
        self._connected = False
        self._exchanges = 0
        self._reading_head = True  # its timer runs
        # of the exchange under way; no head: none is
        self._head: RequestHead | None = None
        self._request = ""  # its record's id
        self._recorded = False  # as allowed
        self._secrets: tuple[str, ...] = ()  # names of those put into it
        self._scan = guard.scan()
        self._answered = False  # a response's head was sent to the client
        self._closing = False  # the connection ends with this response

    def start(self) -> list[Command]:
        """Name and port are allowed: that is on record; what is asked for comes next."""
        record: list[Command] = [] if self._ledger.decided else [self._ledger.decision(self._decision)]
        return [*record, StartTimer(HEAD_TIMER, self.policy.limits.peek)]

    def handle(self, event: InputEvent) -> list[Command]:
        """Bytes, ends, timers."""
        match event:
            case ClientData(data):
                return self._awake(self._from_client(self._client.feed(data)))
            case UpstreamData(data):
                return self._awake(self._from_upstream(self._upstream.feed(data)))
            case ClientEof():
                commands = self._from_client(self._client.eof())
                return commands if commands or self._head else self._end("eof", None)
            case UpstreamEof():
                return self._from_upstream(self._upstream.eof()) or self._upstream_gone("eof")
            case ClientLost():
                return self._end("client_lost", None, reset=True)
            case UpstreamLost():
                return self._upstream_gone("upstream_lost")
            case TimedOut(timer):
                return self._timed_out(timer)
            case _:
                return self._end("internal", Reason.INTERNAL, reset=True)

    # --- the client's side ---------------------------------------------------------------------------------------

    def _from_client(self, events: Sequence[RequestEvent]) -> list[Command]:
        commands: list[Command] = []
        for event in events:
            match event:
                case RequestHead():
                    commands += self._asked(event)
                case Body(data):
                    commands += self._body(data)
                case EndOfRequest():
                    commands.append(self._outward(self._upstream.end()))
                case Refusal():
                    commands += self._malformed(event)
            if _ends(commands):
                break
        return commands

    def _asked(self, head: RequestHead) -> list[Command]:
        self._head, self._request = head, self._ledger.new_id()
        self._answered = self._recorded = False
        self._secrets = ()
        self._closing = not head.keep_alive
        request = HttpRequest(self._target, head.method, head.authority, head.path, head.upgrade)
        decision = decide(self.policy, request, Moment(self._ledger.now(), self.tools))
        timer: list[Command] = [StopTimer(HEAD_TIMER)] if self._reading_head else []
        self._reading_head = False
        if not decision.allowed:
            return timer + self._refuse(decision, HTTPStatus.FORBIDDEN)
        self._decision = decision
        admitted = self._guard.admit(head)
        if not isinstance(admitted, Admitted):
            refusal = self._denial(admitted.reason, Layer.REQUEST, admitted.detail)
            return timer + self._refuse(refusal, HTTPStatus.FORBIDDEN)
        self._head, self._secrets, self._scan = admitted.head, admitted.secrets, self._guard.scan()
        if self._connected:
            return [*timer, *self.vetted(), *self._forward()]
        return timer + self._reach()

    def _body(self, data: bytes) -> list[Command]:
        if not self._scan.found(data):
            return [self._outward(self._upstream.body(data))]
        # Its head passed as allowed and is on record as that; this is what became of it.
        self._request = self._ledger.new_id()
        decision = self._denial(Reason.PLACEHOLDER, Layer.STREAM, "a secret's placeholder in the body")
        if self._answered:
            record = self._ledger.request(self._request, decision, **self._described())
            return [record, *self._end("denied", decision.reason, reset=True)]
        return self._refuse(decision, HTTPStatus.FORBIDDEN)

    def _malformed(self, refusal: Refusal) -> list[Command]:
        """What is no request, or could be read as two."""
        if self._head is not None:  # within its body, or behind it: the exchange itself is broken
            return self._end("denied", refusal.reason, reset=True)
        self._request = self._ledger.new_id()
        decision = self._denial(refusal.reason, Layer.REQUEST, refusal.detail)
        if refusal.reason is Reason.PROTO_MISMATCH:
            record = self._ledger.request(self._request, decision)
            return [record, *self._end("denied", refusal.reason, reset=True)]
        return self._refuse(decision, HTTPStatus.BAD_REQUEST)

    def _forward(self) -> list[Command]:
        assert self._head is not None
        self._exchanges += 1
        # An authority that is only objected to reaches upstream as it was asked for.
        other = self._decision.reason is Reason.HOST_MISMATCH
        authority = self._head.authority if other else self._authority
        head = self._outward(self._upstream.request(self._head, authority))
        return [head, *self._from_client(self._client.proceed())]

    def _outward(self, data: bytes) -> Command:
        self._ledger.bytes_out += len(data)
        return ToUpstream(data)

    # --- the destination -----------------------------------------------------------------------------------------

    def vetted(self) -> list[Command]:
        """The request may pass: on record before it does."""
        self._recorded = True
        return [self._ledger.request(self._request, self._decision, **self._described())]

    def connected(self) -> list[Command]:
        """The upstream connection stands."""
        self._connected = True
        return self._forward()

    def unreachable(self, decision: Decision) -> list[Command]:
        """The destination is forbidden after all (403), or can't be connected to (502)."""
        if self._recorded:
            return self._bad_gateway(decision)
        broken = decision.reason in _BROKEN
        return self._refuse(decision, HTTPStatus.BAD_GATEWAY if broken else HTTPStatus.FORBIDDEN)

    # --- upstream's side -----------------------------------------------------------------------------------------

    def _from_upstream(self, events: Sequence[ResponseEvent]) -> list[Command]:
        commands: list[Command] = []
        for event in events:
            match event:
                case ResponseHead():
                    commands.append(self._inward(self._respond(event)))
                case Body(data):
                    commands.append(self._inward(self._client.body(data)))
                case EndOfResponse():
                    commands += self._complete()
                case _:  # a refusal; or a switch of protocols, which is never allowed
                    commands += self._upstream_gone("upstream_malformed")
            if _ends(commands):
                break
        return commands

    def _respond(self, head: ResponseHead) -> bytes:
        if head.interim:
            return self._client.respond(head)
        self._answered = True
        self._closing = self._closing or not head.keep_alive
        self._ledger.count_status(head.status)
        return self._client.respond(head, close=self._closing)

    def _complete(self) -> list[Command]:
        commands = [self._inward(self._client.end())]
        if self._closing or not (self._client.reusable and self._upstream.reusable):
            return commands + self._end("eof", None)
        self._head = None
        return commands + self._from_client(self._client.next_request())

    def _inward(self, data: bytes) -> Command:
        self._ledger.bytes_in += len(data)
        return ToClient(data)

    def _upstream_gone(self, how: str) -> list[Command]:
        """Upstream ended, broke or makes no sense."""
        if self._head is None:
            return self._end(how, None)
        if self._answered or self._exchanges > 1:
            # Half a response can't be taken back. And a kept connection may end just as it is used again: clients
            # try again by themselves after a reset, not after an answer.
            return self._end(how, Reason.CONNECT_FAILED, reset=True)
        return self._bad_gateway(self._denial(Reason.CONNECT_FAILED, Layer.STREAM, "no whole response"))

    # --- ends ----------------------------------------------------------------------------------------------------

    def _awake(self, commands: list[Command]) -> list[Command]:
        """Something came: a head must be complete in time from its first byte on, all else only must not be silent."""
        if _ends(commands) or (self._head is None and self._reading_head):
            return commands
        if self._head is None and self._client.held:
            self._reading_head = True
            return [*commands, StopTimer(IDLE_TIMER), StartTimer(HEAD_TIMER, self.policy.limits.peek)]
        return [*commands, StartTimer(IDLE_TIMER, self.policy.limits.idle)]

    def _timed_out(self, timer: str) -> list[Command]:
        if timer == HEAD_TIMER and self._client.held:
            self._request = self._ledger.new_id()
            decision = self._denial(Reason.PEEK_TIMEOUT, Layer.REQUEST, "the request's head is not complete")
            return self._refuse(decision, HTTPStatus.REQUEST_TIMEOUT)
        reason = Reason.PEEK_TIMEOUT if timer == HEAD_TIMER else Reason.IDLE
        return self._end(reason.value, reason, reset=self._head is not None)

    def _refuse(self, decision: Decision, status: HTTPStatus) -> list[Command]:
        """Answer the request ourselves, on record."""
        record = self._ledger.request(self._request, decision, status=status.value, **self._described())
        return [record, *self._answer(decision, status)]

    def _bad_gateway(self, decision: Decision) -> list[Command]:
        return self._answer(decision, HTTPStatus.BAD_GATEWAY)

    def _answer(self, decision: Decision, status: HTTPStatus) -> list[Command]:
        self._ledger.count_status(status.value)
        answer = ToClient(http_denial(decision, self._target, self._request, status))
        denied = status is not HTTPStatus.BAD_GATEWAY
        return [answer, *self._end("denied" if denied else decision.reason.value, decision.reason)]

    def _denial(self, reason: Reason, layer: Layer, detail: str) -> Decision:
        rule, proto, mode = self._decision.rule, self._decision.proto, self._decision.mode
        return Decision(Verdict.DENY, reason, layer, rule, proto, mode, f"denied: {reason.value} ({detail})")

    def _described(self) -> dict[str, Any]:
        """What a record says of the request: never its whole query."""
        if self._head is None:
            return {}
        described: dict[str, Any] = {"method": self._head.method, "path": self._head.path}
        if self._head.query is not None:
            described["query_hash"] = hashlib.sha256(self._head.query).hexdigest()[:16]
        if self._secrets:
            described["secrets"] = list(self._secrets)
        return described

    def _end(self, how: str, reason: Reason | None, *, reset: bool = False) -> list[Command]:
        return [self._ledger.close(how, reason), Close(reset=reset)]


def _ends(commands: Sequence[Command]) -> bool:
    return any(isinstance(command, Close) for command in commands)


def _authority(target: Target, default_port: int) -> bytes:
    """Host as upstream gets it (RFC 9110 7.2)."""
    host = target.host or address_text(target.address) or ""
    bracketed = f"[{host}]" if ":" in host else host
    return (bracketed if target.port == default_port else f"{bracketed}:{target.port}").encode("ascii")
