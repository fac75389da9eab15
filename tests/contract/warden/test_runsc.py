"""The same way with gVisor, on a daemon of the tests' own: sealed, listed calls only, gone with its client."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.settings import Settings
from sandboxd.warden import protocol as p
from sandboxd.warden.client import WardenClient, read_exit
from sandboxd.warden.server.engine import Engine
from tests.kit.dockerd import RUNSC_ARGUMENTS, copy_images, open_dockerd
from tests.kit.gateway import CANARY
from tests.kit.processes import find_family, kill, wait_for_end
from tests.kit.warden import launch, open_warden, run_to_end, spec_of

pytestmark = [pytest.mark.docker, pytest.mark.slow]
PATH = "/usr/local/bin:/usr/bin:/bin"
NAMES = ("sandboxd/python:latest", "sandboxd/node:latest", "sandboxd/shell:latest")


@pytest.fixture(scope="module")
def daemon(image: str) -> Iterator[Path]:
    with open_dockerd() as path:
        copy_images(path, image, *NAMES)
        yield path


@pytest.fixture
def client(settings: Settings, daemon: Path) -> Iterator[WardenClient]:
    with open_warden(dataclasses.replace(settings, docker_socket=daemon)) as client:
        yield client


def spec(image: str, **more: object) -> p.ContainerSpec:
    return spec_of(image, runtime="runsc", **more)


def test_life(client: WardenClient, image: str) -> None:
    assert "runsc" in client.hello().runtimes
    running = launch(client, spec(image), "workload", "env", env={"PATH": "/bin", "TOKEN": "hunter2"})
    assert running.read_all() == b"PATH=/bin\nTOKEN=hunter2\n"
    assert read_exit(running.exit) == p.Exited(0)
    deaf = launch(client, spec(image), "workload", "deaf")
    deaf.read_until(b"ready")
    client.stop(deaf.id, 0.2)
    assert read_exit(deaf.exit).code == 137


def test_caught_alike(client: WardenClient, image: str) -> None:
    assert run_to_end(client, spec(image), "workload", "dial", p.CANARY_ADDRESS, "1") == f"{CANARY}.\n"
    refused = run_to_end(client, spec(image), "workload", "dial", "192.0.2.1", "443")
    assert refused in ("read ECONNRESET\n", "connect ECONNRESET\n", "connect ECONNREFUSED\n")


def test_a_workspace(client: WardenClient, image: str, tmp_path: Path) -> None:
    os.chown(tmp_path, 4321, 8765)
    mounts = (p.Mount(str(tmp_path), "/workspace", read_only=False),)
    assert run_to_end(client, spec(image, mounts=mounts), "workload", "write", "/workspace/x", "text") == (
        "/workspace/x ok\n"
    )
    made = (tmp_path / "x").stat()
    assert (made.st_uid, made.st_gid) == (4321, 8765)
    assert run_to_end(client, spec(image, mounts=mounts), "workload", "chmod", "/workspace/x", "4755") == "EPERM\n"
    assert (tmp_path / "x").stat().st_mode & 0o7000 == 0


WORKER = "new (require('worker_threads').Worker)('1', {eval: true}); console.log('works')"
CURL = "curl -sS --max-time 9 http://192.0.2.1/ || git --version && echo works"
PROGRAMS = {
    "sandboxd/python:latest": ["python3", "-c", "import socket, ssl, threading; print('works')"],
    "sandboxd/node:latest": ["node", "-e", WORKER],
    "sandboxd/shell:latest": ["bash", "-c", CURL],
}


@pytest.mark.parametrize("image_name", NAMES)
def test_real_programs(client: WardenClient, image_name: str) -> None:
    running = launch(client, spec(image_name), *PROGRAMS[image_name], env={"PATH": PATH, "HOME": "/home/sandbox"})
    out = running.read_all()
    assert out.endswith(b"works\n"), running.output


def test_the_client_is_killed(settings: Settings, daemon: Path, image: str) -> None:
    engine = Engine(str(daemon))
    with open_warden(dataclasses.replace(settings, docker_socket=daemon)) as client:
        running = launch(client, spec(image), "workload", "deaf")
        running.read_until(b"ready")
        pid = int(engine.inspect(running.created.container)["State"]["Pid"])
        family = find_family(os.getpid())
        kill(family.warden)
        wait_for_end(pid, *family.all()[1:])
        engine.wait_removed(running.created.container)
    assert engine.inspect_or_none(running.created.container) is None


def test_gvisor_registered_otherwise(settings: Settings, image: str) -> None:
    """Without our list of system calls it is refused before the seal, with the way to mend it."""
    with open_dockerd([argument for argument in RUNSC_ARGUMENTS if argument != "--oci-seccomp"]) as path:
        copy_images(path, image)
        with open_warden(dataclasses.replace(settings, docker_socket=path)) as client:
            wrong = spec(image)
            client.create(wrong)
            client.start(wrong.sandbox)
            with pytest.raises(SandboxdError) as refused:
                client.seal(wrong.sandbox)
    assert refused.value.code == "runsc_seccomp"
    assert "daemon.json" in refused.value.hint


def test_no_gvisor_on_the_host(settings: Settings, image: str) -> None:
    with open_warden(settings) as client:
        if "runsc" in client.hello().runtimes:
            assert client.create(spec(image)).container
        else:
            with pytest.raises(SandboxdError) as refused:
                client.create(spec(image))
            assert "runsc" in refused.value.message
