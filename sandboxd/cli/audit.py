"""`sandboxd audit`: list, show and verify what was recorded. Reads only; every text from a record is shown harmless."""

import json
import re
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from sandboxd.audit.events import EventName
from sandboxd.cli.text import count, harmless
from sandboxd.errors import ExitCode, UsageError
from sandboxd.reasons import Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sandboxd.audit.query import AuditLog, Verification
    from sandboxd.audit.records import Record

app = typer.Typer(help="What was decided and what happened.", no_args_is_help=True)

# SQLite tells nobody of another process's commit, so `--follow` looks this often.
FOLLOW_INTERVAL = 0.5

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COLOURS = {Verdict.ALLOW: "green", Verdict.DENY: "red", Verdict.WOULD_DENY: "yellow"}
_Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, every field.")]


@app.command("ls")
def ls(
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    verdict: Annotated[Verdict | None, typer.Option(help="Only this verdict.")] = None,
    since: Annotated[str | None, typer.Option(help="10m, 2h, 3d, or a time such as 2026-11-30T08:00.")] = None,
    host: Annotated[str | None, typer.Option(help="A name or an address; * stands for anything.")] = None,
    sandbox: Annotated[str | None, typer.Option(help="Only this sandbox's.")] = None,
    event: Annotated[EventName | None, typer.Option(help="Only this kind of record.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted.")] = False,
    as_json: _Json = False,
) -> None:
    """The newest records, oldest first."""
    wanted: dict[str, Any] = {"agent": agent, "verdict": verdict, "host": host, "sandbox": sandbox, "event": event}
    wanted["since"] = None if since is None else parse_since(since, time.time())
    show = _print_json if as_json else _Lines()
    with _open() as log:
        end = log.position()
        found = log.find(**wanted, upto=end, limit=limit + 1)
    show(found[-limit:])
    if len(found) > limit:
        _note(f"the newest {limit}; --limit shows more")
    elif not found and not follow:
        _note("no such record")
    if follow:
        _follow(wanted, end, show)


@app.command("show")
def show(
    id: Annotated[str, typer.Argument(help="A record's id, or its first or last 8 characters or more.")],
    as_json: _Json = False,
) -> None:
    """One record with every field, and the others of its connection."""
    with _open() as log:
        record = log.get(id)
        related = log.find(connection=record.event.connection) if record.event.connection else []
    if as_json:
        _print_json([record])
        return
    console = _console()
    console.print(_fields(record))
    if others := [r for r in related if r.event.id != record.event.id]:
        console.print("\nOf the same connection:", highlight=False)
        console.print(_table(others, console.width))


@app.command("verify")
def verify(
    save: Annotated[
        Path | None, typer.Option(help="Write each chain's end to this file, to be kept elsewhere.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Ends that an earlier --save wrote: they must still be there.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Walk the hash chains. Exit 1 where one is broken."""
    with _open() as log:
        found = log.verify(_read_anchors(against) if against else None)
    if save is not None:
        save.write_text(json.dumps({writer: [t.seq, t.digest] for writer, t in found.tips.items()}, indent=1) + "\n")
    _print_verification(found, as_json=as_json, anchored=against is not None)
    if not found.intact:
        raise typer.Exit(ExitCode.FAILED)


def parse_since(text: str, now: float) -> float:
    """Wall seconds: `now` minus 10s, 5m, 2h or 3d, or an ISO 8601 time (local where it names no zone).

    Raises UsageError.
    """
    if match := re.fullmatch(r"([0-9]{1,9})([smhd])", text):
        return now - int(match[1]) * _UNITS[match[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"not a time: {text!r}", hint="expected 30s, 10m, 2h, 3d or 2026-11-30T08:00:00") from None


def _open() -> "AuditLog":
    from sandboxd.audit.query import AuditLog
    from sandboxd.settings import load_settings

    return AuditLog(load_settings().audit_database)


def rest() -> None:
    """Until the next look."""
    threading.Event().wait(FOLLOW_INTERVAL)


def _follow(wanted: dict[str, Any], end: int, show: Any) -> None:
    try:
        while True:
            rest()
            with _open() as log:  # anew each time: a reader without write permission sees a snapshot
                start, end = end, log.position()
                if end > start:
                    show(log.find(**wanted, after=start, upto=end))
    except KeyboardInterrupt:
        return


def _read_anchors(path: Path) -> "dict[str, Any]":
    from sandboxd.audit.query import Tip

    try:
        saved = json.loads(path.read_text())
        return {str(writer): Tip(int(seq), str(digest)) for writer, (seq, digest) in saved.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: {error}", hint="expected a file that `audit verify --save` wrote") from None


def _note(text: str) -> None:
    print(f"sandboxd: {text}", file=sys.stderr)


# --- printing ----------------------------------------------------------------------------------------------------


def _console() -> "Console":
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=200)


def _print_json(records: "Sequence[Record]") -> None:
    from sandboxd.audit.records import as_dict, canonical

    for record in records:
        print(canonical(as_dict(record)), flush=True)


class _Lines:
    """Prints batches of records as one table: the heading comes once."""

    def __init__(self) -> None:
        self._first = True

    def __call__(self, records: "Sequence[Record]") -> None:
        if records or self._first:
            console = _console()
            console.print(_table(records, console.width, heading=self._first))
        self._first = False


# Of a column: its width, or a share of what is left (negative). The second line is for terminals that are not narrow.
_COLUMNS = {"time": 14, "id": 10, "event": 8, "destination": -6, "verdict": 10, "rule": -2, "reason": 14}
_WIDE_COLUMNS = {"event": 13, "reason": 19, "who": -3, "out / in": 13}
_NARROW = 110
_ID_SHOWN = 10


def _table(records: "Sequence[Record]", width: int, *, heading: bool = True) -> "Table":
    """Columns stand at the same places whatever is in them, so that batches line up."""
    from rich.table import Table
    from rich.text import Text

    columns = _COLUMNS | (_WIDE_COLUMNS if width >= _NARROW else {})
    table = Table(show_header=heading, box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=True)
    for name, size in columns.items():
        table.add_column(name, overflow="fold", width=max(size, 0) or None, ratio=max(-size, 0) or None)
    for record in records:
        row, verdict = _row(record), record.event.verdict
        colour = _COLOURS[verdict] if verdict else ""
        table.add_row(*(Text(harmless(row[name]), style=colour if name == "verdict" else "") for name in columns))
    return table


def _row(record: "Record") -> dict[str, str]:
    e = record.event
    return {
        "time": datetime.fromtimestamp(e.ts).strftime("%m-%d %H:%M:%S"),
        "id": e.id[-_ID_SHOWN:],
        "event": e.event,
        "destination": destination(record),
        "verdict": e.verdict or "",
        "rule": e.rule or "",
        "reason": e.reason or "",
        "who": f"{e.subject.agent}/{e.subject.workload}",
        "out / in": _bytes(e.detail),
    }


def destination(record: "Record") -> str:
    """Where it went and what was asked there, in one line: `api.example.com:443`, `example.com A`, `GET /x 403`."""
    where, detail = record.event.destination, record.event.detail
    host = where.host or where.ip or detail.get("qname") or ""
    if where.host is None and where.ip and ":" in where.ip:
        host = f"[{where.ip}]"
    parts = [f"{host}:{where.port}" if where.port else str(host)]
    parts += [str(detail[name]) for name in ("qtype", "method", "path", "status", "image") if detail.get(name)]
    return harmless(" ".join(p for p in parts if p))


def _bytes(detail: dict[str, Any]) -> str:
    out, back = detail.get("bytes_out"), detail.get("bytes_in")
    return f"{count(out)} / {count(back)}" if isinstance(out, int) and isinstance(back, int) else ""


def _fields(record: "Record") -> "Table":
    from rich.table import Table
    from rich.text import Text

    from sandboxd.audit.records import as_dict

    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    stamp = datetime.fromtimestamp(record.event.ts, UTC).isoformat(timespec="microseconds")
    for name, value in as_dict(record).items():
        for label, text in _spread(name, stamp if name == "ts" else value):
            grid.add_row(Text(harmless(label)), Text(harmless(text)))
    return grid


def _spread(name: str, value: Any) -> list[tuple[str, str]]:
    """`dst` and `detail` become one line a field."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        return [line for key, inner in items.items() for line in _spread(f"{name}.{key}", inner)]
    if isinstance(value, list):
        return [(name, ", ".join(map(str, cast("list[Any]", value))))]
    return [(name, "" if value is None else str(value))]


def _print_verification(found: "Verification", *, as_json: bool, anchored: bool) -> None:
    if as_json:
        breaks = [{"writer": b.writer, "seq": b.seq, "id": b.id, "problem": b.problem} for b in found.breaks]
        print(json.dumps({"records": found.records, "writers": len(found.tips), "breaks": breaks}))
        return
    for flaw in found.breaks:
        print(harmless(f"BROKEN  writer {flaw.writer} seq {flaw.seq} {flaw.id}: {flaw.problem}"))
    print(f"{found.records} records, {len(found.tips)} chains, {len(found.breaks)} breaks")
    if not anchored:
        print("The end of a chain can be cut off unseen unless an earlier `verify --save` is given with --against.")
