"""The log among processes: a killed writer loses nothing acknowledged, several writers share one file."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd.audit.query import AuditLog

WRITER = """
import sys
from pathlib import Path
from sandboxd import ids
from sandboxd.audit.events import Event, Subject
from sandboxd.audit.store import open_sink

path, writer, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with open_sink(path, writer) as sink:
    print("ready", flush=True)
    for n in range(count):
        sink.emit(Event(ids.ulid(), 1000.0 + n, "decision", Subject("t", writer, "sb", "w"), detail={"n": n}))
        if n % 7 == 6:
            sink.flush()
            print(n, flush=True)
"""


def start(path: Path, writer: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), writer, str(count)]
    root = Path(__file__).parents[3]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(root)})


def seen(path: Path, writer: str) -> list[int]:
    with AuditLog(path) as log:
        return [r.event.detail["n"] for r in log.find(agent=writer)]


@pytest.mark.parametrize("acknowledged", [1, 2, 5, 20])
def test_killed_writer_loses_nothing_acknowledged(tmp_path: Path, acknowledged: int) -> None:
    path = tmp_path / "audit.db"
    with start(path, "w", 1_000_000) as process:
        assert process.stdout
        process.stdout.readline()
        for _ in range(acknowledged):
            last = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        told = [last, *map(int, process.stdout.read().splitlines())]
    numbers = seen(path, "w")
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > told[-1]
    with AuditLog(path) as log:
        assert log.verify().intact


def test_four_writers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    processes = [start(path, f"w{n}", 300) for n in range(4)]  # all make the file at once, too
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    for n in range(4):
        assert seen(path, f"w{n}") == list(range(300))
    with AuditLog(path) as log:
        found = log.verify()
    assert found.intact
    assert {w: t.seq for w, t in found.tips.items()} == {f"w{n}": 300 for n in range(4)}


def test_four_processes_of_one_name_share_a_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    processes = [start(path, "same", 100) for _ in range(4)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    with AuditLog(path) as log:
        found = log.verify()
    assert found.intact
    assert found.tips["same"].seq == 400
