"""Each identity check, provoked on the real engine: what is not surely ours is never sealed."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.ids import sandbox_id
from sandboxd.pids import own_start_ticks
from sandboxd.settings import Settings
from sandboxd.warden import protocol as p
from sandboxd.warden.server import hardening, scratch, seccomp
from sandboxd.warden.server.engine import Engine
from sandboxd.warden.server.hardening import Made, Owner
from sandboxd.warden.server.identity import Identity, identify
from sandboxd.warden.server.namespace import run_inside
from sandboxd.warden.server.seal import seal_namespace, sockets_here

pytestmark = pytest.mark.docker
UID = 1_900_000_000
Change = Callable[[dict[str, Any]], None]
WORKLOAD: list[str] = []  # where a program lies that waits as the gate does


@dataclass
class Container:
    """A container as the warden makes it, but for one change."""

    engine: Engine
    id: str
    gate: int

    def identify(self, engine: Any = None, **more: Any) -> Identity:
        return identify(engine or self.engine, self.id, self.gate, "runc", **more)


Make = Callable[..., Container]


@pytest.fixture(autouse=True)
def impostor(built: Path, tmp_path: Path) -> None:
    """A copy of the gate: the same bytes, another inode."""
    path = tmp_path / "impostor"
    shutil.copy(built / "gate", path)
    WORKLOAD[:] = [str(path)]


@pytest.fixture
def make(settings: Settings, engine: Engine, image: str) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:

        def make(change: Change = lambda body: None, *, start: bool = True) -> Container:
            spec = p.ContainerSpec(sandbox_id(), "agent", "mcp:test", image)
            owner = Owner(os.getpid(), own_start_ticks())
            directory = scratch.warden_directory(settings.run_dir, owner)
            files = scratch.make_scratch(directory, spec.sandbox, settings.gate, UID)
            stack.callback(files.close)
            image_id = engine.inspect_image(image)["Id"]
            profile = seccomp.profile(unix_sockets=True)
            body = hardening.create_body(spec, Made(UID, image_id, (), str(files.path), (), owner, "run", profile))
            change(body)
            container = engine.create(hardening.container_name(spec.sandbox), body)
            stack.callback(engine.remove, container)
            if start:
                stack.enter_context(engine.attach(container))  # without it stdin is at its end, and the gate goes
                engine.start(container)
            return Container(engine, container, files.gate)

        yield make


def refused_as(work: Callable[[], object]) -> str:
    with pytest.raises(SandboxdError) as refused:
        work()
    assert refused.value.message
    return refused.value.code


def host(**changes: Any) -> Change:
    return lambda body: body["HostConfig"].update(changes)


def test_ours_is_identified(make: Make) -> None:
    identity = make().identify()
    assert identity.cgroup.pids() == (identity.pid,)
    identity.close()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (host(NetworkMode="host"), "network_mode"),
        (host(PidMode="host"), "pid_mode"),
        (host(Privileged=True), "privileged"),
        (host(CapAdd=["NET_ADMIN"]), "cap_add"),
        (host(CapDrop=[]), "cap_drop"),
        (host(Sysctls={"net.ipv4.ip_forward": "1"}), "sysctls"),
        (host(Devices=[{"PathOnHost": "/dev/null", "PathInContainer": "/dev/x", "CgroupPermissions": "r"}]), "devices"),
        (host(AutoRemove=False, RestartPolicy={"Name": "always"}), "restart_policy"),
        (lambda body: body.update(Healthcheck={"Test": ["CMD", "/bin/workload", "echo"]}), "health_check"),
        (lambda body: body.update(Entrypoint=["/bin/workload", "linger"]), "entrypoint"),
        (lambda body: body.update(Cmd=["more"]), "entrypoint"),
        (lambda body: body["HostConfig"]["Mounts"][0].update(Source=WORKLOAD[0]), "not_the_gate"),
    ],
)
def test_a_container_that_is_not_as_made(make: Make, change: Change, code: str) -> None:
    container = make(change)
    assert refused_as(container.identify) == code


def test_neighbours_of_the_network(make: Make) -> None:
    first = make()
    second = make(lambda body: (body.pop("Hostname"), body["HostConfig"].update(NetworkMode=f"container:{first.id}")))
    assert refused_as(second.identify) == "network_mode"


def test_not_running(make: Make) -> None:
    assert refused_as(make(start=False).identify) == "not_running"
    paused = make()
    subprocess.run(["docker", "pause", paused.id], check=True, capture_output=True)
    assert refused_as(paused.identify) == "not_running"
    subprocess.run(["docker", "unpause", paused.id], check=True, capture_output=True)


def test_restarted(make: Make, engine: Engine) -> None:
    container = make(host(AutoRemove=False))
    subprocess.run(["docker", "restart", "-t", "0", container.id], check=True, capture_output=True)
    assert refused_as(container.identify) in ("ran_before", "not_running")
    # The gate has no stdin after a restart and ends; an inspection that says it stayed shows what would be seen.
    again = make()
    ran = Lying(again.engine, _state(FinishedAt="2024-01-01T00:00:00Z"))
    assert refused_as(lambda: again.identify(ran)) == "ran_before"


def test_another_process_beside_the_gate(make: Make) -> None:
    container = make()
    subprocess.run(["docker", "exec", "-d", container.id, "/bin/workload", "linger"], check=True, capture_output=True)
    assert refused_as(container.identify) == "other_processes"


class Lying:
    """An engine whose inspections are changed: what pid reuse or a restart in between would look like."""

    def __init__(self, engine: Engine, *changes: Change) -> None:
        self._engine = engine
        self._changes = list(changes)

    def inspect(self, container: str) -> dict[str, Any]:
        found = self._engine.inspect(container)
        if self._changes:
            self._changes.pop(0)(found)
        return found


def test_a_reused_pid(make: Make, engine: Engine) -> None:
    container, other = make(), make()
    strange = engine.inspect(other.id)["State"]["Pid"]
    assert refused_as(lambda: container.identify(Lying(engine, _state(Pid=strange)))) == "cgroup"
    assert refused_as(lambda: container.identify(Lying(engine, _state(Pid=os.getpid())))) == "cgroup"
    with subprocess.Popen(["true"]) as ended:
        pass
    assert refused_as(lambda: container.identify(Lying(engine, _state(Pid=ended.pid)))) == "process_gone"


def _state(**changes: Any) -> Change:
    return lambda found: found["State"].update(changes)


def test_restarted_meanwhile(make: Make, engine: Engine) -> None:
    container = make()
    assert (
        refused_as(lambda: container.identify(Lying(engine, lambda f: None, _state(StartedAt="later")))) == "restarted"
    )


def test_not_its_own_namespace(make: Make, engine: Engine) -> None:
    container, other = make(), make()
    pid = engine.inspect(container.id)["State"]["Pid"]
    assert refused_as(lambda: container.identify(host_netns=f"/proc/{pid}/ns/net")) == "host_namespace"
    key = engine.inspect(other.id)["NetworkSettings"]["SandboxKey"]
    lying = Lying(engine, lambda found: found["NetworkSettings"].update(SandboxKey=key))
    assert refused_as(lambda: container.identify(lying)) == "not_dockers_namespace"
    lying = Lying(engine, lambda found: found["NetworkSettings"].update(SandboxKey=""))
    assert refused_as(lambda: container.identify(lying)) == "not_dockers_namespace"


def test_of_two_sealers_one_wins(make: Make) -> None:
    identity = make().identify()
    first = seal_namespace(identity.netns)
    assert refused_as(lambda: seal_namespace(identity.netns)) == "not_virgin"  # the first one's sockets
    first.close()
    assert refused_as(lambda: seal_namespace(identity.netns)) == "already_sealed"
    rules = run_inside(identity.netns, lambda: subprocess.check_output(["nft", "list", "tables"], text=True))
    assert rules == "table inet sandboxd\n"  # the loser cleaned up nothing
    identity.close()


def test_a_namespace_that_was_used(make: Make) -> None:
    identity = make().identify()

    def used(family: int, kind: int, protocol: int = 0) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        if family == socket.AF_PACKET:
            return sock
        sock.bind(("127.0.0.1" if family == socket.AF_INET else "::", 15001))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        return sock

    kinds = {"TCP": (socket.AF_INET, socket.SOCK_STREAM), "TCP6": (socket.AF_INET6, socket.SOCK_STREAM)}
    kinds |= {"UDP": (socket.AF_INET, socket.SOCK_DGRAM), "UDP6": (socket.AF_INET6, socket.SOCK_DGRAM)}
    kinds |= {"RAW": (socket.AF_INET, socket.SOCK_RAW, 1), "RAW6": (socket.AF_INET6, socket.SOCK_RAW, 58)}
    kinds |= {"packet": (socket.AF_PACKET, socket.SOCK_RAW, 3)}
    assert run_inside(identity.netns, sockets_here) == []
    for name, kind in kinds.items():
        with run_inside(identity.netns, lambda kind=kind: used(*kind)):
            assert run_inside(identity.netns, sockets_here) == [name]
            assert refused_as(lambda: seal_namespace(identity.netns)) == "not_virgin"
    with run_inside(identity.netns, lambda: socket.socket(socket.AF_UNIX)) as sock:
        run_inside(identity.netns, lambda: sock.bind("\0here"))
        assert refused_as(lambda: seal_namespace(identity.netns)) == "not_virgin"
    command = ["ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1"]
    run_inside(identity.netns, lambda: subprocess.run(command, check=True))
    assert refused_as(lambda: seal_namespace(identity.netns)) == "not_virgin"
    identity.close()


def test_rules_that_fail_to_load(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = make().identify()
    rules = "sandboxd.warden.server.seal._RULES"
    monkeypatch.setattr(rules, b"create table inet sandboxd\ntable inet sandboxd { chain x { nonsense } }\n")
    assert refused_as(lambda: seal_namespace(identity.netns)) == "seal_rules"
    tables = run_inside(identity.netns, lambda: subprocess.check_output(["nft", "list", "tables"], text=True))
    assert tables == ""
    identity.close()


def test_scratch_is_gone_and_gate_is_its_own(make: Make, settings: Settings) -> None:
    first, second = make(), make()
    inodes = {os.fstat(c.gate).st_ino for c in (first, second)}
    assert len(inodes | {os.stat(settings.gate).st_ino}) == 3
    assert Path(f"/proc/{os.getpid()}/fd/{first.gate}").exists()
