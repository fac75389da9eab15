"""A host directory inside a sandbox: mapped to its user, searched for sockets, gone from the host's mounts."""

import dataclasses
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.settings import Settings
from sandboxd.warden import protocol as p
from sandboxd.warden.client import WardenClient
from sandboxd.warden.server.engine import Engine
from sandboxd.warden.server.workspace import open_source, refuse_sockets
from tests.kit.warden import launch, open_warden, run_to_end, spec_of

pytestmark = pytest.mark.docker
OWNER = (4321, 8765)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "readme").write_text("hello")
    for path in (folder, folder / "readme"):
        os.chown(path, *OWNER)
    return folder


def mounted(image: str, project: Path, *, read_only: bool = False) -> p.ContainerSpec:
    return spec_of(image, mounts=(p.Mount(str(project), "/workspace", read_only),))


def refused_as(client: WardenClient, spec: p.ContainerSpec) -> SandboxdError:
    with pytest.raises(SandboxdError) as refused:
        client.create(spec)
    return refused.value


def test_owner_becomes_the_sandboxs_user_and_back(client: WardenClient, image: str, project: Path) -> None:
    (project / "others").write_text("not its own")
    os.chown(project / "others", 0, 0)
    running = launch(client, mounted(image, project), "workload", "show", "/workspace/readme", "/workspace/others")
    uid = running.created.uid
    shown = running.read_all().decode().splitlines()
    assert shown == [f"/workspace/readme {uid}:{uid} 644 hello", "/workspace/others 65534:65534 644 not its own"]
    out = run_to_end(client, mounted(image, project), "workload", "write", "/workspace/new", "text")
    assert out == "/workspace/new ok\n"
    made = (project / "new").stat()
    assert (made.st_uid, made.st_gid) == OWNER
    assert (project / "new").read_text() == "text"


def test_no_set_id_bits(client: WardenClient, image: str, project: Path) -> None:
    for mode in ("4755", "2755", "6777"):
        assert run_to_end(client, mounted(image, project), "workload", "chmod", "/workspace/readme", mode) == "EPERM\n"
    assert run_to_end(client, mounted(image, project), "workload", "chmod", "/workspace/readme", "755") == "ok\n"


def test_read_only(client: WardenClient, image: str, project: Path) -> None:
    spec = mounted(image, project, read_only=True)
    assert run_to_end(client, spec, "workload", "write", "/workspace/new", "x") == "/workspace/new EROFS\n"
    assert run_to_end(client, mounted(image, project, read_only=True), "workload", "unlink", "/workspace/readme") == (
        "EROFS\n"
    )


def test_what_is_mounted_below_stays_outside(client: WardenClient, image: str, project: Path) -> None:
    (project / "below").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(project / "below")], check=True)
    try:
        (project / "below" / "secret").write_text("x")
        out = run_to_end(client, mounted(image, project), "workload", "show", "/workspace/below/secret")
    finally:
        subprocess.run(["umount", str(project / "below")], check=True)
    assert out == "/workspace/below/secret ENOENT\n"


def test_the_hosts_mounts_are_as_before(client: WardenClient, image: str, project: Path) -> None:
    before = Path("/proc/self/mounts").read_text()
    spec = mounted(image, project)
    client.create(spec)
    assert spec.sandbox in Path("/proc/self/mounts").read_text()
    client.start(spec.sandbox)
    assert spec.sandbox not in Path("/proc/self/mounts").read_text()
    client.remove(spec.sandbox)
    never_started = mounted(image, project)
    client.create(never_started)
    client.remove(never_started.sandbox)
    lines = Path("/proc/self/mounts").read_text().splitlines()
    assert not [line for line in lines if "mount-" in line and line not in before.splitlines()]
    assert (project / "readme").read_text() == "hello"


def test_sockets_are_refused_by_name(client: WardenClient, image: str, project: Path) -> None:
    (project / "deep").mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(project / "deep" / "agent.sock"))
        error = refused_as(client, mounted(image, project))
    assert error.code == "workspace_sockets"
    assert f"{project}/deep/agent.sock" in error.message
    assert error.hint


def test_too_many_entries(project: Path) -> None:
    for number in range(12):
        (project / f"f{number}").touch()
    fd = open_source(str(project))
    try:
        refuse_sockets(fd, str(project), most=13)
        with pytest.raises(SandboxdError) as refused:
            refuse_sockets(fd, str(project), most=12)
    finally:
        os.close(fd)
    assert refused.value.code == "workspace_size"


def test_what_cannot_be_searched_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket may be in there; nothing is passed over."""
    (project / "closed").mkdir()
    real = os.open

    def refusing(path: str, *arguments: int, **more: int) -> int:
        if path == "closed":
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **more)

    fd = os.open(project, os.O_RDONLY)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refusing)
            with pytest.raises(SandboxdError) as refused:
                refuse_sockets(fd, str(project))
        assert refused.value.code == "workspace_search"
        make_deep(fd, sys.getrecursionlimit() + 10)
        with pytest.raises(SandboxdError, match="too many levels"):
            refuse_sockets(fd, str(project))
    finally:
        os.close(fd)
        subprocess.run(["rm", "-rf", str(project)], check=True)  # pytest's own clean-up recurses too


def make_deep(top: int, levels: int) -> None:
    """Directories in one another, deeper than a path can name."""
    here = os.dup(top)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_links_do_not_lead_out(client: WardenClient, image: str, project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    assert refused_as(client, mounted(image, tmp_path / "link")).code == "mount_source"
    (tmp_path / "deeper").symlink_to("/var/lib/docker/overlay2")
    assert refused_as(client, mounted(image, tmp_path / "deeper")).code == "mount_source"
    (project / "out").symlink_to("/etc/shadow")
    assert run_to_end(client, mounted(image, project), "workload", "show", "/workspace/out").endswith("ENOENT\n")


def test_our_own_places_stay_outside(image: str, settings: Settings, tmp_path: Path) -> None:
    """Also where an operator's settings have moved them."""
    moved = dataclasses.replace(settings, state_dir=tmp_path / "state")
    (tmp_path / "state" / "audit").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with open_warden(moved) as client:
        for source in (tmp_path, tmp_path / "state", tmp_path / "state" / "audit", tmp_path / "link"):
            assert refused_as(client, mounted(image, source)).code == "mount_source"


def test_dockers_places_stay_outside(
    image: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its data-root was moved."""
    told = Engine.info(Engine(str(settings.docker_socket))) | {"DockerRootDir": str(tmp_path / "docker")}
    monkeypatch.setattr(Engine, "info", lambda _: told)
    (tmp_path / "docker" / "volumes").mkdir(parents=True)
    with open_warden(settings) as client:
        for source in (tmp_path, tmp_path / "docker", tmp_path / "docker" / "volumes"):
            assert refused_as(client, mounted(image, source)).code == "mount_source"


def test_no_such_directory(client: WardenClient, image: str, project: Path) -> None:
    assert refused_as(client, mounted(image, project / "none")).code == "mount_source"
    assert refused_as(client, mounted(image, project / "readme")).code == "mount_source"
