"""Package images through the whole path: the host's real index over the seal's policy path, then the program, run.

Small packages without dependencies, so that little is asked of the index.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
NPM, PYPI = "npm:semver@7.7.2", "pypi:cowsay==6.1"


def sandboxd(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandboxd.main", *arguments]
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


@dataclass(frozen=True)
class Built:
    """An image that this test made, as `image build --json` shows it."""

    package: str
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return self.facts["names"][0]


@pytest.fixture(scope="module", params=[NPM, PYPI])
def built(request: pytest.FixtureRequest) -> Iterator[Built]:
    done = sandboxd("image", "build", request.param, "--again", "--json")
    assert done.returncode == 0, done.stderr
    image = Built(request.param, json.loads(done.stdout))
    yield image
    assert sandboxd("image", "rm", image.name).returncode == 0
    assert subprocess.run(["docker", "image", "inspect", image.name], capture_output=True).returncode == 1


def test_it_names_package_programs_and_a_lock_with_hashes(built: Built):
    assert built.facts["package"] == built.package
    assert built.facts["programs"] in (
        {"semver": "/opt/server/node_modules/.bin/semver"},
        {"cowsay": "/opt/server/bin/cowsay"},
    )
    (entry,) = built.facts["lock"]
    assert entry["hash"].startswith(("sha512-", "sha256:"))
    assert built.package.endswith(entry["version"])


def test_the_second_time_nothing_is_built(built: Built):
    done = sandboxd("image", "build", built.package)
    assert done.stdout == f"{built.name}\n"
    assert done.stderr == ""


def test_it_is_listed(built: Built):
    rows = [line.split()[:2] for line in sandboxd("image", "ls").stdout.splitlines()]
    assert [built.name, built.package] in rows
    assert built.facts["id"] in [image["id"] for image in json.loads(sandboxd("image", "ls", "--json").stdout)]


def test_its_connections_are_in_the_audit_log_and_none_was_refused_but_the_probes(built: Built):
    log = sandboxd("audit", "ls", "--json", "--sandbox", built.facts["build"], "--limit", "1000")
    records = [json.loads(line) for line in log.stdout.splitlines()]
    decisions = [record for record in records if record["event"] == "decision"]
    allowed = [record for record in decisions if record["verdict"] == "allow"]
    assert allowed
    assert {record["dst"]["port"] for record in allowed} == {443}
    # the cheap probe's literals, made before anything was launched
    assert all(not record["dst"].get("host") for record in decisions if record["verdict"] == "deny")


def test_its_program_runs_without_a_network(built: Built):
    if built.package == NPM:
        done = sandboxd("run", "--raw", "--", "npx", "-y", "semver@7.7.2", "2.0.0", "1.0.0")
        assert done.stdout == "1.0.0\n2.0.0\n"
    else:
        done = sandboxd("run", "--raw", "--", "uvx", "cowsay==6.1", "-t", "moo")
        assert "moo" in done.stdout
    assert done.returncode == 0, done.stderr
    assert "no network" in done.stderr


def test_the_image_keeps_nothing_of_the_build(built: Built):
    script = (
        "find /opt/build /tmp /home/sandbox -type f; grep -rl '_authToken\\|PIP_INDEX_URL' /etc /opt/build 2>/dev/null"
    )
    command = ["docker", "run", "--rm", "--network=none", "--entrypoint=/bin/sh", built.name, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True).stdout == ""
    config = subprocess.run(["docker", "image", "inspect", built.name], capture_output=True, text=True, check=True)
    (image,) = json.loads(config.stdout)
    assert image["Config"]["User"] == "65534:65534"
    assert not [name for name in image["Config"]["Env"] if name.startswith(("PIP_", "NPM_", "npm_"))]


def test_an_unknown_program_is_an_error_that_names_the_known_ones(built: Built):
    done = sandboxd("run", "--package", built.package, "--", "no-such-program")
    assert done.returncode == 2
    assert "its programs: " in done.stderr


@pytest.mark.parametrize(
    ("package", "code", "says"),
    [
        ("npm:semver@0.0.0-never", 125, "HTTP 404"),
        ("pypi:cowsay==0.0.0.1", 125, "can't be installed: the installer ended with 1"),
        ("npm:semver", 2, "expected npm:NAME@VERSION"),
    ],
)
def test_what_can_not_be_had_leaves_nothing_behind(package: str, code: int, says: str):
    done = sandboxd("image", "build", package)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    left = ["docker", "ps", "-aq", "--filter", "label=sandboxd.agent=image"]
    assert subprocess.run(left, capture_output=True, text=True, check=True).stdout == ""


def test_only_images_of_ours_are_removed():
    subprocess.run(["docker", "tag", "sandboxd/base", "sandboxd-test/kept:1"], check=True)
    done = sandboxd("image", "rm", "sandboxd-test/none:1")
    assert done.returncode != 0
    assert "sandboxd-test/none:1" in done.stderr
    done = sandboxd("image", "rm", "sandboxd-test/kept:1")
    assert done.returncode == 0, done.stderr
    assert subprocess.run(["docker", "image", "inspect", "sandboxd/base"], capture_output=True).returncode == 0
