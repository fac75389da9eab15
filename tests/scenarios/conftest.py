"""A site, a command with folders of its own, package images that are built once, and nothing left after each test."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.command import PACKAGES, Command, open_command
from tests.kit.left import engine, wait_until_nothing
from tests.kit.no_skips import pytest_runtest_makereport  # noqa: F401 (a hook)
from tests.kit.site import Site, open_site

INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
CACHE = Path("/var/cache/sandboxd-test")
NAMES = ("docs.test", "private.test", "secure.test")


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A site on loopback under `NAMES`."""
    with open_site(NAMES) as running:
        yield running


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder that other users may pass through."""
    path = Path(tempfile.mkdtemp(prefix="sandboxd-test-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def installed(folder: Path) -> None:
    """The package images of all servers."""
    command = open_command(folder)
    for package in PACKAGES:
        done = command.call("image", "build", package)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def command(folder: Path, installed: None) -> Iterator[Command]:
    """`sandboxd`; when the test ends, nothing of it may be left ten seconds later."""
    command = open_command(folder)
    command.scope.look()
    yield command
    assert wait_until_nothing(command.scope, 10) == set()


@pytest.fixture(scope="session")
def inspector() -> list[str]:
    """The MCP Inspector's command line, on the Node of the node image: the host needs none."""
    home = CACHE / "inspector-2.12.0"
    if not (home / "done").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        _copy_from_image("sandboxd/node", "/usr/local", home)
        npm = [str(home / "local/bin/node"), str(home / "local/lib/node_modules/npm/bin/npm-cli.js")]
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(home), "--cache", str(home / "cache")]
        path = f"{home}/local/bin:{os.environ['PATH']}"
        subprocess.run([*npm, "install", *options, INSPECTOR], check=True, env={**os.environ, "PATH": path})
        (home / "done").touch()
    return [str(home / "local/bin/node"), str(home / "node_modules/.bin/mcp-inspector"), "--cli"]


def _copy_from_image(image: str, path: str, target: Path) -> None:
    created = engine("POST", "/containers/create", {"Image": image, "Cmd": ["true"], "NetworkDisabled": True})["Id"]
    try:
        subprocess.run(["docker", "cp", f"{created}:{path}", str(target)], check=True, capture_output=True)
    finally:
        engine("DELETE", f"/containers/{created}")
