"""What `deploy/setup` decides: packages, the runtime's entry, folders, whose dockerd it is."""

import json
import os
from pathlib import Path

import pytest

from deploy import dockerd, host
from deploy.console import SetupError, run
from sandboxd.settings import Settings


def test_only_what_is_missing_is_wanted():
    assert host.missing({"a": lambda: True, "b": lambda: False}) == ["b"]


def test_nothing_is_installed_when_nothing_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host, "run", lambda *_: pytest.fail("apt-get was called"))
    monkeypatch.setattr(host, "NEEDED", {"a": lambda: True})
    monkeypatch.setattr(host, "OPTIONAL", {"no-such-package-anywhere": lambda: False})
    host.install_packages(test=False)


def test_folders_are_their_users_own():
    settings = Settings(state_dir=Path("/s"), run_dir=Path("/r"))
    assert host._directories(settings) == [
        (Path("/s"), "root", 0o755),
        (Path("/s/audit"), "sandboxd-gateway", 0o700),
        (Path("/s/state"), "sandboxd", 0o700),
        (Path("/r"), "root", 0o755),
    ]


def test_a_failing_command_shows_its_last_words_and_the_hint():
    with pytest.raises(SetupError, match="failed with 3:\n  no luck\n  try again"):
        run(["sh", "-c", "echo no luck >&2; exit 3"], "try again")


def test_the_runtime_is_added_beside_what_is_there():
    before = {"log-driver": "none", "runtimes": {"kata": {"path": "/k"}}}
    added = {"path": "/usr/bin/runsc", "runtimeArgs": ["--platform=ptrace", "--network=host", "--oci-seccomp"]}
    after = {"log-driver": "none", "runtimes": {"runsc": added, "kata": {"path": "/k"}}}
    assert dockerd.with_runsc(before, "/usr/bin/runsc") == after


def test_an_entry_of_the_operators_own_stays():
    before = {"runtimes": {"runsc": {"path": "/mine"}}}
    assert dockerd.with_runsc(before, "/usr/bin/runsc") == before


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "docker" / "daemon.json"
    monkeypatch.setattr(dockerd, "CONFIGURATION", file)
    monkeypatch.setattr(dockerd.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(dockerd, "answers", lambda: False)
    return file


def test_registering_writes_a_missing_file_once(configuration: Path):
    assert dockerd.register_runsc()
    written = configuration.read_text()
    assert json.loads(written)["runtimes"]["runsc"]["path"] == "/usr/bin/runsc"
    assert dockerd.register_runsc()
    assert configuration.read_text() == written


def test_a_running_daemons_file_is_not_touched(configuration: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dockerd, "answers", lambda: True)
    monkeypatch.setattr(dockerd, "OURS", configuration)
    assert not dockerd.register_runsc()
    dockerd.register_runsc_later()
    assert not configuration.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"runtimes": []}'])
def test_a_broken_file_is_an_error_that_names_it(configuration: Path, text: str):
    configuration.parent.mkdir()
    configuration.write_text(text)
    with pytest.raises(SetupError, match=r"daemon\.json"):
        dockerd.register_runsc()
    assert configuration.read_text() == text


def test_ours_is_a_pid_with_its_start_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dockerd, "OURS", tmp_path / "ours")
    assert dockerd._ours() is None
    me = os.getpid()
    (tmp_path / "ours").write_text(f"{me} {dockerd._started(me)}")
    assert dockerd._ours() == me
    (tmp_path / "ours").write_text(f"{me} 1")  # the pid was given to another process since
    assert dockerd._ours() is None


def test_pid_files_of_the_dead_are_forgotten_and_those_of_the_living_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mine = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    living, other, gone, broken = (tmp_path / name for name in ("living", "other", "gone", "broken"))
    living.write_text(str(os.getpid()))
    other.write_text(str(os.getpid()))  # the number was given to another program
    gone.write_text(str(1 << 30))
    broken.write_text("x")
    names = {living: mine, other: "dockerd", gone: "dockerd", broken: "dockerd", tmp_path / "none": "dockerd"}
    monkeypatch.setattr(dockerd, "PID_FILES", names)
    dockerd.forget_dead()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["living"]
