"""Events as stored records: one flat JSON object each, in one canonical form, chained by SHA-256. Pure.

A record is the event's fields plus `writer`, `seq` (1, 2, 3… of that writer) and `prev`. Canonical form: keys sorted,
no spaces, ASCII with escapes, no NaN. `prev` is the SHA-256 (hex) of the canonical form of the writer's record before;
a writer's first record hangs on the newest record that the file then held, whoever wrote it, or on `GENESIS`.
Called by `store` (write) and `query` (read, verify).
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from sandboxd import limits
from sandboxd.audit.events import Destination, Event, SinkError, Subject
from sandboxd.reasons import Layer, Reason, Verdict

GENESIS = "0" * 64

# Columns that queries filter on, next to the record itself; derived, never the truth.
COLUMNS = ("id", "ts", "event", "agent", "sandbox", "workload", "host", "ip", "verdict", "connection")

_TEXT, _MAYBE = (str,), (str, type(None))
_SHAPE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "event", "tenant", "agent", "sandbox", "workload", "connection", "mode"), _TEXT),
    **dict.fromkeys(("policy_hash", "writer", "prev"), _TEXT),
    **dict.fromkeys(("verdict", "rule", "layer", "reason", "proto"), _MAYBE),
    "ts": (float, int),
    "policy_revision": (int,),
    "seq": (int,),
    "calls": (list,),
    "dst": (dict,),
    "detail": (dict,),
}
_DST_SHAPE: dict[str, tuple[type, ...]] = {"host": _MAYBE, "ip": _MAYBE, "port": (int,)}

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Record:
    """A stored event with its place in its writer's chain."""

    event: Event
    writer: str
    seq: int
    prev: str


class RecordError(Exception):
    """A stored text is not a record of this model."""


def canonical(fields: dict[str, Any]) -> str:
    """The one text of `fields`. Raises ValueError or TypeError where JSON can't hold a value."""
    return _encoder.encode(fields)


def digest(text: str) -> str:
    """SHA-256 of a canonical text, as 64 hex digits."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def flatten(event: Event) -> dict[str, Any]:
    """The event's fields as a record has them, long texts cut. Raises SinkError where it can't be recorded."""
    fields = _fields(event)
    fields["detail"] = {name: _cut(value) for name, value in event.detail.items()}
    try:
        size = len(canonical(fields))
    except (ValueError, TypeError) as error:
        raise SinkError(f"event {event.id} is not plain JSON: {error}") from None
    if size > limits.AUDIT_RECORD:
        raise SinkError(f"event {event.id} is {size} bytes, the bound is {limits.AUDIT_RECORD}")
    return fields


def chained(fields: dict[str, Any], writer: str, seq: int, prev: str) -> str:
    """The canonical text of the record that `fields` become at this place of `writer`'s chain."""
    return canonical(fields | {"writer": writer, "seq": seq, "prev": prev})


def columns(fields: dict[str, Any]) -> tuple[Any, ...]:
    """The values of `COLUMNS`. A DNS record without a destination is found under the name it asked for."""
    host = fields["dst"]["host"] or fields["detail"].get("qname")
    derived = fields | {"host": host, "ip": fields["dst"]["ip"]}
    return tuple(_storable(derived[name]) for name in COLUMNS)


def as_dict(record: Record) -> dict[str, Any]:
    """What `--json` prints: every field, `seq`, `prev` and `writer` included."""
    return _fields(record.event) | {"writer": record.writer, "seq": record.seq, "prev": record.prev}


def parse(text: str) -> Record:
    """The record in `text`. Raises RecordError where a field is missing, unknown or not what it must be."""
    try:
        fields = json.loads(text)
        _check_shape(fields, _SHAPE, "record")
        _check_shape(fields["dst"], _DST_SHAPE, "dst")
        return _record(fields)
    except ValueError as error:
        raise RecordError(f"not an audit record: {error}") from None


def _check_shape(fields: Any, shape: dict[str, tuple[type, ...]], where: str) -> None:
    if type(fields) is not dict or set(fields) != set(shape):  # pyright: ignore[reportUnknownArgumentType]
        raise ValueError(f"{where}: expected an object of exactly {', '.join(shape)}")
    for name, kinds in shape.items():
        if type(fields[name]) not in kinds:  # pyright: ignore[reportUnknownArgumentType]
            raise ValueError(f"{where}: {name}: expected {' or '.join(k.__name__ for k in kinds)}")


def _record(f: dict[str, Any]) -> Record:
    subject = Subject(
        tenant=f["tenant"],
        agent=f["agent"],
        sandbox=f["sandbox"],
        workload=f["workload"],
        revision=f["policy_revision"],
        policy_hash=f["policy_hash"],
        calls=tuple(f["calls"]),
    )
    event = Event(
        id=f["id"],
        ts=f["ts"],
        event=f["event"],
        subject=subject,
        destination=Destination(**f["dst"]),
        connection=f["connection"],
        verdict=None if f["verdict"] is None else Verdict(f["verdict"]),
        rule=f["rule"],
        layer=None if f["layer"] is None else Layer(f["layer"]),
        reason=None if f["reason"] is None else Reason(f["reason"]),
        mode=f["mode"],
        proto=f["proto"],
        detail=f["detail"],
    )
    return Record(event, f["writer"], f["seq"], f["prev"])


def _fields(event: Event) -> dict[str, Any]:
    subject, where = event.subject, event.destination
    return {
        "id": event.id,
        "ts": event.ts,
        "event": event.event,
        "tenant": subject.tenant,
        "agent": subject.agent,
        "sandbox": subject.sandbox,
        "workload": subject.workload,
        "calls": list(subject.calls),
        "policy_revision": subject.revision,
        "policy_hash": subject.policy_hash,
        "dst": {"host": where.host, "ip": where.ip, "port": where.port},
        "connection": event.connection,
        "verdict": event.verdict,
        "rule": event.rule,
        "layer": event.layer,
        "reason": event.reason,
        "mode": event.mode,
        "proto": event.proto,
        "detail": event.detail,
    }


def _cut(value: Any) -> Any:
    """Texts come from hostile peers: a long one keeps its head, its length and its hash."""
    if isinstance(value, str) and len(value) > limits.AUDIT_TEXT:
        whole = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{value[: limits.AUDIT_TEXT]}…[{len(value)} characters, sha256 {whole}]"
    if isinstance(value, tuple | list):
        return [_cut(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _storable(value: Any) -> Any:
    """SQLite takes no lone surrogates; the record itself holds them as escapes."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
