"""Opening SQLite files: one schema, numbered steps, several processes, and who may do what."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.database import DatabaseError, Schema, open_database, open_database_read_only

ONE = Schema("test", 77, ("CREATE TABLE a (x); INSERT INTO a VALUES (1)",))
TWO = replace(ONE, steps=(*ONE.steps, "CREATE TABLE b AS SELECT x + 1 AS y FROM a"))
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


def as_user(uid: int, act: Callable[[], object]) -> str:
    """What `act` returned or raised as another user, in a child."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            said = str(act())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as stream:
        return stream.read()


def test_steps_are_applied_once_each_in_order(path: Path) -> None:
    open_database(path, ONE, durable=True).close()
    for _ in range(2):
        connection = open_database(path, TWO, durable=False)
        assert connection.execute("SELECT y FROM b").fetchall() == [(2,)]
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()
    with pytest.raises(DatabaseError, match="version 2; this sandboxd knows up to 1") as caught:
        open_database(path, ONE, durable=True)
    assert caught.value.code == "database_newer"


def test_a_step_that_fails_changes_nothing(path: Path) -> None:
    open_database(path, ONE, durable=True).close()
    with pytest.raises(DatabaseError, match="no such table"):
        open_database(path, replace(TWO, steps=(*TWO.steps, "DROP TABLE nowhere")), durable=True)
    connection = open_database(path, ONE, durable=True)
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    connection.close()


def test_another_programs_file_is_refused(path: Path) -> None:
    open_database(path, ONE, durable=True).close()
    for opener in (lambda s: open_database(path, s, durable=True), lambda s: open_database_read_only(path, s)):
        with pytest.raises(DatabaseError, match="not a sandboxd test database"):
            opener(replace(ONE, application=78))


def test_names_with_odd_characters(tmp_path: Path) -> None:
    path = tmp_path / "a?b#c%20 d.db"
    open_database(path, ONE, durable=True).close()
    assert path.exists()


@pytest.mark.root
def test_a_reader_without_any_permission(path: Path) -> None:
    open_database(path, ONE, durable=True).close()
    path.parent.chmod(0o700)
    says = as_user(NOBODY, lambda: open_database_read_only(path, ONE))
    assert "DatabaseError" in says
    assert "Permission denied" in says
    assert "read it as root" in says


@pytest.mark.root
def test_a_reader_without_write_permission(path: Path) -> None:
    writer = open_database(path, ONE, durable=True)
    for folder in (path.parent, *path.parent.parents[:-2]):
        folder.chmod(0o755)
    path.chmod(0o644)

    def read() -> object:
        connection = open_database_read_only(path, ONE)
        return connection.execute("SELECT x FROM a").fetchall()

    for name in ("-wal", "-shm"):
        (path.parent / (path.name + name)).chmod(0o644)
    assert as_user(NOBODY, read) == "[(1,)]", "beside a writer"
    writer.close()
    assert as_user(NOBODY, read) == "[(1,)]", "with no log there"
    says = as_user(NOBODY, lambda: open_database(path, ONE, durable=True))
    assert "DatabaseError" in says
