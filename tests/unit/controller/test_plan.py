"""What a run is made of: each thing said once, by a policy's server or by the command line."""

from typing import Any

import pytest

from sandboxd.controller.environment import HOME
from sandboxd.controller.plan import (
    Plan,
    Wanted,
    choose_server,
    default_image,
    plan_command,
    plan_server,
    workload_name,
)
from sandboxd.errors import UsageError
from sandboxd.policy.loading import parse_policy
from sandboxd.policy.shortform import egress_from_allows
from sandboxd.warden.protocol import Mount, Resources

POLICY = """
agent: {name: assistant}
image: registry.test/mine:1
resources: {memory: 1GiB, cpus: 2}
workspace: {source: /srv/project, mode: rw}
servers:
  github:
    package: "npm:server-github@1.2.3"
    args: [--verbose]
    env: {LOG: debug}
    secrets: [{secret: gh-token, env: GITHUB_TOKEN}]
    workspace: none
    runtime: runsc
    egress: {rules: [{id: gh, action: allow, to: {hosts: [api.github.com], ports: [443]}, proto: tls}]}
  files:
    command: serve
    resources: {pids: 64}
egress: {rules: [{id: all, action: allow, to: {hosts: [api.github.com], ports: [443]}, proto: tls}]}
"""
DOCUMENT = parse_policy(POLICY, "policy.yaml")
EMPTY = parse_policy("image: registry.test/mine:1\nunix_sockets: false\n", "policy.yaml")


def command(**wanted: Any) -> Plan:
    return plan_command(Wanted(**wanted), (), (), None)


def test_a_command_by_itself() -> None:
    plan = command(command=("python3", "-m", "x"))
    assert (plan.agent, plan.workload, plan.image) == ("run", "mcp:python3", "sandboxd/python")
    assert (plan.command, plan.cwd, plan.mounts, plan.policies) == (("python3", "-m", "x"), HOME, (), ())
    assert plan.unix_sockets
    assert plan.resources == Resources()


@pytest.mark.parametrize(
    ("program", "image"),
    [("python3.11", "python"), ("/usr/bin/python", "python"), ("node", "node"), ("npx", "node"), ("bash", "base")],
)
def test_default_images(program: str, image: str) -> None:
    assert default_image((program,)) == f"sandboxd/{image}"


def test_flags_of_a_command() -> None:
    mount = Mount("/srv", "/workspace", read_only=False)
    plan = command(command=("x",), image="i", workspace=mount, memory=1 << 30, cpus=0.5, pids=9, runtime="runsc")
    assert (plan.image, plan.mounts, plan.cwd, plan.runtime) == ("i", (mount,), "/workspace", "runsc")
    assert plan.resources == Resources(memory=1 << 30, cpus=0.5, pids=9)
    assert not plan.unix_sockets  # a socket made in a writable directory would lead out


@pytest.mark.parametrize(
    ("said", "read_only", "allowed"), [(None, True, True), (None, False, False), (True, False, True)]
)
def test_unix_sockets(said: bool | None, read_only: bool, allowed: bool) -> None:
    plan = command(command=("x",), unix_sockets=said, workspace=Mount("/srv", "/workspace", read_only))
    assert plan.unix_sockets is allowed


def test_a_policy_without_servers_fills_in() -> None:
    plan = plan_command(Wanted(command=("x",)), EMPTY.scopes(), ("T",), EMPTY)
    assert (plan.image, plan.unix_sockets, plan.secrets) == ("registry.test/mine:1", False, (("T", "T"),))


def test_a_server() -> None:
    plan = plan_server(DOCUMENT, "github", Wanted(), ["gh-token"])
    assert (plan.agent, plan.workload, plan.package) == ("assistant", "mcp:github", "npm:server-github@1.2.3")
    assert (plan.image, plan.command, plan.env) == (None, ("--verbose",), ("LOG=debug",))
    assert (plan.mounts, plan.runtime, plan.secrets) == ((), "runsc", (("gh-token", "GITHUB_TOKEN"),))
    assert plan.resources == Resources(memory=1 << 30, cpus=2.0)
    assert plan.policies == DOCUMENT.scopes("github")
    assert len(plan.wire) == 2
    assert plan.hash
    assert plan.hash != command(command=("x",)).hash


def test_another_server() -> None:
    plan = plan_server(DOCUMENT, "files", Wanted(), [])
    assert (plan.image, plan.command) == ("registry.test/mine:1", ("serve",))
    assert plan.mounts == (Mount("/srv/project", "/workspace", read_only=False),)
    assert plan.resources == Resources(pids=64)
    assert not plan.unix_sockets


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (lambda: command(), "nothing to run"),
        (lambda: command(package="npm:a@1", image="i"), "exclude"),
        (lambda: command(command=("x",), runtime="kata"), "kata"),
        (lambda: plan_server(DOCUMENT, "github", Wanted(), []), "gh-token"),
        (lambda: plan_server(DOCUMENT, "files", Wanted(), ["gh-token"]), "no such secret"),
        (lambda: plan_server(DOCUMENT, "files", Wanted(image="i"), []), "policy says"),
        (lambda: choose_server(DOCUMENT, "nope"), "files, github"),
        (lambda: choose_server(DOCUMENT, None), "several"),
        (lambda: choose_server(EMPTY, "x"), "none"),
    ],
)
def test_what_can_not_be(plan: Any, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan()
    assert says in str(caught.value)


def test_which_server() -> None:
    assert choose_server(DOCUMENT, "files") == "files"
    assert choose_server(EMPTY, None) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("npm:@scope/server-everything@2026.8.31", "server-everything"),
        ("pypi:mcp-server-fetch==2026.10.24", "mcp-server-fetch"),
        ("/usr/bin/python3.11", "python3-11"),
        ("…", "command"),
        ("x" * 99, "x" * 32),
    ],
)
def test_workload_names(text: str, name: str) -> None:
    assert workload_name(text) == name


def test_secrets_and_environment_do_not_show() -> None:
    plan = command(command=("x",), env=("TOKEN=hunter2",))
    assert "hunter2" not in repr(plan)
    assert plan_command(Wanted(command=("x",)), (egress_from_allows(["a.test"]),), (), None).wire
