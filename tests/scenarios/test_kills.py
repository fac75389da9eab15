"""SIGKILL at a random moment of client, controller, gateway, guardian or warden: nothing is left."""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.command import SANDBOXD, Command, open_command
from tests.kit.left import wait_until_nothing
from tests.kit.site import Site

pytestmark = pytest.mark.docker
ROUNDS = int(os.environ.get("SANDBOXD_KILLS", "20"))
SEED = int(os.environ.get("SANDBOXD_SEED", "20261130"))
ROLES = ("client", "controller", "gateway", "warden", "guardian", "several")
# What an MCP client is to `sandboxd run`: its parent, and the holder of its pipes.
CLIENT = """
import subprocess, sys
with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
    for line in sys.stdin.buffer:
        server.stdin.write(line)
        server.stdin.flush()
        sys.stdout.buffer.write(server.stdout.readline())
        sys.stdout.buffer.flush()
    server.stdin.close()
"""
# Opens a connection to the allowed name and keeps it, then answers every line.
SERVER = """
import socket, sys
held = socket.create_connection(("opaque.test", 9000))
for line in sys.stdin:
    held.sendall(line.encode()); print(line, end="", flush=True)
"""


@pytest.fixture
def command(folder: Path) -> Command:
    """A command that needs no package image."""
    return open_command(folder)


def run(command: Command, site: Site) -> "subprocess.Popen[bytes]":
    """A client that has started the server."""
    arguments = ["--image", "sandboxd/python", "--allow", "tcp://opaque.test:9000", "--raw"]
    arguments += ["--pin", site.pin("opaque.test", "tcp"), "--", "python3", "-c", SERVER]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, *SANDBOXD, "run", *arguments], env=command.environment, **pipes
    )


@pytest.mark.parametrize("number", range(ROUNDS))
def test_killed_at_a_random_moment(command: Command, site: Site, number: int) -> None:
    chance = random.Random(SEED + number)
    role, while_starting = ROLES[number % len(ROLES)], chance.random() < 0.5
    with run(command, site) as running:
        running.stdin.write(b"one\n")
        running.stdin.flush()
        if not while_starting:
            assert running.stdout.readline() == b"one\n", running.stderr.read()
            assert set(command.scope.roles(running.pid)) == {*ROLES} - {"several"}
        select.select([], [], [], chance.uniform(0.0, 1.0 if while_starting else 0.2))
        command.scope.look()
        killed = victims(command, running.pid, role, chance)
        for pid in killed.values():
            kill(pid)
        command.scope.look()
        with contextlib.suppress(BrokenPipeError):
            running.stdin.close()
    if {"warden", "guardian"} <= set(killed):
        # Nobody of root's is left. What runs ends by itself (a gate without orders after 30 s); files of a container
        # that never started are for the next start to remove.
        left = wait_until_nothing(command.scope, 45)
        assert all(name.startswith(("scratch ", "mount ")) or name.endswith("(created)") for name in left)
    else:
        assert wait_until_nothing(command.scope, 10) == set()
    starts_again(command, site)
    assert wait_until_nothing(command.scope, 10) == set()


def starts_again(command: Command, site: Site) -> None:
    with run(command, site) as running:
        running.stdin.write(b"two\n")
        running.stdin.flush()
        assert running.stdout.readline() == b"two\n", running.stderr.read()
        running.stdin.close()
        running.wait()


def victims(command: Command, client: int, role: str, chance: random.Random) -> dict[str, int]:
    """The process of that role, or the client where it isn't there yet; for `several` two of all, at once."""
    by_role = command.scope.roles(client)
    if role == "several":
        return dict(chance.sample(sorted(by_role.items()), min(2, len(by_role))))
    return {role: by_role[role]} if role in by_role else {"client": client}


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
