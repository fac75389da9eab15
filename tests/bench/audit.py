"""What a record costs: taking it, waiting for the disk, many at once; against SQLite with one commit a record."""

import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from sandboxd import ids, limits
from sandboxd.audit.events import Destination, Event, Subject
from sandboxd.audit.query import AuditLog
from sandboxd.audit.records import chained, flatten
from sandboxd.audit.store import open_sink
from sandboxd.reasons import Layer, Reason, Verdict

SUBJECT = Subject("default", "agent", "sb-0123456789abcdef", "mcp:fetch", 1, "a" * 64)


def an_event() -> Event:
    where = Destination("api.example.com", "192.0.2.1", 443)
    verdict = (Verdict.ALLOW, "allow-1", Layer.FIRST_BYTES, Reason.ALLOWED)
    detail = {"sni": ["api.example.com"], "alpn": ["h2", "http/1.1"]}
    return Event(ids.ulid(), time.time(), "decision", SUBJECT, where, "", *verdict, proto="tls", detail=detail)


def audit(count: int) -> None:
    """Prints records a second, µs an emit, ms a flush."""
    events = [an_event() for _ in range(count)]
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/var/tmp") as folder:
        path = Path(folder) / "audit.db"
        emits: list[float] = []
        begin = time.perf_counter()
        with open_sink(path, "bench") as sink:
            for number, event in enumerate(events, 1):
                before = time.perf_counter()
                sink.emit(event)
                emits.append(time.perf_counter() - before)
                if number % (limits.AUDIT_QUEUE // 2) == 0:
                    sink.flush()
        grouped = count / (time.perf_counter() - begin)
        flushes = flush_times(path, events[:200])
        alone = one_by_one(Path(folder) / "alone.db", events[:200])
        begin = time.perf_counter()
        with AuditLog(path) as log:
            assert log.verify().intact
        verified = log_size(path) / (time.perf_counter() - begin)
    print(f"audit ({count} records)")
    print(f"  durable records a second {grouped:8.0f}; one commit each {alone:.0f}")
    print(f"  emit, µs: median {statistics.median(emits) * 1e6:.1f}  p99 {sorted(emits)[int(count * 0.99)] * 1e6:.1f}")
    print(f"  emit and flush one record, ms: median {statistics.median(flushes) * 1e3:.2f}")
    print(f"  verify, records a second {verified:8.0f}")


def flush_times(path: Path, events: list[Event]) -> list[float]:
    """Seconds until one record is on the disk."""
    seen: list[float] = []
    with open_sink(path, "bench") as sink:
        for event in events:
            before = time.perf_counter()
            sink.emit(event)
            sink.flush()
            seen.append(time.perf_counter() - before)
    return seen


def one_by_one(path: Path, events: list[Event]) -> float:
    """The same texts a second, each in a transaction of its own."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE records (record TEXT)")
    begin = time.perf_counter()
    for number, event in enumerate(events, 1):
        text = chained(flatten(event), "bench", number, "0" * 64)
        connection.execute("INSERT INTO records VALUES (?)", (text,))
    rate = len(events) / (time.perf_counter() - begin)
    connection.close()
    return rate


def log_size(path: Path) -> int:
    with AuditLog(path) as log:
        return log.position()
