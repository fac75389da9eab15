"""The sink and the log: what was flushed is there, in order and chained; a failing store refuses and recovers."""

import os
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd import ids, limits
from sandboxd.audit import records
from sandboxd.audit.database import SCHEMA
from sandboxd.audit.events import Destination, Event, SinkError, Subject
from sandboxd.audit.query import AuditLog
from sandboxd.audit.store import open_sink
from sandboxd.database import DatabaseError
from sandboxd.reasons import Layer, Reason, Verdict

SUBJECT = Subject("default", "agent", "sb-1", "mcp:x", 1, "ab", ("call-1",))


def event(n: int = 0, **more: object) -> Event:
    values: dict[str, object] = {
        "id": ids.ulid(),
        "ts": 1000.5 + n,
        "event": "decision",
        "subject": SUBJECT,
        "destination": Destination("api.example.com", "192.0.2.7", 443),
        "verdict": Verdict.DENY,
        "layer": Layer.CONNECT,
        "reason": Reason.NO_MATCH,
        "detail": {"n": n},
    }
    return Event(**(values | more))  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.db"


def found(path: Path) -> list[Event]:
    with AuditLog(path) as log:
        return [r.event for r in log.find()]


def test_flushed_records_are_read_back_in_order(path: Path) -> None:
    sent = [event(n) for n in range(300)]
    with open_sink(path, "w") as sink:
        for one in sent:
            sink.emit(one)
        sink.flush()
        assert found(path) == sent
        sink.emit(event(300))
    with AuditLog(path) as log:
        everything = log.find()
        assert len(everything) == 301, "closing flushes"
        assert [r.seq for r in everything] == list(range(1, 302))
        assert log.verify().intact


def test_mode_and_missing_folder(path: Path) -> None:
    with open_sink(path, "w") as sink:
        sink.emit(event())
        sink.flush()
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) & 0o137 == 0, file
    with pytest.raises(DatabaseError, match="No such file"), open_sink(path.parent / "no" / "a.db", "w"):
        pass


def test_emit_is_accepted_without_flush_and_becomes_durable(path: Path) -> None:
    with open_sink(path, "w") as sink:
        sink.emit(event())
        with AuditLog(path) as log:
            arrived = threading.Event()
            while not log.find():
                assert not arrived.wait(limits.AUDIT_COMMIT / 4)


def test_queue_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_QUEUE", 10)
    monkeypatch.setattr(limits, "AUDIT_COMMIT", 3600.0)
    with open_sink(path, "w") as sink:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")  # the writer waits for it, within the busy time
        for n in range(10):
            sink.emit(event(n))
        with pytest.raises(SinkError, match="10 records wait"):
            sink.emit(event())
        blocker.execute("COMMIT")
        blocker.close()
        sink.flush()
        sink.emit(event(11))
    assert len(found(path)) == 11


def test_locked_beyond_the_bound_fails_and_recovers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DATABASE_BUSY", 0.05)
    with open_sink(path, "w") as sink:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        sink.emit(event(1))
        with pytest.raises(SinkError, match="locked"):
            sink.flush()
        with pytest.raises(SinkError, match="locked"):
            sink.emit(event(2))
        blocker.execute("ROLLBACK")
        blocker.close()
        sink.flush()
        sink.emit(event(3))
    assert [e.detail["n"] for e in found(path)] == [1, 3]


def test_recovers_by_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DATABASE_BUSY", 0.01)
    monkeypatch.setattr(limits, "AUDIT_RETRY", 0.01)
    with open_sink(path, "w") as sink:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        sink.emit(event(1))
        with pytest.raises(SinkError):
            sink.flush()
        blocker.close()
        with AuditLog(path) as log:
            while not log.find():
                threading.Event().wait(0.005)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_full_disk_fails_and_recovers_without_loss(small_disk: Path) -> None:
    path = small_disk / "audit.db"
    accepted = 0
    with open_sink(path, "w") as sink:
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * 100_000)
        with pytest.raises(SinkError, match=r"full|disk I/O"):  # noqa: PT012
            while True:
                for _ in range(50):
                    sink.emit(event(accepted))
                    accepted += 1
                sink.flush()
        with pytest.raises(SinkError):
            sink.emit(event())
        ballast.unlink()
        sink.flush()
        sink.emit(event(accepted))
    assert [e.detail["n"] for e in found(path)] == list(range(accepted + 1))


def test_deleted_file_stays_failed(path: Path) -> None:
    with pytest.raises(SinkError), open_sink(path, "w") as sink:  # noqa: PT012 (closing raises too: a record is lost)
        sink.emit(event())
        sink.flush()
        path.unlink()
        sink.emit(event())
        for _ in range(2):
            with pytest.raises(SinkError, match="No such file"):
                sink.flush()
        assert not path.exists()
        path.write_bytes(b"")
        with pytest.raises(SinkError, match="replaced"):
            sink.flush()


def test_moved_away_and_back_recovers(path: Path) -> None:
    with open_sink(path, "w") as sink:
        sink.emit(event(1))
        sink.flush()
        path.rename(path.parent / "elsewhere")
        sink.emit(event(2))
        with pytest.raises(SinkError):
            sink.flush()
        (path.parent / "elsewhere").rename(path)
        sink.flush()
    assert [e.detail["n"] for e in found(path)] == [1, 2]


def test_after_close_and_after_fork(path: Path) -> None:
    with open_sink(path, "w") as sink:
        child = os.fork()
        if child == 0:
            try:
                sink.emit(event())
            except SinkError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    sink.close()
    with pytest.raises(SinkError, match="closed"):
        sink.emit(event())


@pytest.mark.parametrize(
    "detail", [{"x": object()}, {"x": float("nan")}, {"x": {f"k{i}": "v" * 60 for i in range(2000)}}]
)
def test_what_cannot_be_recorded_is_refused_and_harms_nothing(path: Path, detail: dict[str, object]) -> None:
    with open_sink(path, "w") as sink:
        with pytest.raises(SinkError):
            sink.emit(event(detail=detail))
        sink.emit(event())
    assert len(found(path)) == 1


def test_long_and_odd_texts(path: Path) -> None:
    odd = "\x1b[31m\x00\udc80\u202e" + "x" * 10_000
    with open_sink(path, "w") as sink:
        sink.emit(event(detail={"path": odd}, destination=Destination("hex:\udc80", None, 0)))
    (one,) = found(path)
    assert one.destination.host == "hex:\udc80"
    assert one.detail["path"].startswith(odd[: limits.AUDIT_TEXT])
    assert "10008 characters" in one.detail["path"]
    with AuditLog(path) as log:
        assert log.verify().intact


def test_one_writer_twice_continues_its_chain(path: Path) -> None:
    for n in range(3):
        with open_sink(path, "w") as sink:
            sink.emit(event(n))
    with open_sink(path, "w") as one, open_sink(path, "w") as two:
        for sink in (one, two, one):
            sink.emit(event())
            sink.flush()
    with AuditLog(path) as log:
        assert [r.seq for r in log.find()] == [1, 2, 3, 4, 5, 6]
        assert log.verify().intact


def test_first_record_hangs_on_the_newest(path: Path) -> None:
    for writer in ("a", "b"):
        with open_sink(path, writer) as sink:
            sink.emit(event())
    with AuditLog(path) as log:
        a, b = log.find()
        assert a.prev == records.GENESIS
        assert b.seq == 1
        assert b.prev == records.digest(records.canonical(records.as_dict(a)))


def test_newer_and_foreign_files_are_refused(path: Path) -> None:
    with open_sink(path, "w"):
        pass
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version={len(SCHEMA.steps) + 1}")
    newer.close()
    with pytest.raises(DatabaseError, match="newer") as caught, open_sink(path, "w"):
        pass
    assert caught.value.code == "database_newer"
    with pytest.raises(DatabaseError, match="newer"):
        AuditLog(path)
    other = path.parent / "other.db"
    foreign = sqlite3.connect(other)
    foreign.execute("CREATE TABLE t (x)")
    foreign.close()
    with pytest.raises(DatabaseError, match="not a sandboxd audit"), open_sink(other, "w"):
        pass
    rubbish = path.parent / "rubbish.db"
    rubbish.write_bytes(b"rubbish" * 1000)
    with pytest.raises(DatabaseError, match="not a database"), open_sink(rubbish, "w"):
        pass
    with pytest.raises(DatabaseError, match="no audit database"):
        AuditLog(path.parent / "missing.db")
