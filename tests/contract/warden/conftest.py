"""A warden on the real Docker Engine: root and a running engine are needed; without them these tests fail."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.settings import Settings
from sandboxd.warden.client import WardenClient
from sandboxd.warden.server.engine import Engine
from tests.kit.warden import KIT, REPO, compile_static, import_image, open_warden


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled gate and workload."""
    folder = tmp_path_factory.mktemp("built")
    compile_static(REPO / "images" / "gate" / "gate.c", folder / "gate")
    compile_static(KIT / "workload.c", folder / "workload")
    return folder


@pytest.fixture(scope="session")
def image(built: Path) -> Iterator[str]:
    """An image that holds nothing but the workload."""
    name = f"sandboxd-test/workload:{os.getpid()}"
    import_image(name, {"bin/workload": (built / "workload").read_bytes()})
    yield name
    subprocess.run(["docker", "image", "rm", "-f", name], check=True, capture_output=True)


@pytest.fixture
def settings(built: Path) -> Iterator[Settings]:
    # Not below /tmp's test folder: that is where workspaces are, and the run directory is never seen inside.
    run_dir = Path("/run") / f"sandboxd-test-{os.getpid()}"
    yield Settings(gate=built / "gate", gateway_user="nobody", run_dir=run_dir)
    if run_dir.exists():
        run_dir.rmdir()  # fails where a test left anything


@pytest.fixture
def engine(settings: Settings) -> Engine:
    return Engine(str(settings.docker_socket))


@pytest.fixture
def client(settings: Settings) -> Iterator[WardenClient]:
    with open_warden(settings) as warden:
        yield warden
