"""The audit records of one connection: its `decision`, its `request`s, its `close`, and findings (egress.md 7). Pure.

Not here: verdicts, and where records go. Called by `flow` and `http_flow`.
"""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any

from sandboxd.audit.events import Destination, Event, EventName, Subject
from sandboxd.egress.commands import Record
from sandboxd.policy.requests import Decision, Target
from sandboxd.reasons import Reason


class Ledger:
    """Makes the records of one connection; `id` joins them and is its decision's. `subject` is whose they are now."""

    def __init__(self, target: Target, subject: Subject, new_id: Callable[[], str], wall: Callable[[], float]) -> None:
        self.subject = subject
        self.id = new_id()
        self.bytes_out = 0
        self.bytes_in = 0
        self.address: bytes | None = target.address
        self.port = target.port
        self.pinned = False
        self.decided = False
        self.statuses: dict[str, int] = {}
        self._target = target
        self._new_id = new_id
        self._wall = wall
        self._began = wall()

    def decision(self, decision: Decision, **detail: Any) -> Record:
        """The connection's verdict. `detail` may hold sni, alpn and the like; already canonical or hex."""
        self.decided = True
        return self._record("decision", self.id, decision, detail | self._pinned())

    def request(self, record: str, decision: Decision, **detail: Any) -> Record:
        """One HTTP request's verdict under an id of its own."""
        return self._record("request", record, decision, detail | self._pinned())

    def finding(self, decision: Decision, **detail: Any) -> Record:
        """What an operator should see although the connection goes on."""
        return self._record("finding", self._new_id(), decision, detail)

    def close(self, how: str, reason: Reason | None) -> Record:
        """The end: bytes, seconds, how; `reason` where it did not end by itself."""
        detail: dict[str, Any] = {
            "bytes_out": self.bytes_out,
            "bytes_in": self.bytes_in,
            "duration": round(max(0.0, self._wall() - self._began), 6),
            "how": how,
        }
        if self.statuses:
            detail["statuses"] = dict(self.statuses)
        event = Event(
            id=self._new_id(),
            ts=self._wall(),
            event="close",
            subject=self.subject,
            destination=self._destination(),
            connection=self.id,
            reason=reason,
            detail=detail,
        )
        return Record(event)

    def count_status(self, status: int) -> None:
        """An HTTP answer went inside."""
        self.statuses[str(status)] = self.statuses.get(str(status), 0) + 1

    def now(self) -> float:
        """Wall seconds."""
        return self._wall()

    def new_id(self) -> str:
        """An id for a record that has to be known before it is written."""
        return self._new_id()

    def _record(self, event: EventName, record: str, decision: Decision, detail: dict[str, Any]) -> Record:
        return Record(
            Event(
                id=record,
                ts=self._wall(),
                event=event,
                subject=self.subject,
                destination=self._destination(),
                connection=self.id,
                verdict=decision.verdict,
                rule=decision.rule,
                layer=decision.layer,
                reason=decision.reason,
                mode=decision.mode,
                proto=decision.proto,
                detail=detail,
            )
        )

    def _destination(self) -> Destination:
        return Destination(self._target.host, address_text(self.address), self._target.port)

    def _pinned(self) -> dict[str, Any]:
        if not self.pinned:
            return {}
        return {"pin": f"{self._target.host}={address_text(self.address)}:{self.port}"}


def address_text(address: bytes | None) -> str | None:
    """A packed address as text."""
    return None if address is None else str(ipaddress.ip_address(address))


def addresses_text(addresses: Sequence[bytes]) -> list[str]:
    """Packed addresses as text, for a record's detail."""
    return [str(ipaddress.ip_address(address)) for address in addresses]
