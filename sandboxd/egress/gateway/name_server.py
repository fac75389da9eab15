"""The only name server of a sandbox: answers from the policy and its synthetic addresses, forwards nothing.

Owns the answer to each query and its record (egress.md 2). Not here: the message format (`wire.dns`), whether a name
may be known (`policy.decide`), the sockets (`dns`). Called by `dns`; `sandboxes` says whom it serves.
"""

import time
from collections.abc import Callable

from sandboxd import ids, limits
from sandboxd.audit.events import Destination, Event, Sink, SinkError, Subject
from sandboxd.clock import Clock
from sandboxd.egress.denials import explain
from sandboxd.egress.gateway.names import NamesExhaustedError, SyntheticNames
from sandboxd.egress.quotas import Quotas
from sandboxd.egress.wire.dns import BadQuery, ExtendedError, Query, Rcode, Type, build_reply, parse_query
from sandboxd.policy.decide import decide
from sandboxd.policy.hosts import InvalidHostError, audit_name, canonical_host
from sandboxd.policy.matching import CompiledEgress
from sandboxd.policy.requests import Decision, DnsRequest, Host, Moment
from sandboxd.reasons import Layer, Reason, Verdict

# Seconds a workload may remember an answer: short, since a restarted gateway knows a name only once it is asked again.
TTL = 30


class NameServer:
    """Answers one sandbox's queries. Until `serve` and after `stop` there is no answer at all."""

    def __init__(
        self,
        names: SyntheticNames,
        quotas: Quotas,
        sink: Sink,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = names
        self._quotas = quotas
        self._monotonic = monotonic
        self._sink = sink
        self._clock = clock
        self._rate = QueryRate(monotonic)
        self._serving: tuple[Subject, CompiledEgress] | None = None
        self._tools: frozenset[str] = frozenset()

    def serve(self, subject: Subject, policy: CompiledEgress, tools: frozenset[str] = frozenset()) -> None:
        """From now on answer for `subject` under `policy`, calls of these tools being in flight."""
        self._serving = (subject, policy)
        self._tools = tools

    def stop(self) -> None:
        """No more answers."""
        self._serving = None

    def answer(self, message: bytes, limit: int | None = None) -> bytes:
        """The reply to one message, at most `limit` bytes (`wire.dns.build_reply`); empty: none."""
        if self._serving is None or not self._rate.take():
            return b""
        query = parse_query(message)
        try:
            if isinstance(query, BadQuery):
                self._record(Decision(reason=query.reason, layer=Layer.DNS), None, {"detail": query.detail})
                return query.reply
            return self._answer(query, *self._serving, limit)
        except SinkError:
            return build_reply(query, Rcode.SERVFAIL, limit=limit) if isinstance(query, Query) else b""

    def _answer(self, query: Query, subject: Subject, policy: CompiledEgress, limit: int | None) -> bytes:
        decision, host = _judge(query.name, policy, Moment(self._clock.wall(), self._tools))
        addresses: list[bytes] = []
        if host is not None and decision.allowed:
            if query.qtype == Type.A:
                decision, addresses = self._place(host, decision, policy)
            elif query.qtype != Type.AAAA:
                decision = _refusal(Reason.DNS_QTYPE, decision)
        rcode = _rcode(decision)
        name = str(host) if host is not None else audit_name(query.name)
        self._record(decision, name, {"qtype": _type_name(query.qtype), "rcode": rcode.name})
        error = ExtendedError(explain(decision)) if rcode is Rcode.REFUSED else None
        return build_reply(query, rcode, addresses=addresses, ttl=self._ttl(policy), error=error, limit=limit)

    def _ttl(self, policy: CompiledEgress) -> int:
        """Where names come and go with calls, a remembered answer would outlive them by more than a moment."""
        return 1 if policy.by_tool else TTL

    def _place(self, host: Host, decision: Decision, policy: CompiledEgress) -> tuple[Decision, list[bytes]]:
        if not policy.names_exactly(host) and not self._quotas.know(host, self._monotonic()):
            return _refusal(Reason.QUOTA_NAMES, decision), []
        try:
            return decision, [self._names.address_of(host)]
        except NamesExhaustedError:
            return _refusal(Reason.QUOTA_NAMES, decision), []

    def _record(self, decision: Decision, name: str | None, detail: dict[str, str]) -> None:
        assert self._serving is not None
        event = Event(
            id=ids.ulid(),
            ts=self._clock.wall(),
            event="dns",
            subject=self._serving[0],
            destination=Destination(host=name),
            verdict=decision.verdict,
            rule=decision.rule,
            layer=Layer.DNS,
            reason=decision.reason,
            mode=decision.mode,
            detail=detail if name is None else {"qname": name, **detail},
        )
        self._sink.emit(event)


class QueryRate:
    """At most `limits.NEW_FLOWS_PER_SECOND` queries a second, twice that in a burst: the seal's own bound, again."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._most = 2.0 * limits.NEW_FLOWS_PER_SECOND
        self._left = self._most
        self._at = monotonic()

    def take(self) -> bool:
        """Whether one more may be answered."""
        now = self._monotonic()
        self._left = min(self._most, self._left + (now - self._at) * limits.NEW_FLOWS_PER_SECOND)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _judge(name: bytes, policy: CompiledEgress, now: Moment) -> tuple[Decision, Host | None]:
    try:
        host = canonical_host(name)
    except InvalidHostError as error:
        return Decision(reason=Reason.INVALID_HOST, layer=Layer.DNS, text=f"not a host name: {error}"), None
    return decide(policy, DnsRequest(host), now), host


def _refusal(reason: Reason, decision: Decision) -> Decision:
    return Decision(Verdict.DENY, reason, Layer.DNS, decision.rule, decision.proto, decision.mode)


def _rcode(decision: Decision) -> Rcode:
    """A known name has no data of other types; everything else is refused."""
    known = decision.allowed or decision.reason is Reason.DNS_QTYPE
    return Rcode.NOERROR if known else Rcode.REFUSED


def _type_name(qtype: int) -> str:
    try:
        return Type(qtype).name
    except ValueError:
        return f"TYPE{qtype}"  # RFC 3597 5
