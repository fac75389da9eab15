"""What a command's end does to the state database."""

import time
from dataclasses import replace
from pathlib import Path

from sandboxd import limits, pids
from sandboxd.cli.processes import StateLeases
from sandboxd.state.store import Lease, open_state


def test_an_end_cleans_up_after_runs_that_were_killed(tmp_path: Path) -> None:
    killed = Lease("sb-killed", "agent", "mcp:x", "c" * 64, "sha256:1", owner=1, owner_start=0, started=1.0)
    elsewhere = replace(killed, sandbox="sb-elsewhere", owner_start=pids.start_ticks(1) or 0)
    with open_state(tmp_path / "state.db") as state:
        for lease in (killed, elsewhere, replace(killed, sandbox="sb-old")):
            state.begin(lease)
        state.end("sb-old", "exited", time.time() - limits.LEASES_KEPT - 1)
        leases = StateLeases(state)
        leases.begin("sb-own", "agent", "mcp:x", "c" * 64, "sha256:1")
        assert {lease.sandbox for lease in state.living()} == {"sb-killed", "sb-elsewhere", "sb-own"}
        leases.end("sb-own", failed=False)
        assert state.living() == [elsewhere]
        ends = {name: state.lease(name) for name in ("sb-killed", "sb-own", "sb-old")}
        assert {name: lease and lease.how for name, lease in ends.items()} == {
            "sb-killed": "abandoned",
            "sb-own": "exited",
            "sb-old": None,
        }
