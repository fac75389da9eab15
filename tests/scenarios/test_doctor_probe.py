"""`doctor` and `probe` on this machine: what they say is so, and what must hold holds."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.controller.attempts import CALLS
from tests.kit.command import Command, open_command
from tests.kit.left import wait_until_nothing

pytestmark = pytest.mark.docker


@pytest.fixture
def bare(folder: Path) -> Iterator[Command]:
    """A command that needs no package image; nothing of it may be left."""
    command = open_command(folder)
    yield command
    assert wait_until_nothing(command.scope, 10) == set()


def test_every_attempt_fails(bare: Command) -> None:
    done = bare.call("probe", "--json")
    found = json.loads(done.stdout)
    broke = [attempt for attempt in found["attempts"] if not attempt["ok"]]
    assert (broke, found["broke"], done.returncode) == ([], 0, 0)
    assert len(found["attempts"]) > 90
    assert len({attempt["promise"] for attempt in found["attempts"]}) > 12
    assert {line.split()[0] for line in CALLS.split(";")} <= {attempt["name"] for attempt in found["attempts"]}


def test_the_attempts_are_recorded(bare: Command) -> None:
    assert bare.call("probe").returncode == 0
    reasons = {record["reason"] for record in bare.audit("--verdict", "deny", "--agent", "probe", "--limit", "1000")}
    assert {"no_match", "floor_metadata", "floor_documentation", "malformed"} <= reasons


def test_under_a_policy_that_allows_something(bare: Command, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "egress:\n  rules:\n"
        "    - {id: a, action: allow, to: {hosts: [a.example], ports: [443]}, proto: tls}\n"
        "    - {id: b, action: allow, to: {cidrs: [10.9.9.0/24], ports: [80]}, proto: tcp}\n"
    )
    done = bare.call("probe", "--policy", str(policy))
    assert done.returncode == 0, done.stdout
    assert "0 got through" in done.stdout


def test_an_image_without_python_is_an_error_not_a_pass(bare: Command) -> None:
    done = bare.call("probe", "--image", "sandboxd/base")
    assert done.returncode == 125
    assert "127" in done.stderr


def test_doctor(bare: Command) -> None:
    bare.call("probe", "--image", "no-such-image")  # makes the folders
    done = bare.call("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert [name for name, check in checks.items() if check["level"] == "fail"] == []
    assert done.returncode == 0
    for name in ("kernel", "seccomp", "seal", "docker", "runtime runc", "gate", "images", "limits", "nft", "ip"):
        assert checks[name]["level"] == "ok"
    assert all(check["fix"] for check in checks.values() if check["level"] != "ok")


def test_doctor_without_docker(folder: Path) -> None:
    command = open_command(folder, f'docker_socket = "{folder}/no-docker.sock"', 'gate = "/nonexistent"')
    done = command.call("doctor")
    assert done.returncode == 1
    assert "no-docker.sock" in done.stdout
    assert "/nonexistent" in done.stdout
    assert done.stdout.count("→") >= 2
