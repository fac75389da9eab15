"""The body of the create call, whole: a change of the hardening shows as a change of the golden file."""

import dataclasses
import json
from pathlib import Path

from sandboxd.warden import protocol as p
from sandboxd.warden.server.hardening import Made, Owner, create_body

GOLDEN = Path(__file__).parent / "golden"
SANDBOX = "sb-0123456789abcdef"


def made(*mounts: p.Mount, volumes: tuple[str, ...] = ()) -> Made:
    owner = Owner(4711, 123456)
    return Made(1_900_000_001, "sha256:aa", volumes, "/run/sandboxd/4711-123456/sb", mounts, owner, "run", '{"x":1}')


def golden(name: str, body: object) -> None:
    text = json.dumps(body, indent=2, sort_keys=True) + "\n"
    assert text == (GOLDEN / name).read_text()


def test_plain() -> None:
    spec = p.ContainerSpec(SANDBOX, "agent", "mcp:fetch", "sandboxd/base:1")
    golden("plain.json", create_body(spec, made()))


def test_an_authority_of_its_own_adds_its_files_and_nothing_else() -> None:
    spec = p.ContainerSpec(SANDBOX, "agent", "mcp:fetch", "sandboxd/base:1")
    plain = create_body(spec, made())
    trusting = create_body(dataclasses.replace(spec, trust=True), made())
    mounts = [mount for mount in trusting["HostConfig"]["Mounts"] if mount not in plain["HostConfig"]["Mounts"]]
    assert [mount["Target"] for mount in mounts] == [
        "/.sandboxd/roots.pem",
        "/etc/ssl/certs/ca-certificates.crt",
        "/.sandboxd/roots.p12",
    ]
    assert all(mount["ReadOnly"] for mount in mounts)
    trusting["HostConfig"]["Mounts"] = plain["HostConfig"]["Mounts"]
    assert trusting == plain


def test_build() -> None:
    spec = p.ContainerSpec(SANDBOX, "agent", "build", "sandboxd/node:1", build=True, files={"/build/x": "y"})
    golden("build.json", create_body(spec, made()))


def test_workspace_volumes_and_limits() -> None:
    spec = p.ContainerSpec(
        SANDBOX,
        "agent",
        "mcp:files",
        "sandboxd/node:1",
        runtime="runsc",
        resources=p.Resources(memory=1 << 30, cpus=0.5, pids=64, nofile=256, tmp=1 << 20),
    )
    workspace = p.Mount("/run/sandboxd/4711-123456/sb/mount-0", "/workspace", read_only=False)
    golden("workspace.json", create_body(spec, made(workspace, volumes=("/data", "/workspace"))))


def test_volumes_are_covered_where_docker_would_put_them() -> None:
    volumes = ("//data", "/a/../b/", "/tmp/", "/home/sandbox/.")
    body = create_body(p.ContainerSpec(SANDBOX, "a", "w", "i"), made(volumes=volumes))
    assert set(body["HostConfig"]["Tmpfs"]) == {"/tmp", "/data", "/b", "/home/sandbox"}


def test_a_spec_changes_nothing_that_isolates() -> None:
    plain = create_body(p.ContainerSpec(SANDBOX, "a", "w", "i"), made())
    other = create_body(p.ContainerSpec(SANDBOX, "b", "v", "i", build=True, unix_sockets=False), made())
    same = (
        "NetworkMode",
        "Privileged",
        "CapDrop",
        "IpcMode",
        "CgroupnsMode",
        "LogConfig",
        "RestartPolicy",
        "AutoRemove",
    )
    for key in (*same, "Init", "Ulimits"):
        assert plain["HostConfig"][key] == other["HostConfig"][key]
    for key in ("Entrypoint", "Cmd", "Env", "User", "WorkingDir", "Healthcheck", "StdinOnce"):
        assert plain[key] == other[key]
