"""An image that wants to run before the seal, as root, with volumes, variables and a health check of its own."""

from collections.abc import Iterator

import pytest

from tests.escape.attempt import MARK
from tests.kit.box import ENVIRONMENT, Box
from tests.kit.left import engine

pytestmark = pytest.mark.docker
REPOSITORY = "sandboxd-test/hostile"
# Takes the ports of the listeners, and leaves a trace in what could outlive it: the orders, secrets included.
EARLY = """
import socket
held = [socket.create_server(("127.0.0.1", port)) for port in (15001, 15053, 15099)]
open("/data/ran", "w").write(open("/proc/1/fd/0").read())
"""
SECOND = 1_000_000_000  # Docker counts nanoseconds
CONFIGURATION = {
    "Healthcheck": {"Test": ["CMD", "python3", "-c", EARLY], "Interval": SECOND, "StartPeriod": 0},
    "Entrypoint": ["python3", "-c", "print('the entry point ran', flush=True)"],
    "Cmd": ["the command"],
    "Volumes": {"/data": {}, "/cache": {}},
    "User": "root",
    "WorkingDir": "/data",
    "Env": [
        "LD_PRELOAD=/data/evil.so",
        "NODE_OPTIONS=--require=/data/evil.js",
        "PYTHONSTARTUP=/data/evil.py",
        "http_proxy=http://203.0.113.77:3128",
    ],
    "ExposedPorts": {"8080/tcp": {}},
    "StopSignal": "SIGCONT",
    "Labels": {"sandboxd.sandbox": "forged", "sandboxd.owner": "1", "sandboxd.uid": "0"},
}


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The python image with all of that said in its configuration."""
    container = engine("POST", "/containers/create", {"Image": "sandboxd/python", "Cmd": ["true"]})["Id"]
    try:
        engine("POST", f"/commit?container={container}&repo={REPOSITORY}&tag={MARK}", CONFIGURATION)
    finally:
        engine("DELETE", f"/containers/{container}")
    name = f"{REPOSITORY}:{MARK}"
    assert engine("GET", f"/images/{name}/json")["Config"]["Healthcheck"]["Test"][0] == "CMD"
    yield name
    engine("DELETE", f"/images/{name}?force=true")


def test_nothing_of_it_runs(box: Box, image: str) -> None:
    volumes = {volume["Name"] for volume in engine("GET", "/volumes")["Volumes"] or []}
    with box.sandbox(image=image) as sandbox:
        shown = engine("GET", f"/containers/{sandbox.created.container}/json")
        assert shown["Config"]["Healthcheck"]["Test"] == ["NONE"]
        assert shown["State"].get("Health") is None
        assert shown["Config"]["User"] == f"{sandbox.created.uid}:{sandbox.created.uid}"
        assert shown["Config"]["Labels"]["sandboxd.sandbox"] == sandbox.name
        assert all(result.ok for result in sandbox.probed)
        agent = sandbox.agent()
        # A health check would have had seconds to run before the orders came, and since.
        assert agent.run("kernel.tree", ["/data", "/cache"]) == {"/data": [], "/cache": []}
        assert agent.run("kernel.environment")[:-1] == sorted(ENVIRONMENT)
        assert agent.run("other.facts")["root"] is False
        for folder in ("/data", "/cache"):
            assert agent.run("kernel.fill", folder, 2 << 30) == "ENOSPC"
        assert {volume["Name"] for volume in engine("GET", "/volumes")["Volumes"] or []} == volumes


def test_its_first_instruction_is_sealed(box: Box, image: str) -> None:
    """The workload's first act is a connection; it meets the gateway like any later one."""
    code = "import socket; s = socket.create_connection(('203.0.113.77', 80)); s.sendall(b'x'); print(s.recv(1))"
    with box.sandbox(image=image) as sandbox:
        process = sandbox.launch(["python3", "-S", "-c", code])
        out, err = process.read()
        assert out == b""
        assert b"reset" in err
        assert process.exited() == 1
        reasons = [str(record.event.reason) for record in sandbox.records() if record.event.event == "decision"]
        assert reasons == ["floor_documentation"]
