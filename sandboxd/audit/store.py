"""The SQLite sink: emit never blocks, one thread commits in groups, flush waits for the disk.

States: *working*; *failing*, where a commit failed (disk full, locked beyond `limits.DATABASE_BUSY`, file gone or
replaced): every emit and flush raises SinkError, the records already taken are kept, and each `limits.AUDIT_RETRY` the
thread tries again, so it works again by itself once the cause is gone (a file that was deleted is never made anew);
*closed*. Opened after a fork, by the process that uses it. Called by the gateway's process. Reading is `query`'s.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from sandboxd import limits
from sandboxd.audit import records
from sandboxd.audit.database import SCHEMA
from sandboxd.audit.events import Event, SinkError
from sandboxd.database import open_database, reopen_database

_COLUMNS = (*records.COLUMNS, "writer", "seq", "record")
_INSERT = f"INSERT INTO records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608


@contextlib.contextmanager
def open_sink(path: Path, writer: str) -> "Generator[SqliteSink, None, None]":
    """A sink for the database at `path`; its folder must exist. `writer` names the chain: a process's own, best unique.

    Raises sandboxd.database.DatabaseError where the database can't be opened, SinkError at the end where records
    could not be made durable within `limits.AUDIT_CLOSE` seconds.
    """
    sink = SqliteSink(path, writer)
    try:
        yield sink
    except BaseException:
        with contextlib.suppress(SinkError):  # the first error is the one to tell
            sink.close()
        raise
    sink.close()


class SqliteSink:
    """`sandboxd.audit.events.Sink` on SQLite. Made by `open_sink`; any thread may call it."""

    def __init__(self, path: Path, writer: str) -> None:
        self._file = _File(path, writer)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._some = threading.Condition(self._lock)  # something to write, or closing
        self._hurry = threading.Condition(self._lock)  # commit now
        self._tried = threading.Condition(self._lock)  # a commit succeeded or failed
        self._waiting: list[dict[str, Any]] = []
        self._emitted = self._durable = 0  # records taken, records on the disk
        self._begun = self._ended = 0  # tries to commit
        self._pressed = False
        self._failure: str | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._write, name="audit", daemon=True)
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Take `event` and return at once. Its `detail` must not change afterwards.

        Raises SinkError where the queue is full, the store is failing or closed, or the event can't be recorded.
        """
        self._check_process()
        fields = records.flatten(event)
        with self._lock:
            self._check_open()
            if self._failure is not None:
                raise SinkError(self._failure)
            if self._emitted - self._durable >= limits.AUDIT_QUEUE:
                raise SinkError(f"{limits.AUDIT_QUEUE} records wait for the disk")
            self._waiting.append(fields)
            self._emitted += 1
            if len(self._waiting) == 1:
                self._some.notify()
            elif len(self._waiting) == limits.AUDIT_QUEUE // 2:
                self._hurry.notify()

    def flush(self) -> None:
        """Return once everything emitted so far is on the disk; a failing store tries again first.

        Raises SinkError where the try after this call fails, or nothing comes of it in time.
        """
        self._check_process()
        with self._lock:
            self._check_open()
            self._flush(limits.DATABASE_BUSY + limits.AUDIT_CLOSE)

    def close(self) -> None:
        """Flush, then end. Idempotent. Raises SinkError where records are lost."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._closing:
                return
            try:
                self._flush(limits.AUDIT_CLOSE)
            finally:
                self._closing = True
                self._some.notify()
                self._hurry.notify()
        self._thread.join(limits.AUDIT_CLOSE)

    def _check_process(self) -> None:
        # before the lock is touched: a fork may have copied it locked
        if self._pid != os.getpid():
            raise SinkError("the sink was opened before a fork")

    def _check_open(self) -> None:
        if self._closing:
            raise SinkError("the sink is closed")

    def _flush(self, patience: float) -> None:
        target, next_try = self._emitted, self._begun + 1  # one under way may have failed before the cause was gone
        if self._durable >= target:
            return
        self._pressed = True
        self._hurry.notify()

        def settled() -> bool:
            return self._durable >= target or (self._failure is not None and self._ended >= next_try)

        done = self._tried.wait_for(settled, patience)
        if self._durable < target:
            raise SinkError(self._failure if done and self._failure else "the disk takes too long")

    # --- the writer thread -----------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            self._commit_groups()
        finally:  # also where it dies of a bug: from then on nothing may pass unrecorded
            with self._lock:
                self._failure = "the audit writer has ended"
                self._ended = self._begun = self._begun + 1
                self._tried.notify_all()
            self._file.close()

    def _commit_groups(self) -> None:
        batch: list[dict[str, Any]] = []
        while True:
            with self._lock:
                self._gather(batch)
                if self._closing:
                    return
                batch += self._waiting
                self._waiting.clear()
                self._begun += 1
                self._pressed = False
            failure = self._file.commit(batch)
            with self._lock:
                self._ended += 1
                self._failure = failure
                if failure is None:
                    self._durable += len(batch)
                    batch.clear()
                self._tried.notify_all()

    def _gather(self, batch: list[dict[str, Any]]) -> None:
        """Wait for the first record, then a little for more; after a failure for the next try."""
        if not batch:
            self._some.wait_for(lambda: self._waiting or self._closing)
        if not self._pressed and not self._closing:
            self._hurry.wait(limits.AUDIT_COMMIT if self._failure is None else limits.AUDIT_RETRY)


class _File:
    """The database as the writer thread sees it: commit a batch, or say why not. Reopens after a failure."""

    def __init__(self, path: Path, writer: str) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._writer = writer
        self._connection: sqlite3.Connection | None = open_database(path, SCHEMA, durable=True)
        # Holds the inode, so that no other file can ever look like this one. O_PATH: closing it drops no locks.
        self._held = os.open(path, os.O_PATH | os.O_CLOEXEC)

    def commit(self, batch: list[dict[str, Any]]) -> str | None:
        """Append `batch` durably; None, or what went wrong. Then nothing was appended, unless the disk failed or the
        file vanished in the middle of it: a record may stand in the log twice, never not at all."""
        try:
            self._check_identity()
            self._append(batch)
            # A commit to a file that was unlinked meanwhile is lost when the process ends.
            self._check_identity()
            self._log.stat()
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            return f"audit database {self._path}: {error}"
        return None

    def close(self) -> None:
        """Release the file."""
        self._disconnect()
        os.close(self._held)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    def _append(self, batch: list[dict[str, Any]]) -> None:
        if self._connection is None:
            self._connection = reopen_database(self._path, durable=True)
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(_INSERT, self._rows(batch, *self._tip(connection)))
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back by itself
                connection.execute("ROLLBACK")
            raise

    def _rows(self, batch: list[dict[str, Any]], seq: int, prev: str) -> Iterator[tuple[Any, ...]]:
        for fields in batch:
            seq += 1
            text = records.chained(fields, self._writer, seq, prev)
            yield (*records.columns(fields), self._writer, seq, text)
            prev = records.digest(text)

    def _tip(self, connection: sqlite3.Connection) -> tuple[int, str]:
        """The last seq of this writer and the hash to hang the next record on. Read in the transaction: a writer
        that restarts, or shares its name, goes on with the same chain."""
        own = connection.execute(
            "SELECT seq, record FROM records WHERE writer = ? ORDER BY seq DESC LIMIT 1", (self._writer,)
        ).fetchone()
        newest = own or connection.execute("SELECT 0, record FROM records ORDER BY row DESC LIMIT 1").fetchone()
        return (newest[0], records.digest(newest[1])) if newest else (0, records.GENESIS)

    def _check_identity(self) -> None:
        if not os.path.samestat(self._path.stat(), os.fstat(self._held)):
            raise OSError("the file was replaced")
