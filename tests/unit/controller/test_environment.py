"""What a workload finds around it: the basics, what was listed, and nothing of the caller's."""

from pathlib import Path

import pytest

from sandboxd.controller.environment import BASICS, make_environment, parse_workspace
from sandboxd.controller.secrets import Secret
from sandboxd.errors import UsageError
from sandboxd.warden.protocol import Mount


def test_basics_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    assert make_environment((), (), ()) == BASICS


def test_the_later_wins_and_of_the_image_only_the_path_counts() -> None:
    made = make_environment(
        ["PATH=/opt/bin", "NODE_OPTIONS=--inspect"], ["LANG=de", "X=a=b", "S=given"], [Secret("S", "secret")]
    )
    assert made == BASICS | {"PATH": "/opt/bin", "LANG": "de", "X": "a=b", "S": "secret"}


@pytest.mark.parametrize("text", ["X", "=hunter2", "1X=hunter2", "hunter2", "X=a\0hunter2", "A B=hunter2"])
def test_not_a_variable(text: str) -> None:
    with pytest.raises(UsageError, match="not a variable") as caught:
        make_environment((), [text], ())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("suffix", "read_only"), [("", False), (":rw", False), (":ro", True)])
def test_workspace(tmp_path: Path, suffix: str, read_only: bool) -> None:
    assert parse_workspace(f"{tmp_path}{suffix}") == Mount(str(tmp_path), "/workspace", read_only)


def test_relative_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_workspace(".") == Mount(str(tmp_path), "/workspace", False)


def test_home_needs_no_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project").mkdir()
    assert parse_workspace("~/project:ro") == Mount(str(tmp_path / "project"), "/workspace", True)


def test_a_workspace_without_a_name() -> None:
    for text in ("", ":ro"):
        with pytest.raises(UsageError, match="no directory is named"):
            parse_workspace(text)


def test_no_workspace(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for text in (f"{tmp_path}/none", f"{tmp_path}/file", "", ":ro"):
        with pytest.raises(UsageError, match="--workspace"):
            parse_workspace(text)
