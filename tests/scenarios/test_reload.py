"""A policy that changes while its server runs: live connections, records, what stderr says."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import Command
from tests.kit.site import Site

pytestmark = pytest.mark.docker

PORT = 80
# Opens a connection, says so, and says when it ends.
HOLDS = """
import socket, sys
for line in sys.stdin:
    try:
        with socket.create_connection(("docs.test", 80), 5) as sock:
            sock.sendall(b"GET /large HTTP/1.1\\r\\nHost: docs.test\\r\\n\\r\\n" if "get" in line else b"")
            print("open", flush=True)
            while sock.recv(1 << 16):
                pass
            print("eof", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""
OPEN = {"id": "site", "action": "allow", "to": {"hosts": ["docs.test"], "ports": [PORT]}, "proto": "tcp"}


class Held:
    """A run of HOLDS under `policy`."""

    def __init__(self, command: Command, policy: Path, site: Site) -> None:
        self.policy = policy
        self.write(OPEN)
        pin = site.pin("docs.test", "http")
        self.process = command.start(
            "run", "--raw", "--policy", str(policy), "--pin", pin, "--", "python3", "-c", HOLDS, bufsize=0
        )

    def write(self, *rules: dict[str, Any]) -> None:
        self.write_text(json.dumps({"egress": {"rules": list(rules)}}))

    def write_text(self, text: str) -> None:
        new = self.policy.with_suffix(".new")
        new.write_text(text)
        new.replace(self.policy)

    def ask(self) -> str:
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        return self.line()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().decode().strip()

    def heard(self, text: str) -> str:
        assert self.process.stderr
        for line in self.process.stderr:
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"stderr ended without {text!r}")


@pytest.fixture
def held(command: Command, folder: Path, site: Site) -> Iterator[Held]:
    made = Held(command, folder / "live.yaml", site)
    yield made
    made.process.kill()
    made.process.communicate()


def test_a_narrowed_policy_cuts_what_it_no_longer_allows_and_a_wider_one_opens_again(
    command: Command, held: Held
) -> None:
    assert held.ask() == "open"
    held.write()
    assert held.line() == "ConnectionResetError"
    assert "revision 2 holds now; no network" in held.heard("revision")
    assert held.ask() in ("gaierror", "ConnectionResetError")
    held.write(OPEN)
    held.heard("revision 3")
    assert held.ask() == "open"
    closes = [record for record in command.audit("--event", "close") if record["dst"]["host"] == "docs.test"]
    assert "policy_revoked" in {record["reason"] for record in closes}
    assert 3 in {record["policy_revision"] for record in command.audit("--event", "decision")}


def test_an_invalid_policy_changes_nothing(held: Held) -> None:
    assert held.ask() == "open"
    held.write_text("egress: {rulez: []}")
    assert "changed and can't be used" in held.heard("live.yaml")
    assert "unknown key 'rulez'" in held.heard("rulez")
    held.write(OPEN, OPEN | {"id": "more", "to": {"hosts": ["private.test"], "ports": [80]}})
    held.heard("revision 2")
    assert held.process.poll() is None


def test_what_is_not_egress_waits_for_the_next_start(held: Held) -> None:
    assert held.ask() == "open"
    held.write_text(json.dumps({"egress": {"rules": [OPEN]}, "resources": {"memory": "64MiB"}}))
    assert "resources: takes effect at the next start" in held.heard("takes effect")
