"""Reads the audit log: find, get one, verify the chains. Opens read-only, beside any number of writers.

Called by `sandboxd audit` and by tests. Not here: writing (`store`), printing (`cli.audit`).
"""

import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxd.audit import records
from sandboxd.audit.database import SCHEMA
from sandboxd.audit.records import Record, RecordError
from sandboxd.database import open_database_read_only
from sandboxd.errors import SandboxdError, UsageError
from sandboxd.reasons import Verdict

# A shorter part of an id says almost nothing: a ULID begins with the time.
SHORTEST_PART = 8

_EQUAL = ("agent", "sandbox", "workload", "event", "verdict", "connection")


class AuditLogError(SandboxdError):
    """The database is there, but reading it failed."""

    def __init__(self, message: str) -> None:
        super().__init__("audit_log", message, hint="`sandboxd audit verify` says where it is damaged")


@dataclass(frozen=True, slots=True)
class Break:
    """A place where a chain doesn't hold. `seq` is where it showed: a deleted record shows at the next one."""

    writer: str
    seq: int
    id: str
    problem: str


@dataclass(frozen=True, slots=True)
class Tip:
    """The last record of a writer: its seq and its SHA-256."""

    seq: int
    digest: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` walked and found. `tips`: the end of each writer's chain. Who keeps them elsewhere can tell later
    whether an end was cut off or a whole chain made anew; the file alone can't."""

    records: int
    tips: dict[str, Tip]
    breaks: tuple[Break, ...]

    @property
    def intact(self) -> bool:
        """No chain is broken."""
        return not self.breaks


class AuditLog:
    """The read side of the database at `path`. Raises sandboxd.database.DatabaseError where it can't be opened."""

    def __init__(self, path: Path) -> None:
        self._connection = open_database_read_only(path, SCHEMA)

    def __enter__(self) -> "AuditLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def find(
        self,
        *,
        agent: str | None = None,
        sandbox: str | None = None,
        workload: str | None = None,
        event: str | None = None,
        verdict: Verdict | None = None,
        connection: str | None = None,
        host: str | None = None,
        since: float | None = None,
        until: float | None = None,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """Records that match all that is given, oldest first; with `limit` the newest so many of them.

        `host`: a name or address as recorded, `*` in it stands for anything; a DNS record is found by what it asked
        for. `since`, `until`: wall seconds, inclusive and exclusive. `after`, `upto`: what was appended behind
        the one `position` and not behind the other.
        """
        equal = dict(zip(_EQUAL, (agent, sandbox, workload, event, verdict, connection), strict=True))
        terms: list[tuple[str, tuple[Any, ...]]] = [
            (f"{name} = ?", (value,)) for name, value in equal.items() if value is not None
        ]
        if host is not None:
            compare = "GLOB" if "*" in host else "="
            terms.append((f"(host {compare} ? OR ip {compare} ?)", (host.lower(), host.lower())))
        if since is not None:
            terms.append(("ts >= ?", (since,)))
        if until is not None:
            terms.append(("ts < ?", (until,)))
        if upto is not None:
            terms.append(("row <= ?", (upto,)))
        terms.append(("row > ?", (after,)))
        where, values = " AND ".join(t for t, _ in terms), [v for _, vs in terms for v in vs]
        sql = f"SELECT record FROM records WHERE {where} ORDER BY row DESC LIMIT ?"  # noqa: S608 (terms are ours)
        with _reading():
            rows = self._connection.execute(sql, (*values, -1 if limit is None else limit)).fetchall()
        return [_parsed(text) for (text,) in reversed(rows)]

    def position(self) -> int:
        """Where the log ends now: what is appended later lies behind it."""
        with _reading():
            (last,) = self._connection.execute("SELECT coalesce(max(row), 0) FROM records").fetchone()
        return int(last)

    def get(self, id: str) -> Record:
        """The record of this id, or of the only one that begins or ends so (`SHORTEST_PART` characters at least).

        Raises UsageError where there is none, or more than one.
        """
        wanted = id.upper()
        if len(wanted) < SHORTEST_PART:
            raise UsageError(f"id {id!r} is too short", hint=f"give {SHORTEST_PART} characters or more", code="bad_id")
        rows = self._with_id("id = ?", wanted)
        rows = rows or self._with_id("id >= ? AND id < ?", wanted, wanted + "~")
        rows = rows or self._with_id("substr(id, ?) = ?", -len(wanted), wanted)
        if not rows:
            raise UsageError(f"no record {id!r}", hint="`sandboxd audit ls` shows ids", code="no_record")
        if len({found for found, _ in rows}) > 1:
            raise UsageError(f"more than one record is {id!r}", hint="give more characters", code="bad_id")
        return _parsed(rows[0][1])

    def _with_id(self, term: str, *values: object) -> list[tuple[str, str]]:
        with _reading():
            return self._connection.execute(f"SELECT id, record FROM records WHERE {term} LIMIT 2", values).fetchall()  # noqa: S608

    def verify(self, anchors: Mapping[str, Tip] | None = None) -> Verification:
        """Walk every writer's chain. Never raises for what it finds: every flaw is a `Break`.

        `anchors`: tips of an earlier verification, kept out of reach of whoever can write the file.
        """
        walk = _Walk(anchors or {})
        with _reading():
            starts = self._connection.execute("SELECT record FROM records WHERE seq = 1").fetchall()
            walk.expect_starts(text for (text,) in starts)
            names = ", ".join(("writer", "seq", *records.COLUMNS, "record"))
            for row in self._connection.execute(f"SELECT {names} FROM records ORDER BY writer, seq"):  # noqa: S608
                walk.step(*row[:2], derived=row[2:-1], text=row[-1])
        return walk.result()


class _Walk:
    """The state of one verification: rows come by writer and seq."""

    def __init__(self, anchors: Mapping[str, Tip]) -> None:
        self._anchors = dict(anchors)
        self._count = 0
        self._tips: dict[str, Tip] = {}
        self._breaks: list[Break] = []
        self._sought: dict[str, list[Break]] = {}

    def expect_starts(self, texts: Iterable[str]) -> None:
        """First records hang on a record that must be somewhere in the file."""
        for text in texts:
            with contextlib.suppress(RecordError):  # `step` reports it
                first = records.parse(text)
                if first.prev != records.GENESIS:
                    missing = Break(first.writer, 1, first.event.id, "the record it hangs on was changed or removed")
                    self._sought.setdefault(first.prev, []).append(missing)

    def step(self, writer: str, seq: int, *, derived: tuple[Any, ...], text: str) -> None:
        """Check one row against its predecessor and itself."""
        self._count += 1
        before = self._tips.get(writer, Tip(0, ""))
        tip = self._tips[writer] = Tip(seq, records.digest(text) if text.isascii() else "")
        self._sought.pop(tip.digest, None)
        if self._anchors.get(writer) == tip:
            del self._anchors[writer]
        if seq != before.seq + 1:
            self._report(writer, seq, derived, f"records between {before.seq} and {seq} are missing")
        try:
            record = records.parse(text)
        except RecordError:
            self._report(writer, seq, derived, "not a record")
            return
        if (record.writer, record.seq) != (writer, seq):
            self._report(writer, seq, derived, f"the record says writer {record.writer!r}, seq {record.seq}")
        elif seq > 1 and seq == before.seq + 1 and record.prev != before.digest:
            self._report(writer, seq, derived, "the record before it was changed")
        if records.columns(records.as_dict(record)) != derived or records.canonical(records.as_dict(record)) != text:
            self._report(writer, seq, derived, "its columns or its form differ from the record")

    def result(self) -> Verification:
        """All that was found, starts without a base included."""
        loose = [flaw for flaws in self._sought.values() for flaw in flaws]
        cut = [Break(writer, tip.seq, "", "the anchored record is not there") for writer, tip in self._anchors.items()]
        return Verification(self._count, self._tips, (*self._breaks, *loose, *cut))

    def _report(self, writer: str, seq: int, derived: tuple[Any, ...], problem: str) -> None:
        self._breaks.append(Break(writer, seq, str(derived[0]), problem))


def _parsed(text: str) -> Record:
    try:
        return records.parse(text)
    except RecordError as error:
        raise AuditLogError(str(error)) from None


@contextlib.contextmanager
def _reading() -> Generator[None, None, None]:
    try:
        yield
    except sqlite3.Error as error:
        raise AuditLogError(f"audit database: {error}") from None
