"""Opens SQLite files the one way this project uses them: WAL, several processes, a schema in numbered steps.

`audit` and `state` each describe their file as a `Schema`; what the tables mean is theirs. Not here: queries.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sandboxd import limits
from sandboxd.errors import SandboxdError

# A new database is readable by its owner and its group, never by others.
FILE_MODE = 0o640


class DatabaseError(SandboxdError):
    """A database can't be opened. `code` is `database`, or `database_newer` where a newer sandboxd wrote it."""

    def __init__(self, message: str, *, hint: str = "", code: str = "database") -> None:
        super().__init__(code, message, hint=hint)


@dataclass(frozen=True, slots=True)
class Schema:
    """What a file must be. `kind` for messages; `application` is its PRAGMA application_id (sqlite.org/pragma.html);
    `steps[n]` is the SQL that brings version n to n + 1. A released step is never changed, only followed."""

    kind: str
    application: int
    steps: tuple[str, ...]


def open_database(path: Path, schema: Schema, *, durable: bool) -> sqlite3.Connection:
    """A connection for reading and writing in autocommit mode; the file is made and brought up to date where needed.

    `durable`: each commit is on the disk before it returns (synchronous=FULL), else it survives the death of every
    process but perhaps not a power cut. The folder must exist. Raises DatabaseError.
    """
    try:
        with _alone_in(path.parent):
            _make_file(path)
            return _prepared(path, schema, durable=durable)
    except OSError as error:
        raise DatabaseError(f"{path}: {error.strerror}", hint="the folder must exist and belong to this user") from None
    except sqlite3.Error as error:
        raise _explained(path, schema, error) from None


def reopen_database(path: Path, *, durable: bool) -> sqlite3.Connection:
    """A connection to a file that was prepared before. Raises sqlite3.Error, also where the file is gone."""
    connection = _connect(path, "rw")
    connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    connection.execute(f"PRAGMA journal_size_limit={limits.DATABASE_LOG}")
    return connection


def open_database_read_only(path: Path, schema: Schema) -> sqlite3.Connection:
    """A connection that can't write. Raises DatabaseError, also where the file is not there."""
    try:
        os.stat(path)
    except FileNotFoundError:
        raise DatabaseError(
            f"no {schema.kind} database at {path}", hint="nothing has been recorded there yet"
        ) from None
    except OSError as error:
        raise DatabaseError(f"{path}: {error.strerror}", hint="read it as root, for instance with sudo") from None
    try:
        return _readable(path, schema)
    except sqlite3.Error as error:
        raise _explained(path, schema, error) from None


def _readable(path: Path, schema: Schema) -> sqlite3.Connection:
    connection = _connect(path, "ro")
    try:
        _checked_version(connection, path, schema)
    except sqlite3.OperationalError:
        connection.close()
        # A reader who may not write the folder can't make the -shm file. Without a log there is nothing in flight,
        # and the main file alone is the whole database.
        if _log(path).exists():
            raise
        connection = _connect(path, "ro", "immutable=1")
        _checked_version(connection, path, schema)
    return connection


def _log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


@contextlib.contextmanager
def _alone_in(folder: Path) -> Generator[None, None, None]:
    """One process at a time prepares a file: SQLite's busy time-out does not cover the switch to WAL."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make_file(path: Path) -> None:
    """Create it with our mode. Never opens an existing one: closing it would drop SQLite's locks in this process."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))


def _connect(path: Path, mode: str, *options: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?{'&'.join((f'mode={mode}', *options))}"
    return sqlite3.connect(uri, uri=True, timeout=limits.DATABASE_BUSY, isolation_level=None, check_same_thread=False)


def _prepared(path: Path, schema: Schema, *, durable: bool) -> sqlite3.Connection:
    connection = reopen_database(path, durable=durable)
    try:
        version = _checked_version(connection, path, schema)
        if version < len(schema.steps):
            connection.execute("PRAGMA journal_mode=WAL")
            _migrate(connection, schema, version)
        connection.execute("BEGIN IMMEDIATE")  # a file that can't be written shows now, not at the first record
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, schema: Schema, version: int) -> None:
    """All missing steps in one transaction, so that every reader sees one version."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in schema.steps[version:]:
            for statement in filter(str.strip, step.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={schema.application}")
        connection.execute(f"PRAGMA user_version={len(schema.steps)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _checked_version(connection: sqlite3.Connection, path: Path, schema: Schema) -> int:
    connection.execute("BEGIN")  # one snapshot for the three
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute("COMMIT")
    if application != schema.application and (application or version or tables):
        raise DatabaseError(f"{path} is not a sandboxd {schema.kind} database", hint="move it away, or name another")
    if version > len(schema.steps):
        raise DatabaseError(
            f"{path} has schema version {version}; this sandboxd knows up to {len(schema.steps)}",
            hint="a newer sandboxd wrote it: use that version",
            code="database_newer",
        )
    return version


def _explained(path: Path, schema: Schema, error: sqlite3.Error) -> DatabaseError:
    return DatabaseError(f"{schema.kind} database {path}: {error}", hint="check the disk, its space and permissions")
