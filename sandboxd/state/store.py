"""The state database: who runs what (leases).

A lease is written before its container starts and ended after it is gone; one whose owner died stands until `reap`.
Docker's labels are the truth about containers, this is the truth about intentions; recovery compares the two. Not
here: audit records, policy. Called by the controller, several of them at once. Never holds a secret.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Generator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal

from sandboxd.database import Schema, open_database
from sandboxd.errors import SandboxdError

How = Literal["exited", "stopped", "failed", "abandoned"]

SCHEMA = Schema(
    kind="state",
    application=0x53425374,  # "SBSt"
    steps=(
        """
        CREATE TABLE leases (
            sandbox TEXT PRIMARY KEY,
            agent TEXT NOT NULL,
            workload TEXT NOT NULL,
            container TEXT NOT NULL,
            image TEXT NOT NULL,
            owner INTEGER NOT NULL,
            owner_start INTEGER NOT NULL,
            started REAL NOT NULL,
            ended REAL,
            how TEXT
        ) WITHOUT ROWID;
        CREATE INDEX leases_open ON leases (owner) WHERE ended IS NULL
        """,
    ),
)

_BEGIN = "INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_END = "UPDATE leases SET ended = ?, how = ? WHERE sandbox = ? AND ended IS NULL RETURNING 1"


class StateError(SandboxdError):
    """The state database could not be read or written."""

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__("state", f"state database: {error}", hint="check the disk, its space and permissions")


@dataclass(frozen=True, slots=True)
class Lease:
    """One sandbox and the process it belongs to. `owner_start`: field 22 of proc(5)'s `stat`, clock ticks since
    boot: with the pid it names a process for good. `started`, `ended`: wall seconds; `ended` None while it lives.
    The fields stand in the table's order."""

    sandbox: str
    agent: str
    workload: str
    container: str
    image: str
    owner: int
    owner_start: int
    started: float
    ended: float | None = None
    how: How | None = None


@contextlib.contextmanager
def open_state(path: Path) -> "Generator[State, None, None]":
    """The state database at `path`; its folder must exist. Raises sandboxd.database.DatabaseError."""
    connection = open_database(path, SCHEMA, durable=False)
    try:
        yield State(connection)
    finally:
        connection.close()


class State:
    """Small operations, each a transaction of its own; every one may raise StateError. For one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def begin(self, lease: Lease) -> None:
        """Write a new lease. The sandbox's name must be new."""
        self._execute(_BEGIN, *astuple(lease))

    def end(self, sandbox: str, how: How, at: float) -> bool:
        """End a lease; False where there is none that lives, and nothing changes then."""
        return bool(self._execute(_END, at, how, sandbox))

    def lease(self, sandbox: str) -> Lease | None:
        """The lease of that sandbox, ended or not."""
        rows = self._execute("SELECT * FROM leases WHERE sandbox = ?", sandbox)
        return Lease(*rows[0]) if rows else None

    def living(self) -> list[Lease]:
        """Leases that were not ended, oldest first. Their owners may be dead."""
        rows = self._execute("SELECT * FROM leases WHERE ended IS NULL ORDER BY started")
        return [Lease(*row) for row in rows]

    def reap(self, at: float, alive: Callable[[int, int], bool]) -> list[Lease]:
        """End as `abandoned` what belongs to processes that `alive(owner, owner_start)` doesn't know; return those
        that this call ended: of several controllers each lease is reaped by one."""
        dead = [lease for lease in self.living() if not alive(lease.owner, lease.owner_start)]
        return [lease for lease in dead if self.end(lease.sandbox, "abandoned", at)]

    def forget_ended(self, before: float) -> int:
        """Delete leases that ended earlier than `before`; how many."""
        return len(self._execute("DELETE FROM leases WHERE ended < ? RETURNING 1", before))

    def _execute(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StateError(error) from None
