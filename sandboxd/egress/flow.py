"""One captured connection as a state machine: events in, commands out (egress.md 3–6). Pure.

It asks `policy.decide` for every verdict and records each before bytes pass. Connections whose first bytes must be
HTTP go on in `http_flow`, intercepted ones in `intercept_flow`. Not here: sockets, clocks, resolvers. Called by
`egress.gateway.pump`.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from sandboxd import limits
from sandboxd.audit.events import Subject
from sandboxd.egress.commands import (
    ClientData,
    ClientEof,
    ClientLost,
    Close,
    Command,
    Connected,
    ConnectFailed,
    Dial,
    InputEvent,
    Resolve,
    Resolved,
    ResolveFailed,
    Revoked,
    Splice,
    SpliceEnded,
    StartTimer,
    StopTimer,
    TimedOut,
    ToClient,
    ToUpstream,
)
from sandboxd.egress.denials import http_denial
from sandboxd.egress.first_bytes import FirstBytes, Spoken
from sandboxd.egress.http_flow import HttpFlow
from sandboxd.egress.injection import Guard
from sandboxd.egress.intercept_flow import InterceptFlow
from sandboxd.egress.ledger import Ledger
from sandboxd.egress.vault import Vault
from sandboxd.egress.vetting import classes_of, mixed, objected, why_none
from sandboxd.egress.wire.outcome import NeedMore
from sandboxd.egress.wire.tls import ACCESS_DENIED
from sandboxd.policy.decide import decide, judge_address
from sandboxd.policy.interception import Interception, interception
from sandboxd.policy.matching import CompiledEgress
from sandboxd.policy.requests import (
    AddressVerdict,
    ConnectRequest,
    Decision,
    Moment,
    Request,
    SpokenRequest,
    Target,
    TlsRequest,
)
from sandboxd.reasons import Layer, Reason, Verdict

PEEK_TIMER = "peek"
_WHY_ENDED = {"idle": Reason.IDLE, "quota": Reason.QUOTA_BYTES}
_WORDS_TIMER = "words"
# Ports on which a client speaks first, so that a denial can be told in its own words.
_WEB_PORTS = frozenset((80, 443))
_TLS_RECORD = 22


class State(Enum):
    """Where a connection stands."""

    NEW = auto()
    TURNED_AWAY = auto()  # denied and on record; how to say so depends on what the client speaks
    PEEK = auto()  # the first bytes are being read
    HTTP = auto()  # `http_flow` or `intercept_flow` has it, resolving and dialing included
    RESOLVE = auto()
    DIAL = auto()
    SPLICE = auto()
    OVER = auto()


class Flow:
    """A connection to `target`, asked for by `subject`, under `policy`.

    `new_id` makes record ids, `wall` tells the time, `is_host` whether a packed address is this host's own; `tools`
    have calls in flight, `vault` holds the sandbox's secrets. Events after the end are ignored; a denial is the answer
    to everything that isn't expected.
    """

    def __init__(
        self,
        policy: CompiledEgress,
        target: Target,
        subject: Subject,
        new_id: Callable[[], str],
        wall: Callable[[], float],
        is_host: Callable[[bytes], bool],
        tools: frozenset[str] = frozenset(),
        vault: Vault | None = None,
    ) -> None:
        self._policy = policy
        self._target = target
        self._is_host = is_host
        self._tools = tools
        self._vault = vault or Vault()
        self._ledger = Ledger(target, subject, new_id, wall)
        self._state = State.NEW
        self._decision = Decision()
        self._words: FirstBytes | None = None
        self._spoken: TlsRequest | SpokenRequest | None = None
        self._first = bytearray()
        self._detail: dict[str, Any] = {}
        self._http: HttpFlow | InterceptFlow | None = None
        self._treated: Interception | None = None
        self._dialing: tuple[bytes, ...] = ()

    @property
    def over(self) -> bool:
        """Whether the flow has ended."""
        return self._state is State.OVER

    @property
    def _speaks_tls(self) -> bool:
        """Whether an alert is what the workload waits for."""
        return self._decision.proto == "tls" and self._state is not State.NEW

    def start(self) -> list[Command]:
        """The connection was accepted; nothing has been read."""
        self._decision = self._decide(ConnectRequest(self._target))
        if not self._decision.allowed:
            return self._turn_away(self._decision)
        if self._target.address is not None:
            (verdict,) = self._judge((self._target.address,))
            if not verdict.allowed:
                return self._deny(self._refusal(verdict.reason, Layer.CONNECT))
        return self._open_for(self._decision)

    def handle(self, event: InputEvent) -> list[Command]:
        """What follows from `event`."""
        if self._state is State.OVER:
            return []
        if isinstance(event, Revoked):
            return self._revoked(event)
        if isinstance(event, Resolved | ResolveFailed | Connected | ConnectFailed):
            return self._outward(event)
        if self._http is not None:
            return self._from_http(self._http.handle(event))
        return self._inward(event)

    def attend(self, subject: Subject, tools: frozenset[str]) -> None:
        """Other calls are in flight from here on, or another revision holds; what follows is judged and recorded so."""
        self._ledger.subject = subject
        self._tools = tools
        if self._http is not None:
            self._http.tools = tools

    def judge_again(self, policy: CompiledEgress) -> bool:
        """`policy` replaces the one so far: whether it still allows the connection. Where not, `Revoked` comes next."""
        self._policy = policy
        if self._http is not None:
            self._http.policy = policy
        asked: list[Request] = [ConnectRequest(self._target)]
        if self._spoken is not None:
            asked.append(self._spoken)
        for request in asked:
            decision = self._decide(request)
            if not decision.allowed or decision.proto != self._decision.proto:
                return False
            self._decision = decision
        if self._spoken is not None and (self._treatment() is None) != (self._treated is None):
            return False
        return all(verdict.allowed for verdict in self._judge(self._dialing))

    def _treatment(self) -> Interception | None:
        return interception(self._policy, self._target, self._now())

    def _decide(self, request: Request) -> Decision:
        return decide(self._policy, request, self._now())

    def _now(self) -> Moment:
        return Moment(self._ledger.now(), self._tools)

    # --- first bytes ---------------------------------------------------------------------------------------------

    def _turn_away(self, decision: Decision) -> list[Command]:
        """Denied by name or address and port. Nothing is parsed, so only a glance tells what the client speaks."""
        if self._target.port not in _WEB_PORTS or decision.reason.value.startswith("floor_"):
            return self._deny(decision)
        self._state = State.TURNED_AWAY
        return [self._ledger.decision(decision), StartTimer(_WORDS_TIMER, limits.DENIAL_WORDS)]

    def _say_no(self, event: InputEvent) -> list[Command]:
        first = event.data[0] if isinstance(event, ClientData) else 0
        if first == _TLS_RECORD:
            return [ToClient(ACCESS_DENIED), *self._end("denied", self._decision.reason, reset=False)]
        if chr(first).isupper():
            answer = http_denial(self._decision, self._target, self._ledger.id)
            return [ToClient(answer), *self._end("denied", self._decision.reason, reset=False)]
        return self._end("denied", self._decision.reason)

    def _open_for(self, decision: Decision) -> list[Command]:
        if decision.proto == "tcp":
            return self._resolve()
        if decision.proto == "http" and decision.mode == "enforce":
            return self._begin_http(decision)
        if decision.proto in ("tls", "http", "ssh", "postgres", None):
            self._state = State.PEEK
            self._words = FirstBytes(self._target, decision.proto)
            return [StartTimer(PEEK_TIMER, self._words.seconds or self._policy.limits.peek)]
        return self._deny(self._refusal(Reason.INTERNAL, Layer.CONNECT))

    def _begin_http(self, decision: Decision) -> list[Command]:
        self._state = State.HTTP
        guard = Guard(self._vault)
        self._http = HttpFlow(self._policy, self._target, self._ledger, decision, self._resolve, guard, self._tools)
        return self._http.start()

    def _inward(self, event: InputEvent) -> list[Command]:
        """Events of a connection that is not HTTP."""
        if isinstance(event, ClientLost):
            return self._vanished()
        if isinstance(event, SpliceEnded):
            return self._splice_ended(event)
        if self._state is State.TURNED_AWAY:
            return self._say_no(event)
        if self._state is State.PEEK:
            return self._peek(event)
        if isinstance(event, ClientData):  # what came in while the upstream connection is being made
            self._first += event.data
        return []

    def _peek(self, event: InputEvent) -> list[Command]:
        assert self._words is not None
        if isinstance(event, TimedOut) and event.timer == PEEK_TIMER:
            return self._said(self._words.give_up(Reason.PEEK_TIMEOUT))
        if isinstance(event, ClientEof):
            return self._said(self._words.give_up(Reason.MALFORMED))
        if not isinstance(event, ClientData):
            return []
        seen = self._words.feed(event.data)
        reply = self._words.take_reply()
        answer: list[Command] = [ToClient(reply)] if reply else []
        return answer if isinstance(seen, NeedMore) else answer + self._said(seen)

    def _said(self, seen: Spoken) -> list[Command]:
        assert self._words is not None
        first, self._words = self._words.raw, None
        self._spoken, self._detail = seen.request, seen.detail
        self._decision = self._decide(seen.request)
        if not self._decision.allowed:
            return self._deny(self._decision)
        stop: list[Command] = [StopTimer(PEEK_TIMER)]
        refused = self._intercept(seen, first)
        if refused is not None:
            return stop + self._deny(refused)
        if self._decision.proto == "http" and self._spoken == SpokenRequest(self._target, "http"):
            begun = self._begin_http(self._decision)
            return [*stop, *begun, *self.handle(ClientData(first))]
        self._first += first
        return stop + self._resolve()

    def _intercept(self, seen: Spoken, first: bytes) -> Decision | None:
        """Hand it over where the rule says so; a denial where it can't be. A name that is only objected to passes
        unread: there is no certificate that its client would take."""
        self._treated, host = self._treatment(), self._target.host
        if self._treated is None or host is None or seen.detail.get("sni") != [host]:
            return None
        self._http = InterceptFlow(
            *(self._policy, self._target, host, self._ledger, self._decision, seen, first),
            *(self._treated, self._vault, self._refusal, self._tools),
        )
        return self._http.check()

    # --- outward -------------------------------------------------------------------------------------------------

    def _resolve(self) -> list[Command]:
        if self._target.host is None:
            assert self._target.address is not None
            return self._dial((self._target.address,), self._target.port)
        self._state = State.RESOLVE
        pin = self._policy.pin_of(self._target.host)
        if pin is None:
            return [Resolve(self._target.host)]
        self._ledger.pinned = True
        return self._resolved((pin.address,), self._target.port if pin.port is None else pin.port)

    def _outward(self, event: Resolved | ResolveFailed | Connected | ConnectFailed) -> list[Command]:
        if isinstance(event, Resolved):
            return self._resolved(event.addresses, self._target.port)
        if isinstance(event, ResolveFailed):
            return self._unreachable(self._refusal(Reason.DNS_FAIL, Layer.RESOLVE, event.detail))
        if isinstance(event, ConnectFailed):
            return self._unreachable(self._refusal(event.reason, Layer.DIAL, event.detail))
        self._ledger.address = event.address
        if self._http is not None:
            return self._from_http(self._http.connected())
        self._state = State.SPLICE
        first = bytes(self._first)
        self._first.clear()
        self._ledger.bytes_out += len(first)
        forward: list[Command] = [ToUpstream(first)] if first else []
        return [*forward, Splice(self._policy.limits.idle)]

    def _resolved(self, addresses: tuple[bytes, ...], port: int) -> list[Command]:
        if not addresses:
            return self._unreachable(self._refusal(Reason.DNS_FAIL, Layer.RESOLVE, "the name has no address"))
        verdicts = self._judge(addresses)
        vetted = tuple(verdict.address for verdict in verdicts if verdict.allowed)
        dropped = [verdict for verdict in verdicts if not verdict.allowed]
        if not vetted:
            return self._unreachable(self._refusal(why_none(dropped), Layer.RESOLVE, *classes_of(dropped)))
        findings = [*mixed(self._ledger, self._refusal, dropped), *objected(self._ledger, self._decision, verdicts)]
        return findings + self._dial(vetted, port)

    def _dial(self, addresses: tuple[bytes, ...], port: int) -> list[Command]:
        """The verdict is on record before the first packet leaves."""
        self._dialing = addresses
        self._ledger.address, self._ledger.port = addresses[0], port
        dial = Dial(addresses, port, self._policy.limits.connect)
        if self._http is not None:
            return [*self._http.vetted(), dial]
        self._state = State.DIAL
        return [self._ledger.decision(self._decision, **self._detail), dial]

    def _judge(self, addresses: Sequence[bytes]) -> list[AddressVerdict]:
        return [
            judge_address(
                self._policy,
                self._decision,
                self._target,
                address,
                is_host=self._is_host(address),
                now=self._now(),
            )
            for address in addresses
        ]

    # --- ends ----------------------------------------------------------------------------------------------------

    def _refusal(self, reason: Reason, layer: Layer, *facts: str) -> Decision:
        """A denial that no rule made; it keeps the rule under which the connection got so far."""
        text = f"denied: {reason.value}" + (f" ({', '.join(facts)})" if facts else "")
        rule, proto, mode = self._decision.rule, self._decision.proto, self._decision.mode
        return Decision(Verdict.DENY, reason, layer, rule, proto, mode, text)

    def _deny(self, decision: Decision) -> list[Command]:
        """Record and end it the way the workload can understand best."""
        record = self._ledger.decision(decision, **self._detail)
        if self._speaks_tls and decision.reason is not Reason.PROTO_MISMATCH:
            return [record, ToClient(ACCESS_DENIED), *self._end("denied", decision.reason, reset=False)]
        return [record, *self._end("denied", decision.reason)]

    def _unreachable(self, decision: Decision) -> list[Command]:
        """The destination can't or must not be connected to."""
        if self._http is not None:
            return self._from_http(self._http.unreachable(decision))
        if not self._ledger.decided:
            return self._deny(decision)
        return self._end(decision.reason.value, decision.reason)

    def _vanished(self) -> list[Command]:
        unsaid = self._refusal(Reason.MALFORMED, Layer.FIRST_BYTES, "ended before anything could be decided")
        record: list[Command] = [] if self._ledger.decided else [self._ledger.decision(unsaid, **self._detail)]
        return record + self._end("client_lost", None)

    def _splice_ended(self, event: SpliceEnded) -> list[Command]:
        self._ledger.bytes_out += event.bytes_out
        self._ledger.bytes_in += event.bytes_in
        reason = _WHY_ENDED.get(event.how)
        return self._end(event.how if reason is None else reason.value, reason, reset=event.how != "eof")

    def _revoked(self, event: Revoked) -> list[Command]:
        self._ledger.bytes_out += event.bytes_out
        self._ledger.bytes_in += event.bytes_in
        if self._ledger.decided:
            return self._end(event.reason.value, event.reason)
        record = self._ledger.decision(self._refusal(event.reason, Layer.STREAM), **self._detail)
        return [record, *self._end(event.reason.value, event.reason)]

    def _end(self, how: str, reason: Reason | None, *, reset: bool = True) -> list[Command]:
        self._state = State.OVER
        return [self._ledger.close(how, reason), Close(reset=reset)]

    def _from_http(self, commands: list[Command]) -> list[Command]:
        if any(isinstance(command, Close) for command in commands):
            self._state = State.OVER
        return commands
