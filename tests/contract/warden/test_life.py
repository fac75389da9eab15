"""A sandbox's whole life on the real engine."""

import os
import socket

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.settings import Settings
from sandboxd.warden import protocol as p
from sandboxd.warden.client import WardenClient, read_exit
from sandboxd.warden.server.engine import Engine
from tests.kit.gateway import CANARY
from tests.kit.warden import ENV, launch, open_warden, run_to_end, spec_of

pytestmark = pytest.mark.docker


def test_runs_streams_and_ends(client: WardenClient, image: str, engine: Engine) -> None:
    running = launch(client, spec_of(image), "workload", "echo")
    running.stream.sendall(b"there and back")
    running.read_until(b"there and back")
    running.stream.shutdown(socket.SHUT_WR)
    assert running.read_all() == b"there and back"
    assert read_exit(running.exit) == p.Exited(0)
    client.remove(running.id)
    assert engine.inspect_or_none(running.created.container) is None
    assert running.id not in [c.sandbox for c in client.list_containers()]


def test_nobody_else_writes_where_root_mounts_and_removes(settings: Settings, image: str) -> None:
    """Whatever umask the client has: some daemons' is 0."""
    before = os.umask(0)
    try:
        with open_warden(settings) as client:
            client.create(spec_of(image))
            made = [settings.run_dir, *settings.run_dir.rglob("*")]
            assert len(made) > 3
            assert not [path for path in made if path.stat().st_mode & 0o022]
    finally:
        os.umask(before)


def test_environment_is_the_orders_and_nothing_else(client: WardenClient, image: str, engine: Engine) -> None:
    running = launch(client, spec_of(image), "workload", "env", env={**ENV, "TOKEN": "hunter2"})
    assert running.read_all() == b"PATH=/bin\nTOKEN=hunter2\n"


def test_exit_codes(client: WardenClient, image: str) -> None:
    for argv, code in ((("workload", "exit", "42"), 42), (("nothere",), 127), (("/etc",), 126)):
        running = launch(client, spec_of(image), *argv)
        running.read_all()
        assert read_exit(running.exit).code == code
        client.remove(running.id)


def test_order_is_enforced(client: WardenClient, image: str) -> None:
    spec = spec_of(image)
    client.create(spec)
    steps = [
        lambda: client.seal(spec.sandbox),
        lambda: client.probe(spec.sandbox, CANARY),
        lambda: client.launch(spec.sandbox, ["workload"], ENV),
        lambda: client.connect(spec.sandbox, 80),
        lambda: client.signal(spec.sandbox, 15),
        lambda: client.commit(spec.sandbox, "a:b", {}),
    ]
    for step in steps:
        with pytest.raises(SandboxdError) as refused:
            step()
        assert refused.value.code == "out_of_order"
    client.remove(spec.sandbox)
    client.remove(spec.sandbox)


def test_two_at_once(client: WardenClient, image: str) -> None:
    first, second = (launch(client, spec_of(image), "workload", "linger") for _ in range(2))
    assert first.created.uid != second.created.uid
    for running in (first, second):
        running.read_until(b"ready")
        client.stop(running.id, 1.0)
        assert read_exit(running.exit).code == 143
    assert "10.0.0.2" not in run_to_end(client, spec_of(image), "workload", "env")
