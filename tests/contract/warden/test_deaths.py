"""SIGKILL of any process, at any stage: nothing is left, and no byte leaves meanwhile."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandboxd.settings import Settings
from sandboxd.warden import protocol as p
from sandboxd.warden.client import WardenClient, read_exit
from sandboxd.warden.server.cgroups import cgroup_of
from sandboxd.warden.server.engine import Engine
from sandboxd.warden.server.guardian import fork_processes
from sandboxd.warden.server.reap import reap
from tests.kit.gateway import CANARY, run_refusing_gateway
from tests.kit.processes import Family, find_family, kill, wait_for_end
from tests.kit.warden import launch, open_warden, spec_of

pytestmark = pytest.mark.docker


@dataclass
class Run:
    """One run's processes, seen from a test that outlives them: `controller` is a process of its own."""

    controller: int
    family: Family
    container: str
    sandbox: str
    pid: int


Start = Callable[[str], Run]


@pytest.fixture
def start(settings: Settings, image: str, engine: Engine, tmp_path: Path) -> Iterator[Start]:
    """Start a controller that takes a sandbox to a stage ("create" … "launch") and then waits."""
    runs: list[Run] = []
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "kept").write_text("kept")

    def start(stage: str) -> Run:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.close(reader)
            control(settings, image, workspace, stage, writer)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            told = json.loads(pipe.readline() or "{}")
        assert told, "the controller failed"
        running = engine.inspect(told["container"])["State"]["Pid"]
        runs.append(Run(pid, find_family(pid), told["container"], told["sandbox"], running))
        return runs[-1]

    yield start
    for run in runs:
        kill(run.controller)  # one that was killed already waits to be reaped
        os.waitpid(run.controller, 0)
        wait_for_end(*run.family.all())
    assert (workspace / "kept").read_text() == "kept"


def control(settings: Settings, image: str, workspace: Path, stage: str, writer: int) -> None:
    """The controller's whole life; never returns into the test."""
    try:
        client = WardenClient(fork_processes(settings, lambda: run_refusing_gateway))
        wait_for_all(client)
        spec = spec_of(image, mounts=(p.Mount(str(workspace), "/workspace", read_only=False),))
        created = client.create(spec)
        steps = {
            "create": lambda: None,
            "start": lambda: client.start(spec.sandbox),
            "seal": lambda: client.seal(spec.sandbox),
            "probe": lambda: client.probe(spec.sandbox, CANARY),
            "launch": lambda: client.launch(spec.sandbox, ["workload", "deaf"], {"PATH": "/bin"}),
        }
        kept = []
        for name, step in steps.items():
            kept.append(step())
            if name == stage:
                break
        os.write(writer, json.dumps({"container": created.container, "sandbox": spec.sandbox}).encode() + b"\n")
        os.close(writer)
        while True:
            signal.pause()
    finally:
        os._exit(1)


def wait_for_all(client: WardenClient) -> None:
    """Once its gateway answers, all three processes of a run live. A session that reached a dying gateway ends, and
    is asked for again, as a controller does."""
    for _ in range(20):
        with client.gateway() as session, contextlib.suppress(ConnectionError):
            session.sendall(b"?")
            if session.recv(1) == b"?":
                return
    raise AssertionError("no gateway answers")


def nothing_left(run: Run, engine: Engine, settings: Settings) -> None:
    """No process, container, mount or file of the run. Docker's own removal is waited for, by its event."""
    wait_for_end(*run.family.all())
    if run.pid:
        wait_for_end(run.pid)
    engine.wait_removed(run.container)
    assert engine.inspect_or_none(run.container) is None
    assert run.sandbox not in Path("/proc/self/mounts").read_text()
    assert not list(settings.run_dir.rglob(run.sandbox))
    claims = [line for line in Path("/proc/net/unix").read_text().splitlines() if "@sandboxd/uid/" in line]
    assert len(claims) == len({line.split()[-1] for line in claims})


STAGES = ["create", "start", "seal", "probe", "launch"]


@pytest.mark.parametrize("stage", STAGES)
def test_client(start: Start, engine: Engine, settings: Settings, stage: str) -> None:
    run = start(stage)
    kill(run.controller)
    nothing_left(run, engine, settings)


@pytest.mark.parametrize("stage", STAGES)
def test_warden(start: Start, engine: Engine, settings: Settings, stage: str) -> None:
    run = start(stage)
    kill(run.family.warden)
    nothing_left(run, engine, settings)


@pytest.mark.parametrize("stage", STAGES)
def test_guardian(start: Start, engine: Engine, settings: Settings, stage: str) -> None:
    run = start(stage)
    kill(run.family.guardian)
    nothing_left(run, engine, settings)


def test_client_and_warden(start: Start, engine: Engine, settings: Settings) -> None:
    run = start("launch")
    kill(run.controller, run.family.warden)
    nothing_left(run, engine, settings)


def test_warden_and_gateway(start: Start, engine: Engine, settings: Settings) -> None:
    run = start("launch")
    kill(run.family.warden, run.family.gateway)
    nothing_left(run, engine, settings)


@pytest.mark.parametrize("stage", ["start", "seal", "launch"])
def test_the_whole_group(start: Start, engine: Engine, settings: Settings, stage: str) -> None:
    """Nobody of ours is left to clean up: the gate ends by its lifeline or its input, Docker removes."""
    run = start(stage)
    os.killpg(run.family.guardian, signal.SIGKILL)
    kill(run.controller)
    nothing_left(run, engine, settings)


def test_everyone_before_anything_runs(start: Start, engine: Engine, settings: Settings) -> None:
    """A container that never started has nobody who ends it: the next warden's start reaps it, mount and files."""
    run = start("create")
    kill(run.controller, *run.family.all())
    wait_for_end(*run.family.all())
    assert engine.inspect_or_none(run.container)
    assert run.sandbox in Path("/proc/self/mounts").read_text()
    assert reap(engine, settings.run_dir) >= 2
    nothing_left(run, engine, settings)


def test_the_gate_itself(start: Start, engine: Engine, settings: Settings) -> None:
    run = start("launch")
    kill(run.pid)
    engine.wait_removed(run.container)
    kill(run.controller)
    nothing_left(run, engine, settings)


def test_restarted_by_someone_else(start: Start, engine: Engine, settings: Settings) -> None:
    """A restart is a new, unsealed namespace: Docker removes the container instead, or in it the gate waits for orders
    that never come, and nothing else runs."""
    run = start("launch")
    subprocess.run(["docker", "restart", "-t", "0", run.container], check=False, capture_output=True)
    found = engine.inspect_or_none(run.container)
    if found and found["State"]["Pid"]:
        group = cgroup_of(found["State"]["Pid"])
        assert len(group.pids()) <= 1
    kill(run.controller)
    nothing_left(run, engine, settings)


def test_the_gateway_comes_back(settings: Settings, image: str) -> None:
    """While no gateway lives the warden refuses in its place; the next one takes over the same listeners."""
    client = WardenClient(fork_processes(settings, lambda: run_refusing_gateway))
    wait_for_all(client)
    first = find_family(os.getpid())
    running = launch(client, spec_of(image), "workload", "echo")
    with client.gateway() as session:
        session.sendall(b"there?")
        assert session.recv(16) == b"there?"
        kill(first.gateway)
        assert session.recv(16) == b""
    wait_for_all(client)
    second = find_family(os.getpid())
    assert second.gateway != first.gateway
    assert (second.guardian, second.warden) == (first.guardian, first.warden)
    running.stream.sendall(b"undisturbed")
    running.read_until(b"undisturbed")
    again = launch(client, spec_of(image), "workload", "dial", p.CANARY_ADDRESS, "1")
    assert again.read_all().decode() == f"{CANARY}.\n"
    client.close()
    wait_for_end(*second.all())


def test_no_gateway_at_all(settings: Settings, image: str) -> None:
    """The warden stands in: connections are reset, names refused, ports taken; and no start."""

    def never(link: socket.socket) -> int:
        return 1

    with open_warden(settings, never) as client:
        spec = spec_of(image)
        client.create(spec)
        client.start(spec.sandbox)
        client.seal(spec.sandbox)
        results = {result.name: result for result in client.probe(spec.sandbox, CANARY)}
    assert not results.pop("the canary answers").ok
    assert all(result.ok for result in results.values()), results
    assert results["a forbidden name"].seen == "rcode 5"
    assert results["TCP to a literal address"].seen == "ECONNRESET"


def test_two_runs_reap_nothing_of_each_other(start: Start, engine: Engine, settings: Settings) -> None:
    living, dying = start("launch"), start("launch")
    kill(dying.controller)
    nothing_left(dying, engine, settings)
    assert engine.inspect(living.container)["State"]["Running"]
    reap(engine, settings.run_dir)
    assert engine.inspect(living.container)["State"]["Running"]


def test_a_foreign_container_is_never_touched(engine: Engine, settings: Settings, image: str) -> None:
    """Labels can come from an image: without the name, nothing is ours."""
    labels = {"sandboxd.sandbox": "sb-0123456789abcdef", "sandboxd.owner": "1", "sandboxd.owner-start": "1"}
    body = {"Image": image, "Labels": labels, "Cmd": ["/bin/workload", "linger"]}
    foreign = engine.create(f"sandboxd-test-foreign-{os.getpid()}", body)
    try:
        reap(engine, settings.run_dir)
        assert engine.inspect_or_none(foreign)
    finally:
        engine.remove(foreign)


def test_exit_is_told_when_the_warden_dies(settings: Settings, image: str) -> None:
    client = WardenClient(fork_processes(settings, lambda: run_refusing_gateway))
    wait_for_all(client)
    family = find_family(os.getpid())
    running = launch(client, spec_of(image), "workload", "linger")
    running.read_until(b"ready")
    threading.Timer(0.0, kill, (family.warden,)).start()
    assert read_exit(running.exit) == p.Exited(137)
    assert running.stream.recv(1) == b""
    wait_for_end(*family.all())


def test_no_process_holds_the_callers_pipes(settings: Settings) -> None:
    """What waits for our end of a pipe must see it when the controller is gone."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); from tests.kit.held_pipes import main; main(*sys.argv[2:])"
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root), str(settings.gate), str(settings.run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as controller:
        assert controller.stdout
        assert controller.stdout.readline() == b"started\n"
        controller.kill()
        assert controller.stdout.read() == b""
