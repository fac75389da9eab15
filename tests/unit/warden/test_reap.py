"""Whose a container or a directory is, and that only the dead's go."""

import os
from pathlib import Path
from typing import Any

import pytest

from sandboxd.pids import own_start_ticks, start_ticks
from sandboxd.warden.server import scratch
from sandboxd.warden.server.cgroups import parse_cgroups
from sandboxd.warden.server.hardening import Owner
from sandboxd.warden.server.reap import lives, owner_of, reap_directories

START = {"sandboxd.owner-start": "1"}
SANDBOX = "sb-0123456789abcdef"


def listed(**changes: Any) -> dict[str, Any]:
    labels = {"sandboxd.sandbox": SANDBOX, "sandboxd.owner": "4711", "sandboxd.owner-start": "99"}
    return {"Names": [f"/sandboxd-{SANDBOX}"], "Labels": labels} | changes


def test_ours_by_name_and_label() -> None:
    assert owner_of(listed()) == Owner(4711, 99)


@pytest.mark.parametrize(
    "changes",
    [
        {"Names": ["/someone"]},
        {"Names": None},
        {
            "Names": ["/sandboxd-"],
            "Labels": {"sandboxd.sandbox": "", "sandboxd.owner": "1", "sandboxd.owner-start": "1"},
        },
        {"Labels": None},
        {"Labels": {"sandboxd.sandbox": SANDBOX}},
        {"Labels": {"sandboxd.sandbox": SANDBOX, "sandboxd.owner": "x", "sandboxd.owner-start": "1"}},
    ],
)
def test_not_surely_ours(changes: dict[str, Any]) -> None:
    assert owner_of(listed(**changes)) is None


def test_who_lives() -> None:
    own = own_start_ticks()
    assert lives(Owner(os.getpid(), own))
    assert not lives(Owner(os.getpid(), own + 1))
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert start_ticks(pid) is None  # ended, though nobody waited
    os.waitpid(pid, 0)
    assert start_ticks(pid) is None


def test_directories_of_the_dead(tmp_path: Path) -> None:
    gate = tmp_path / "gate-binary"
    gate.write_bytes(b"gate")
    dead, living = Owner(1, 0), Owner(os.getpid(), own_start_ticks())
    for owner in (dead, living):
        made = scratch.make_scratch(scratch.warden_directory(tmp_path / "run", owner), SANDBOX, gate, 1000)
        made.mount_point(0)
    foreign = tmp_path / "run" / "not-ours"
    foreign.mkdir()
    assert reap_directories(tmp_path / "run") == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        [f"{living.pid}-{living.start}", "not-ours"]
    )


def test_two_reapers_at_once(tmp_path: Path) -> None:
    """What another one removed meanwhile stops nobody: containers are looked for after the directories."""
    for name in ("1-0", "2-0"):
        (tmp_path / name).mkdir()

    def someone_else_reaps(owner: Owner) -> bool:
        (tmp_path / f"{owner.pid}-{owner.start}").rmdir()
        return False

    assert reap_directories(tmp_path, someone_else_reaps) == 2


def test_unknown_files_stay(tmp_path: Path) -> None:
    """Removal never recurses: what could be a workspace is not emptied."""
    folder = tmp_path / "run" / "1-0" / SANDBOX / "mount-0"
    folder.mkdir(parents=True)
    (folder / "precious").write_text("x")
    assert reap_directories(tmp_path / "run") == 0
    assert (folder / "precious").read_text() == "x"


def test_cgroup_lines() -> None:
    first = parse_cgroups("4:memory:/docker/aa\n3:cpu,cpuacct:/docker/aa\n2:pids:/docker/aa\n0::/\n")
    assert (first["memory"], first["cpuacct"], first["pids"], first[""]) == ("docker/aa",) * 3 + ("",)
    assert parse_cgroups("0::/system.slice/docker-aa.scope\n") == {"": "system.slice/docker-aa.scope"}
