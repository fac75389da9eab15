"""The event model of egress.md 7: frozen records and the sink they go to.

One `dns` a query, one `decision` and one `close` a connection, one `request` an HTTP request, `sandbox_start` and
`sandbox_end` a workload, `finding` for what an operator should see. Never a secret, a body or a full query string;
a name that is not canonical is stored as hex. Not here: storage, `seq` and the hash chain (`audit.store`).
"""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sandboxd.reasons import Layer, Reason, Verdict

EventName = Literal["dns", "decision", "request", "close", "sandbox_start", "sandbox_end", "finding"]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose record it is. `calls`: ids of tool calls in flight."""

    tenant: str
    agent: str
    sandbox: str
    workload: str
    revision: int = 0
    policy_hash: str = ""
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Destination:
    """`host` is canonical, or `hex:…` where it can't be; None for a literal address. `ip` is what was asked for
    inside (for a host: its synthetic address is not recorded, the dialed one is); `port` 0 where there is none."""

    host: str | None = None
    ip: str | None = None
    port: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One record. `ts` wall seconds; `connection` joins the records of one connection (its decision's id);
    `detail` holds the fields of its kind only: dns {qname, qtype, rcode}, decision {sni, alpn, proto},
    request {method, path, query_hash, status}, close {bytes_in, bytes_out, duration, how}, sandbox_* facts."""

    id: str
    ts: float
    event: EventName
    subject: Subject
    destination: Destination = field(default_factory=Destination)
    connection: str = ""
    verdict: Verdict | None = None
    rule: str | None = None
    layer: Layer | None = None
    reason: Reason | None = None
    mode: str = "enforce"
    proto: str | None = None
    detail: dict[str, Any] = field(default_factory=dict[str, Any])


class SinkError(Exception):
    """The record could not be taken: the caller must deny what it was about (`Reason.AUDIT_SINK`)."""


class Sink(Protocol):
    """Where events go. `emit` returns at once, or raises SinkError where the queue is full or the store failed;
    `flush` returns once everything emitted so far is durable."""

    def emit(self, event: Event) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
