"""The relay on a real attach stream: big messages, many at once, requests from the server, deaths beside it."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd import limits
from tests.kit.command import SANDBOXD, Command, open_command
from tests.kit.left import wait_until_nothing
from tests.kit.site import Site

pytestmark = pytest.mark.docker
PYTHON = ("--image", "sandboxd/python")
# Answers every request with its own params, asks something itself for each, and notes what it was answered.
ECHO = """
import json, sys
out = sys.stdout
for line in sys.stdin.buffer:
    message = json.loads(line)
    if "method" in message:
        ask = {"jsonrpc": "2.0", "id": f"s{message['id']}", "method": "sampling/createMessage", "params": {}}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": message["params"]}
        out.write(json.dumps(ask) + "\\n" + json.dumps(answer) + "\\n")
        out.flush()
"""


@pytest.fixture
def bare(folder: Path) -> Iterator[Command]:
    """A command that needs no package image; nothing of it may be left."""
    command = open_command(folder)
    yield command
    assert wait_until_nothing(command.scope, 10) == set()


def request(number: int, **params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "echo", **params}}
    return json.dumps(message).encode() + b"\n"


def lines(running: "subprocess.Popen[bytes]", count: int) -> list[dict[str, Any]]:
    assert running.stdout is not None
    return [json.loads(running.stdout.readline()) for _ in range(count)]


def end(running: "subprocess.Popen[bytes]") -> int:
    assert running.stdin is not None
    running.stdin.close()
    return running.wait(60)


def test_many_in_flight_and_requests_from_the_server(bare: Command) -> None:
    count = 2000
    with bare.start("run", *PYTHON, "--", "python3", "-c", ECHO) as running:
        assert running.stdin is not None
        stdin = running.stdin

        def ask() -> None:
            for number in range(count):
                stdin.write(request(number))
            stdin.flush()

        asking = threading.Thread(target=ask)
        asking.start()
        found = lines(running, 2 * count)
        asking.join()
        assert [m["id"] for m in found if "result" in m] == list(range(count))
        assert [m["id"] for m in found if "method" in m] == [f"s{number}" for number in range(count)]
        assert end(running) == 0


def test_sixteen_mebibytes_both_ways_and_one_more_byte_neither(bare: Command) -> None:
    blank = len(request(1, data="")) - 1
    fits = request(1, data="x" * (limits.MCP_MESSAGE - blank))
    with bare.start("run", *PYTHON, "--memory", "1GiB", "--", "python3", "-c", ECHO) as running:
        assert running.stdin is not None
        running.stdin.write(fits)
        running.stdin.flush()
        _, answer = lines(running, 2)
        assert answer["result"] == json.loads(fits)["params"]
        running.stdin.write(fits.replace(b'"x', b'"xx', 1) + request(2))
        running.stdin.flush()
        refused, _, after = lines(running, 3)
        assert (refused["id"], refused["error"]["code"]) == (1, -32050)
        assert after["id"] == 2
        assert end(running) == 0


def test_a_gateway_that_dies_is_replaced_beside_a_running_session(bare: Command, site: Site) -> None:
    code = (
        "import socket, sys\n"
        "for line in sys.stdin:\n"
        "    try:\n"
        "        sock = socket.create_connection(('opaque.test', 9000), 20); sock.sendall(b'x'); seen = sock.recv(1)\n"
        "    except OSError as error: seen = error\n"
        "    print(repr(seen), flush=True)\n"
    )
    pin = f"opaque.test=127.0.0.1:{site.port('tcp')}"
    allowed = ("--allow", "tcp://opaque.test:9000", "--pin", pin, "--raw")
    with bare.start("run", *PYTHON, *allowed, "--", "python3", "-c", code) as running:
        assert running.stdin is not None
        assert running.stdout is not None

        def reaches() -> bytes:
            assert running.stdin is not None
            assert running.stdout is not None
            running.stdin.write(b"go\n")
            running.stdin.flush()
            return running.stdout.readline()

        assert reaches() == b"b'x'\n"
        for _ in range(2):
            gateway = bare.scope.roles(running.pid)["gateway"]
            os.kill(gateway, signal.SIGKILL)
            seen = [reaches()]
            while seen[-1] != b"b'x'\n":  # refused until the next one knows the policy, and never anything else
                assert b"Error" in seen[-1] or b"error" in seen[-1] or seen[-1] == b"b''\n"
                seen.append(reaches())
        assert end(running) == 0


def test_the_warden_dies_under_a_session(bare: Command) -> None:
    with bare.start("run", *PYTHON, "--", "python3", "-c", ECHO) as running:
        assert running.stdin is not None
        running.stdin.write(request(1))
        running.stdin.flush()
        lines(running, 2)
        os.kill(bare.scope.roles(running.pid)["warden"], signal.SIGKILL)
        assert running.wait(60) == 125
        assert running.stderr is not None
        assert b"warden" in running.stderr.read()


def test_a_secret_is_in_the_environment_and_nowhere_else(bare: Command, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2-of-file\n")
    code = "import os, sys; print(os.environ['A'], os.environ['B'], sorted(os.environ), flush=True); sys.stdin.read()"
    secrets = ("--secret", "A=env:GIVEN", "--secret", f"B=file:{tmp_path}/token")
    environment = bare.environment | {"GIVEN": "hunter2-of-env"}
    pipe = subprocess.PIPE
    command = [*SANDBOXD, "run", "--raw", *PYTHON, *secrets, "--", "python3", "-c", code]
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        expected = "hunter2-of-env hunter2-of-file ['A', 'B', 'HOME', 'LANG', 'PATH', 'TMPDIR', 'USER']\n"
        assert running.stdout.readline().decode() == expected
        everyone = bare.scope.roles(running.pid)
        environments = [Path(f"/proc/{pid}/environ").read_bytes() for role, pid in everyone.items() if role != "client"]
        listed = subprocess.run(["docker", "ps", "-q", "--no-trunc"], capture_output=True, text=True).stdout.split()
        inspected = subprocess.run(["docker", "inspect", *listed], capture_output=True).stdout
        assert not any(b"hunter2" in text for text in (*environments, inspected))
        running.stdin.close()
        running.wait(60)
        assert b"hunter2" not in running.stderr.read()
    assert "hunter2" not in json.dumps(bare.audit("--limit", "1000"))
