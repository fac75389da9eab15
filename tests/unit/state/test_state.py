"""Leases: written by several controllers, reaped once, kept across processes."""

import os
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.pids import lives, own_start_ticks
from sandboxd.state.store import Lease, StateError, open_state

LEASE = Lease("sb-1", "agent", "mcp:x", "c" * 64, "sha256:1", 17, 1234, 1000.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_a_lease_lives_until_it_ends(path: Path) -> None:
    with open_state(path) as state:
        state.begin(LEASE)
        assert state.living() == [LEASE]
    with open_state(path) as state:
        assert state.end("sb-1", "exited", 1001.0)
        assert not state.end("sb-1", "failed", 1002.0), "once"
        assert state.living() == []
        assert state.lease("sb-1") == replace(LEASE, ended=1001.0, how="exited")
        assert state.lease("sb-2") is None
        assert not state.end("sb-2", "exited", 1.0)


def test_a_name_is_used_once(path: Path) -> None:
    with open_state(path) as state:
        state.begin(LEASE)
        with pytest.raises(StateError, match="UNIQUE"):
            state.begin(LEASE)


def test_reaping_takes_the_dead_and_each_once(path: Path) -> None:
    mine = replace(LEASE, sandbox="sb-2", owner=os.getpid(), owner_start=own_start_ticks())
    reused_pid = replace(mine, sandbox="sb-3", owner_start=mine.owner_start + 1)
    with open_state(path) as state, open_state(path) as other:
        for lease in (LEASE, mine, reused_pid):
            state.begin(lease)
        asked = threading.Barrier(2)

        def both_see_it(pid: int, start: int) -> bool:
            if pid == LEASE.owner:
                asked.wait()
            return lives(pid, start)

        reaped: list[list[Lease]] = []
        threads = [threading.Thread(target=lambda s=s: reaped.append(s.reap(5.0, both_see_it))) for s in (state, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(lease.sandbox for lot in reaped for lease in lot) == ["sb-1", "sb-3"]
        assert state.living() == [mine]
        assert state.forget_ended(5.0) == 0
        assert state.forget_ended(6.0) == 2


def test_four_controllers_at_once(path: Path) -> None:
    children: list[int] = []
    for owner in range(4):
        child = os.fork()
        if child == 0:
            with open_state(path) as state:
                for n in range(50):
                    state.begin(replace(LEASE, sandbox=f"sb-{owner}-{n}", owner=owner))
                    state.end(f"sb-{owner}-{n}", "stopped", 1.0)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    with open_state(path) as state:
        assert state.living() == []
        assert state.forget_ended(2.0) == 200


def test_a_damaged_file_is_a_clear_error(path: Path) -> None:
    with open_state(path) as state:
        sqlite3.connect(path).execute("DROP TABLE leases")
        with pytest.raises(StateError, match="no such table: leases"):
            state.living()
