"""The lifeline from the warden's side, with a socket in the gate's place."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd import limits
from sandboxd.errors import SandboxdError
from sandboxd.warden.client import read_exit
from sandboxd.warden.protocol import Exited
from sandboxd.warden.server.cgroups import Cgroup
from sandboxd.warden.server.workload import Workload, accept_lifeline, kill_process


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "100"]) as sleeping:
        fd = os.pidfd_open(sleeping.pid)
        yield fd
        sleeping.kill()
        os.close(fd)


def workload(process: int, folder: Path) -> tuple[Workload, socket.socket]:
    ours, gate = socket.socketpair()
    return Workload(ours, process, Cgroup(folder, folder, unified=True)), gate


@pytest.mark.parametrize(
    ("told", "exited"),
    [
        (b"\0\0\0\0", Exited(0)),
        (b"\0\0\0\x2a", Exited(42)),
        (b"\0\0\0\x8f", Exited(143)),
        (b"", Exited(137)),
        (b"\0\0", Exited(137)),
        (b"\xff\xff\xff\xff", Exited(255)),
    ],
)
def test_how_it_ended(process: int, tmp_path: Path, told: bytes, exited: Exited) -> None:
    running, gate = workload(process, tmp_path)
    gate.sendall(told)
    gate.close()
    assert read_exit(running.exit_reader) == exited


@pytest.mark.parametrize(("unified", "name"), [(True, "memory.events"), (False, "memory.oom_control")])
def test_killed_by_the_memory_limit(process: int, tmp_path: Path, unified: bool, name: str) -> None:
    (tmp_path / name).write_text("low 0\noom 1\noom_kill 1\n")
    ours, gate = socket.socketpair()
    running = Workload(ours, process, Cgroup(tmp_path, tmp_path, unified=unified))
    gate.sendall(b"\0\0\0\x89")
    gate.close()
    assert read_exit(running.exit_reader) == Exited(137, oom=True)


def test_signals_go_through(process: int, tmp_path: Path) -> None:
    running, gate = workload(process, tmp_path)
    running.signal(signal.SIGINT)
    assert gate.recv(1) == bytes([signal.SIGINT])
    gate.sendall(b"\0\0\0\0")
    gate.close()
    read_exit(running.exit_reader)
    running.signal(signal.SIGINT)  # it has ended: nothing


def test_stop_asks_first(process: int, tmp_path: Path) -> None:
    running, gate = workload(process, tmp_path)

    def obey() -> None:
        assert gate.recv(1) == bytes([signal.SIGTERM])
        gate.sendall(b"\0\0\0\x8f")
        gate.close()

    thread = threading.Thread(target=obey)
    thread.start()
    running.stop(60.0)
    thread.join()
    assert read_exit(running.exit_reader).code == 143


def test_no_lifeline(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(limits, "LIFELINE", 0.05)
    with pytest.raises(SandboxdError) as refused:
        accept_lifeline(listener, process)
    assert refused.value.code == "gate_refused"
    assert listener.fileno() == -1
    listener = socket.create_server(("127.0.0.1", 0))
    kill_process(process)
    with pytest.raises(SandboxdError, match="ended"):
        accept_lifeline(listener, process)
    kill_process(process)  # again: nothing
