"""A client's connection: every request has its one answer, a bug is a refusal, and no value reaches stderr."""

import os
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from sandboxd import channel, limits
from sandboxd.errors import SandboxdError
from sandboxd.settings import Settings
from sandboxd.warden import protocol as p
from sandboxd.warden.client import WardenClient, read_exit
from sandboxd.warden.server import images
from sandboxd.warden.server.cgroups import cgroup_of
from sandboxd.warden.server.engine import Engine
from sandboxd.warden.server.gateway_link import GatewayLink
from sandboxd.warden.server.hardening import Owner
from sandboxd.warden.server.identity import Identity
from sandboxd.warden.server.operations import Operations, serve_client
from sandboxd.warden.server.sandboxes import Host, Sandbox, Stage
from sandboxd.warden.server.workload import Workload


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Docker is not running there."""
    settings = Settings(docker_socket=tmp_path / "none", run_dir=tmp_path / "run", gate=tmp_path / "gate")
    return Host(settings, Engine(str(settings.docker_socket)), GatewayLink(socket.socketpair()[0]), Owner(1, 1))


@pytest.fixture
def client(host: Host) -> Any:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve_client, args=(theirs, host))
    thread.start()
    client = WardenClient(ours)
    yield client
    client.close()
    thread.join(10)
    assert not thread.is_alive()


SPEC = p.ContainerSpec("sb-0123456789abcdef", "agent", "mcp:x", "image:1")


def code_of(work: Any) -> str:
    with pytest.raises(SandboxdError) as refused:
        work()
    return refused.value.code


def test_docker_is_down_and_the_connection_lives(client: WardenClient) -> None:
    for _ in range(2):
        assert code_of(client.hello) == "docker_down"
        assert code_of(lambda: client.create(SPEC)) == "docker_down"
        assert code_of(client.images) == "docker_down"
    assert code_of(lambda: client.start(SPEC.sandbox)) == "no_sandbox"
    client.remove(SPEC.sandbox)


def test_a_removal_that_failed_lets_go_of_the_process(host: Host) -> None:
    """Its descriptors may be another's by now: what comes after goes to Docker."""
    with subprocess.Popen(["sleep", "3600"]) as process:
        pidfd, netns = os.pidfd_open(process.pid), os.open("/proc/self/ns/net", os.O_RDONLY)
        cgroup = cgroup_of(process.pid)
        sandbox = Sandbox(host, SPEC, stage=Stage.LAUNCHED, container="x")
        sandbox.identity = Identity(process.pid, pidfd, netns, cgroup)
        sandbox.workload = Workload(socket.socketpair()[0], pidfd, cgroup)
        assert code_of(sandbox.remove) == "docker_down"
    assert code_of(lambda: sandbox.stop(0)) == "docker_down"
    assert code_of(sandbox.remove) == "docker_down"


def test_another_version(host: Host) -> None:
    reply, socks = Operations(host).perform(p.Hello(99))
    assert isinstance(reply, p.Refused)
    assert (reply.code, socks) == ("version", ())


def test_a_bug_is_a_refusal_without_values(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    operations = Operations(host)

    def broken(_: str) -> None:
        raise ValueError("hunter2")

    operations.sandboxes.get = broken  # type: ignore[method-assign, assignment]
    reply, _ = operations.perform(p.Launch("sb-1", ("a",), {"TOKEN": "hunter2"}))
    assert isinstance(reply, p.Refused)
    assert reply.code == "internal"
    told = capfd.readouterr().err
    assert "Launch: ValueError at" in told
    assert "hunter2" not in told + repr(reply)


def test_an_answer_that_is_too_long_is_a_refusal(client: WardenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the connection, with the sandboxes made over it, lives on."""
    image = p.ImageInfo("id", (), {"sandboxd.lock": "x" * limits.CHANNEL_MESSAGE}, 0, 0.0, (), ())
    monkeypatch.setattr(images, "list_images", lambda *_: (image,))
    assert code_of(client.images) == "channel"
    assert code_of(client.hello) == "docker_down"


def test_what_is_no_request_ends_the_connection(host: Host) -> None:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve_client, args=(theirs, host))
    thread.start()
    channel.send(ours, p.Done())
    received = channel.receive(ours, p.REPLIES)
    assert received
    assert received[0].code == "channel"
    theirs.close()
    thread.join(10)
    assert not thread.is_alive()


def test_the_warden_is_gone() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    assert code_of(WardenClient(ours).hello) == "warden_gone"
    ours, theirs = socket.socketpair()
    theirs.close()
    assert read_exit(ours) == p.Exited(137)


def test_an_unexpected_answer_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    channel.send(theirs, p.Done())
    assert code_of(WardenClient(ours).hello) == "channel"
