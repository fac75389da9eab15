"""The log's read side: what find and get answer, and that verification sees every change it can see."""

import json
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.audit import records
from sandboxd.audit.events import Destination, Event, Subject
from sandboxd.audit.query import AuditLog, Tip
from sandboxd.audit.store import open_sink
from sandboxd.errors import UsageError
from sandboxd.reasons import Layer, Reason, Verdict

Change = Callable[[sqlite3.Connection], object]


def event(n: int, **more: object) -> Event:
    values: dict[str, object] = {
        "id": f"01M8NR4CEGJ3SM8P{n:010}",
        "ts": 1000.0 + n,
        "event": "decision",
        "subject": Subject("default", f"agent{n % 2}", f"sb-{n}", "mcp:x"),
        "destination": Destination(f"h{n}.example.com", None, 443),
        "verdict": Verdict.ALLOW if n % 2 else Verdict.DENY,
    }
    return Event(**(values | more))  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Twelve records: 1 to 8 by writer a, 9 to 12 by writer b, whose chain hangs on a's last."""
    path = tmp_path / "audit.db"
    for writer, numbers in (("a", range(1, 9)), ("b", range(9, 13))):
        with open_sink(path, writer) as sink:
            for n in numbers:
                sink.emit(event(n))
    return path


def numbers(log: AuditLog, **wanted: object) -> list[int]:
    return [int(r.event.id[-4:]) for r in log.find(**wanted)]  # type: ignore[arg-type]


def test_find(path: Path) -> None:
    with AuditLog(path) as log:
        assert numbers(log) == list(range(1, 13))
        assert numbers(log, limit=3) == [10, 11, 12]
        assert numbers(log, agent="agent1", limit=2) == [9, 11]
        assert numbers(log, verdict=Verdict.DENY, since=1006.0) == [6, 8, 10, 12]
        assert numbers(log, since=1003.0, until=1005.0) == [3, 4]
        assert numbers(log, sandbox="sb-7") == [7]
        assert numbers(log, host="h5.example.com") == [5]
        assert numbers(log, host="H1*") == [1, 10, 11, 12]
        assert numbers(log, event="dns") == []
        assert numbers(log, agent="' OR 1=1 --") == []


def test_find_by_address_question_and_connection(path: Path) -> None:
    with open_sink(path, "c") as sink:
        sink.emit(event(13, destination=Destination(None, "192.0.2.1", 80), connection="C"))
        sink.emit(event(14, event="dns", destination=Destination(), detail={"qname": "asked.example"}))
    with AuditLog(path) as log:
        assert numbers(log, host="192.0.2.1") == [13]
        assert numbers(log, host="asked.*") == [14]
        assert numbers(log, connection="C") == [13]


def test_position(path: Path) -> None:
    with AuditLog(path) as log:
        start = log.position()
        with open_sink(path, "c") as sink:
            sink.emit(event(13))
        end = log.position()
        with open_sink(path, "c") as sink:
            sink.emit(event(14))
        assert numbers(log, after=start, upto=end) == [13]
        assert numbers(log, after=end) == [14]


def test_get(path: Path) -> None:
    with AuditLog(path) as log:
        assert log.get("01M8NR4CEGJ3SM8P0000000003").event == event(3)
        with pytest.raises(UsageError, match="too short"):
            log.get("01M8NR4")
        with pytest.raises(UsageError, match="more than one"):
            log.get("01M8NR4CEGJ3SM8P")
        with pytest.raises(UsageError, match="no record"):
            log.get("01M8NR4CEGJ3SM8P9")
        assert log.get("01m8nr4cegj3sm8p0000000003").event == event(3)


def test_unique_beginning_or_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    with open_sink(path, "w") as sink:
        sink.emit(event(1, id="01AAAAAAAAAAAAAAAAAAAAAAAA"))
        sink.emit(event(2, id="01BBBBBBBBBBBBBBBBBBBBBBBB"))
    with AuditLog(path) as log:
        assert log.get("01AAAAAA").event.ts == 1001.0
        assert log.get("bbbbbbbb").event.ts == 1002.0


def test_reads_while_nobody_may_write_the_folder(path: Path) -> None:
    log = AuditLog(path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        log._connection.execute("DELETE FROM records")  # pyright: ignore[reportPrivateUsage]
    log.close()


# --- the chains --------------------------------------------------------------------------------------------------


def broken(path: Path, change: Change, **anchors: Tip) -> list[tuple[str, int, str]]:
    connection = sqlite3.connect(path)
    change(connection)
    connection.commit()
    connection.close()
    with AuditLog(path) as log:
        return [(b.writer, b.seq, b.problem) for b in log.verify(anchors).breaks]


def rewrite(seq: int, old: str, new: str, column: str | None = None) -> Change:
    def change(connection: sqlite3.Connection) -> None:
        where = f"WHERE writer = 'a' AND seq = {seq}"
        connection.execute(f"UPDATE records SET record = replace(record, ?, ?) {where}", (old, new))
        if column:
            connection.execute(f"UPDATE records SET {column} = ? {where}", (new,))

    return change


def test_untouched_is_intact(path: Path) -> None:
    with AuditLog(path) as log:
        found = log.verify()
        assert found.intact
        assert found.records == 12
        assert {w: t.seq for w, t in found.tips.items()} == {"a": 8, "b": 4}
        assert log.verify(found.tips).intact


def test_edit(path: Path) -> None:
    assert broken(path, rewrite(3, '"allow"', '"deny"')) == [
        ("a", 3, "its columns or its form differ from the record"),
        ("a", 4, "the record before it was changed"),
    ]


def test_edit_with_its_column(path: Path) -> None:
    found = broken(path, rewrite(3, "allow", "deny", "verdict"))
    assert found == [("a", 4, "the record before it was changed")]


def test_edit_of_a_column_only(path: Path) -> None:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE records SET agent = 'other' WHERE writer = 'b' AND seq = 4")

    assert broken(path, change) == [("b", 4, "its columns or its form differ from the record")]


def test_deletion_in_the_middle_and_at_the_start(path: Path) -> None:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM records WHERE writer = 'a' AND seq IN (1, 4, 5)")

    assert broken(path, change) == [
        ("a", 2, "records between 0 and 2 are missing"),
        ("a", 6, "records between 3 and 6 are missing"),
    ]


def test_reordering(path: Path) -> None:
    def change(connection: sqlite3.Connection) -> None:
        for old, new in ((2, 99), (3, 2), (99, 3)):
            connection.execute("UPDATE records SET seq = ? WHERE writer = 'a' AND seq = ?", (new, old))

    problems = broken(path, change)
    assert ("a", 2, "the record says writer 'a', seq 3") in problems
    assert ("a", 3, "the record says writer 'a', seq 2") in problems


def test_reordering_with_rewritten_numbers(path: Path) -> None:
    def change(connection: sqlite3.Connection) -> None:
        test = "UPDATE records SET seq = ?, record = replace(record, ?, ?) WHERE writer = 'a' AND seq = ?"
        for old, new in ((2, 99), (3, 2), (99, 3)):
            connection.execute(test, (new, f'"seq":{old}', f'"seq":{new}', old))

    assert [(w, s) for w, s, _ in broken(path, change)] == [("a", 2), ("a", 3), ("a", 4)]


def test_record_moved_to_another_writer(path: Path) -> None:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE records SET writer = 'c', seq = 1 WHERE writer = 'a' AND seq = 8")

    assert ("c", 1, "the record says writer 'a', seq 8") in broken(path, change)


def test_a_whole_chain_or_its_end_that_another_hangs_on(path: Path) -> None:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM records WHERE writer = 'a' AND seq = 8")

    assert broken(path, change) == [("b", 1, "the record it hangs on was changed or removed")]


def test_the_last_end_needs_an_anchor(path: Path) -> None:
    with AuditLog(path) as log:
        tips = log.verify().tips

    def change(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM records WHERE writer = 'b' AND seq = 4")

    assert broken(path, change) == [], "undetectable in the file alone: docs/audit.md says so"
    assert broken(path, lambda _: None, **tips) == [("b", 4, "the anchored record is not there")]


def test_rubbish_in_a_row(path: Path) -> None:
    def change(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE records SET record = 'é{' WHERE writer = 'a' AND seq = 5")

    problems = broken(path, change)
    assert ("a", 5, "not a record") in problems
    assert ("a", 6, "the record before it was changed") in problems


# --- records -----------------------------------------------------------------------------------------------------

texts = st.text(st.characters(), max_size=30)
plain = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts
)
events = st.builds(
    Event,
    id=texts,
    ts=st.floats(0, 2**40),
    event=st.sampled_from(["dns", "decision", "request", "close", "sandbox_start", "sandbox_end", "finding"]),
    subject=st.builds(Subject, texts, texts, texts, texts, st.integers(0), texts, st.lists(texts).map(tuple)),
    destination=st.builds(Destination, st.none() | texts, st.none() | texts, st.integers(0, 65535)),
    connection=texts,
    verdict=st.none() | st.sampled_from(Verdict),
    rule=st.none() | texts,
    layer=st.none() | st.sampled_from(Layer),
    reason=st.none() | st.sampled_from(Reason),
    mode=texts,
    proto=st.none() | texts,
    detail=st.dictionaries(texts, plain | st.lists(plain, max_size=3), max_size=4),
)


@given(events, texts, st.integers(1, 2**62))
def test_a_record_survives_its_text(one: Event, writer: str, seq: int) -> None:
    text = records.chained(records.flatten(one), writer, seq, records.GENESIS)
    assert text.isascii()
    back = records.parse(text)
    assert back == records.Record(one, writer, seq, records.GENESIS)
    assert records.canonical(records.as_dict(back)) == text


@given(st.lists(events, min_size=1, max_size=5))
@settings(max_examples=25)  # each waits for the disk
def test_what_is_emitted_is_found(sent: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.db"
        with open_sink(path, "w") as sink:
            for one in sent:
                sink.emit(one)
        with AuditLog(path) as log:
            assert [r.event for r in log.find()] == sent
            assert log.verify().intact


@given(st.recursive(plain, lambda x: st.lists(x, max_size=3) | st.dictionaries(texts, x, max_size=3)))
def test_parse_refuses_other_json(value: object) -> None:
    with pytest.raises(records.RecordError):
        records.parse(json.dumps(value))
