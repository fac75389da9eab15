"""What a client that gave up root can still get from the warden: what it named before, and nothing else."""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.warden import protocol as p
from sandboxd.warden.client import WardenClient
from tests.kit.warden import launch, run_to_end, spec_of

pytestmark = pytest.mark.docker


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(SandboxdError) as raised:
        work()
    return raised.value.code


def test_directories(client: WardenClient, image: str, tmp_path: Path) -> None:
    """Root's directories most of all: their owner's rights would be the workload's."""
    (tmp_path / "given").mkdir()
    client.confine(directories=(str(tmp_path / "given"),))
    given = spec_of(image, mounts=(p.Mount(str(tmp_path / "given"), "/w", read_only=False),))
    assert run_to_end(client, given, "workload", "write", "/w/new", "text") == "/w/new ok\n"
    for source in (str(tmp_path), str(tmp_path / "given" / ".." / "given"), "/opt", "/home", "/srv"):
        for read_only in (True, False):
            spec = spec_of(image, mounts=(p.Mount(source, "/w", read_only),))
            assert refused(lambda spec=spec: client.create(spec)) in ("confined", "mount_source")


def test_a_link_put_in_place_of_the_directory_opens_no_system_directory(
    client: WardenClient, image: str, tmp_path: Path
) -> None:
    (tmp_path / "given").symlink_to("/usr/bin")
    client.confine(directories=(str(tmp_path / "given"),))
    spec = spec_of(image, mounts=(p.Mount(str(tmp_path / "given"), "/w", read_only=False),))
    assert refused(lambda: client.create(spec)) == "mount_source"


def test_images(client: WardenClient, image: str) -> None:
    """Neither the images that others start from, nor those of other packages."""
    mine = f"sandboxd-test/mine:{os.getpid()}"
    client.confine(images=(mine,))
    build = launch(client, spec_of(image, build=True), "workload", "linger")
    for name in ("sandboxd/base:latest", f"{mine}0", "sandboxd-test/mine"):
        assert refused(lambda name=name: client.commit(build.id, name, {"sandboxd.image": "npm"})) == "confined"
    assert client.commit(build.id, mine, {"sandboxd.image": "npm"})
    try:
        assert refused(lambda: client.remove_image(mine)) == "confined"
    finally:
        subprocess.run(["docker", "image", "rm", mine], check=True, capture_output=True)


def test_once_and_for_good(client: WardenClient, image: str) -> None:
    client.confine()
    client.confine(directories=(tempfile.gettempdir(),), images=("a:b",))
    assert refused(client.hello) == "confined"  # the answer that nobody waited for
    spec = spec_of(image, mounts=(p.Mount(tempfile.gettempdir(), "/w", read_only=True),))
    assert refused(lambda: client.create(spec)) == "confined"
    assert client.hello().version == p.VERSION
