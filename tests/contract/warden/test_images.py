"""A build that becomes an image, and images as clients see them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.warden.client import WardenClient
from sandboxd.warden.server.engine import Engine
from tests.kit.warden import launch, run_to_end, spec_of

pytestmark = pytest.mark.docker
FILES = {"/build/install": "SECRET-OF-THE-BUILD"}


@pytest.fixture
def name() -> Iterator[str]:
    name = f"sandboxd-test/committed:{os.getpid()}"
    yield name
    subprocess.run(["docker", "image", "rm", "-f", name], check=False, capture_output=True)


def test_a_build_becomes_an_image(client: WardenClient, image: str, name: str, engine: Engine) -> None:
    spec = spec_of(image, build=True, files=FILES)
    running = launch(client, spec, "workload", "keep", "/build/made", "result", env={"PATH": "/bin", "T": "hunter2"})
    running.read_until(b"ready")
    made = client.commit(running.id, name, {"sandboxd.image": "npm", "sandboxd.command": '["made"]'})
    client.remove(running.id)

    (info,) = client.images(name)
    assert info.id == made
    assert info.labels["sandboxd.command"] == '["made"]'
    assert info.command == ("/bin/false",)
    assert [info.id for info in client.images()].count(made) == 1
    config = engine.inspect_image(name)["Config"]
    assert config["Healthcheck"]["Test"] == ["NONE"]
    assert not config["Volumes"]
    assert config["User"] == "65534:65534"

    shown = run_to_end(client, spec_of(name), "workload", "show", "/build/made", "/build/install")
    assert shown.splitlines()[0].endswith("644 result")
    assert shown.splitlines()[1] == "/build/install ENOENT"
    saved = subprocess.run(["docker", "save", name], check=True, capture_output=True).stdout
    history = subprocess.run(["docker", "history", "--no-trunc", name], check=True, capture_output=True).stdout
    for secret in (b"hunter2", b"SECRET-OF-THE-BUILD"):
        assert secret not in saved
        assert secret not in history

    client.remove_image(name)
    with pytest.raises(SandboxdError) as refused:
        client.images(name)
    assert refused.value.code == "image_missing"


def test_dropping_files_follows_no_link_out(client: WardenClient, image: str, name: str, tmp_path: Path) -> None:
    """A package may put a link in the place of a build's directory: what the host has there stays."""
    victim = tmp_path / "install"
    victim.write_text("precious")
    spec = spec_of(image, build=True, files={"/build/x": "1", "/build/sub/install": "2"})
    running = launch(client, spec, "workload", "replace", str(tmp_path), "/build/sub")
    running.read_until(b"ready")
    client.commit(running.id, name, {"sandboxd.image": "npm"})
    assert victim.read_text() == "precious"


def test_only_a_running_build_is_committed(client: WardenClient, image: str, name: str) -> None:
    running = launch(client, spec_of(image), "workload", "linger")
    with pytest.raises(SandboxdError) as refused:
        client.commit(running.id, name, {"sandboxd.image": "npm"})
    assert refused.value.code == "out_of_order"
    build = launch(client, spec_of(image, build=True), "workload", "linger")
    for bad in ("UPPER:1", "no-tag", "a:b:c", "../x:1"):
        with pytest.raises(SandboxdError) as refused:
            client.commit(build.id, bad, {})
        assert refused.value.code == "image_name"
    client.stop(build.id, 1.0)
    with pytest.raises(SandboxdError) as refused:
        client.commit(build.id, name, {"sandboxd.image": "npm"})
    assert refused.value.code == "not_running"


def test_foreign_images_stay(client: WardenClient, image: str) -> None:
    with pytest.raises(SandboxdError) as refused:
        client.remove_image(image)
    assert refused.value.code == "image_foreign"
    assert client.images(image)
