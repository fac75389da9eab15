"""A TLS connection that the gateway reads: TLS to upstream, TLS with inside, then HTTP between
them (egress.md 4). Pure.

Upstream comes first, since what it speaks is what inside may choose. Where it can't be reached or its certificate is
not good, inside is told so in HTTP. Not here: certificates and handshakes (the pump performs them), requests
(`http_flow`). Called by `flow` once name, port and ClientHello are allowed.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from sandboxd.egress.commands import (
    ClientLost,
    ClientNotSecured,
    ClientSecured,
    Close,
    Command,
    InputEvent,
    SecureClient,
    SecureUpstream,
    StartTimer,
    StopTimer,
    TimedOut,
    ToClient,
    UpstreamData,
    UpstreamEof,
    UpstreamLost,
    UpstreamNotSecured,
    UpstreamSecured,
)
from sandboxd.egress.first_bytes import Spoken
from sandboxd.egress.http_flow import HttpFlow
from sandboxd.egress.injection import Guard
from sandboxd.egress.ledger import Ledger
from sandboxd.egress.vault import Vault
from sandboxd.egress.wire.tls import ACCESS_DENIED
from sandboxd.policy.interception import Interception, interception
from sandboxd.policy.matching import CompiledEgress
from sandboxd.policy.requests import Decision, Host, Moment, Target
from sandboxd.reasons import Layer, Reason

if TYPE_CHECKING:
    from sandboxd.egress.h2_flow import H2Flow

TLS_TIMER = "tls"
HTTP1, HTTP2 = "http/1.1", "h2"
# What the gateway can speak, the best first.
SPOKEN = (HTTP2, HTTP1)


class _State(Enum):
    REACH = auto()  # resolving and dialing, by the caller
    UPSTREAM = auto()  # TLS to upstream is being made
    CLIENT = auto()  # TLS with inside is being made
    HTTP = auto()


class InterceptFlow:
    """A connection to `host` under `decision`, whose client `said` a ClientHello, `first` being its bytes so far.
    `refusal` makes a denial of that rule's."""

    def __init__(
        self,
        policy: CompiledEgress,
        target: Target,
        host: Host,
        ledger: Ledger,
        decision: Decision,
        said: Spoken,
        first: bytes,
        treatment: Interception,
        vault: Vault,
        refusal: Callable[..., Decision],
        tools: frozenset[str],
    ) -> None:
        self._policy = policy
        self._target = target
        self._host = host
        self._ledger = ledger
        self._decision = decision
        self._said = said
        self._first = first
        self._detail = said.detail
        self._guard = Guard(vault, treatment.credentials)
        self._refusal = refusal
        self._tools = tools
        self._state = _State.REACH
        self._offers = _offers(said.alpn)
        self._alpn = ""  # what inside gets; empty: it did not ask
        self._broken: Decision | None = None  # why upstream can't be spoken to
        self._early: list[InputEvent] = []  # of upstream, while inside is not ready
        self._http: HttpFlow | H2Flow | None = None

    @property
    def policy(self) -> CompiledEgress:
        """The policy that requests are judged by."""
        return self._policy

    @policy.setter
    def policy(self, policy: CompiledEgress) -> None:
        self._policy = policy
        treatment = interception(policy, self._target, Moment(self._ledger.now(), self._tools))
        self._guard.credentials = treatment.credentials if treatment else ()
        if self._http is not None:
            self._http.policy = policy

    @property
    def tools(self) -> frozenset[str]:
        """Whose calls are in flight."""
        return self._tools

    @tools.setter
    def tools(self, tools: frozenset[str]) -> None:
        self._tools = tools
        if self._http is not None:
            self._http.tools = tools

    # --- the destination, told by the caller ---------------------------------------------------------------------

    def check(self) -> Decision | None:
        """Why this hello can't be intercepted, if it can't."""
        if self._offers:
            return None
        return self._refusal(Reason.PROTO_MISMATCH, Layer.FIRST_BYTES, "what is intercepted must be HTTP, by ALPN")

    def vetted(self) -> list[Command]:
        """The connection may be made: on record before it is."""
        return [self._ledger.decision(self._decision, **self._detail)]

    def connected(self) -> list[Command]:
        """The upstream connection stands."""
        self._state = _State.UPSTREAM
        return [StartTimer(TLS_TIMER, self._policy.limits.connect), SecureUpstream(self._host, self._offers)]

    def unreachable(self, decision: Decision) -> list[Command]:
        """The destination is forbidden after all, or can't be connected to."""
        if self._ledger.decided:
            return self._break(decision)
        record = self._ledger.decision(decision, **self._detail)
        return [record, ToClient(ACCESS_DENIED), *self._end("denied", decision.reason)]

    # --- events --------------------------------------------------------------------------------------------------

    def handle(self, event: InputEvent) -> list[Command]:
        """Handshakes, timers; then everything is HTTP's."""
        if self._broken is not None and isinstance(event, UpstreamData | UpstreamEof | UpstreamLost):
            return []
        if self._http is not None:
            return self._http.handle(event)
        match event:
            case ClientLost():
                return self._vanished()
            case UpstreamSecured(alpn) if self._state is _State.UPSTREAM:
                return self._upstream_secured(alpn)
            case UpstreamNotSecured(detail) if self._state is _State.UPSTREAM:
                return self._break(self._refusal(Reason.UPSTREAM_TLS, Layer.FIRST_BYTES, detail))
            case UpstreamData() | UpstreamEof() | UpstreamLost():
                return self._from_upstream(event)
            case ClientSecured():
                return self._client_secured()
            case ClientNotSecured(detail):
                return [StopTimer(TLS_TIMER), *self._end(f"client_tls: {detail}", None, reset=False)]
            case TimedOut(timer) if timer == TLS_TIMER:
                return self._too_slow()
            case _:
                return []

    def _upstream_secured(self, alpn: str) -> list[Command]:
        spoken = alpn or HTTP1
        if spoken not in self._offers:
            detail = "upstream speaks no protocol that the client does"
            return self._break(self._refusal(Reason.UPSTREAM_TLS, Layer.FIRST_BYTES, detail))
        return self._secure_client(spoken)

    def _break(self, why: Decision) -> list[Command]:
        """Inside is told in its own words, once it can be spoken to."""
        self._broken = why
        return self._secure_client(self._offers[-1])

    def _secure_client(self, spoken: str) -> list[Command]:
        self._state = _State.CLIENT
        self._alpn = spoken if self._said.alpn else ""
        secure = SecureClient(self._host, self._alpn, self._first)
        return [StartTimer(TLS_TIMER, self._policy.limits.peek), secure]

    def _client_secured(self) -> list[Command]:
        self._state = _State.HTTP
        self._http = self._speak_http2() if self._alpn == HTTP2 else self._speak_http1()
        commands: list[Command] = [StopTimer(TLS_TIMER), *self._http.start()]
        for event in self._early:
            if any(isinstance(command, Close) for command in commands):
                break
            commands += self._http.handle(event)
        self._early.clear()
        return commands

    def _speak_http2(self) -> "H2Flow":
        from sandboxd.egress.h2_flow import H2Flow  # late: h2 takes as long to import as all of this

        return H2Flow(
            *(self._policy, self._target, self._host, self._ledger, self._decision, self._guard),
            *(self._tools, self._broken),
        )

    def _speak_http1(self) -> HttpFlow:
        def reach() -> list[Command]:
            if self._broken is not None:
                return flow.unreachable(self._broken)
            return [*flow.vetted(), *flow.connected()]

        flow = HttpFlow(
            *(self._policy, self._target, self._ledger, self._decision, reach, self._guard, self._tools, b"https")
        )
        return flow

    def _from_upstream(self, event: InputEvent) -> list[Command]:
        if self._state is _State.UPSTREAM:
            return self._break(self._refusal(Reason.UPSTREAM_TLS, Layer.FIRST_BYTES, "ended within the handshake"))
        self._early.append(event)
        return []

    # --- ends ----------------------------------------------------------------------------------------------------

    def _too_slow(self) -> list[Command]:
        if self._state is _State.UPSTREAM:
            return self._break(self._refusal(Reason.UPSTREAM_TLS, Layer.FIRST_BYTES, "no answer to the handshake"))
        return self._end(Reason.PEEK_TIMEOUT.value, Reason.PEEK_TIMEOUT)

    def _vanished(self) -> list[Command]:
        unsaid = self._refusal(Reason.MALFORMED, Layer.FIRST_BYTES, "ended before anything could be decided")
        record: list[Command] = [] if self._ledger.decided else [self._ledger.decision(unsaid, **self._detail)]
        return record + self._end("client_lost", None, reset=True)

    def _end(self, how: str, reason: Reason | None, *, reset: bool = False) -> list[Command]:
        return [self._ledger.close(how, reason), Close(reset=reset)]


def _offers(alpn: Sequence[bytes]) -> tuple[str, ...]:
    """What both the client and the gateway speak, the best first; without ALPN it is HTTP/1.1 (RFC 9112)."""
    asked = [name.decode("latin-1") for name in alpn] or [HTTP1]
    return tuple(name for name in SPOKEN if name in asked)
