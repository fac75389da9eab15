"""Secrets that the gateway holds: placeholders inside, values never shown, files followed."""

import threading
from pathlib import Path

import pytest

from sandboxd.controller.held_secrets import Held, SecretWatch, hold_secrets
from sandboxd.controller.secrets import Secret
from sandboxd.errors import SandboxdError, UsageError

ENVIRONMENT = {"MINE": "s3cr3t"}


def test_the_workload_sees_a_placeholder() -> None:
    held = hold_secrets(["token"], ["token=env:MINE", "other=env:MINE"], {"token": "API_TOKEN"}, ENVIRONMENT)
    (secret,) = held.secrets
    assert (secret.name, secret.value) == ("token", "s3cr3t")
    assert held.variables == (Secret("API_TOKEN", secret.placeholder),)
    assert secret.placeholder.startswith("sandboxd-placeholder-")
    assert "s3cr3t" not in repr(held)


def test_placeholders_are_new_each_time_and_a_secret_needs_no_variable() -> None:
    first, second = (hold_secrets(["token"], ["token=env:MINE"], {}, ENVIRONMENT) for _ in range(2))
    assert first.variables == ()
    assert first.secrets[0].placeholder != second.secrets[0].placeholder


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't read its file"):
        hold_secrets(["token"], [f"token=file:{tmp_path}/none"], {}, {})


class Rotations:
    """What the watch told; `refuse` fails the next."""

    def __init__(self) -> None:
        self.values: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.refuse = False
        self._changed = threading.Condition()

    def rotate(self, name: str, value: str) -> None:
        if self.refuse:
            raise SandboxdError("gateway_refused", "a header carries something else")
        self.values.append((name, value))

    def say(self, text: str) -> None:
        with self._changed:
            self.said.append(text)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.said) >= count, 20), self.said


def held(path: Path) -> Held:
    return hold_secrets(["token"], [f"token=file:{path}"], {}, {})


def test_a_replaced_and_an_overwritten_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    rotations = Rotations()
    with SecretWatch(held(path).files, rotations.rotate, rotations.say):
        (tmp_path / "new").write_text("second\n")
        (tmp_path / "new").rename(path)
        rotations.wait(1)
        path.write_text("the third\n")
        rotations.wait(2)
    assert rotations.values == [("token", "second"), ("token", "the third")]
    assert not any(value in text for text in rotations.said for value in ("first", "second", "third"))


def test_a_value_that_can_not_be_used_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    rotations = Rotations()
    rotations.refuse = True
    with SecretWatch(held(path).files, rotations.rotate, rotations.say):
        path.write_text("x\ny\n")
        rotations.wait(1)
        path.write_bytes(b"\xff\xfe")
        rotations.wait(2)
    assert "the value before still holds" in rotations.said[0]
    assert "not text" in rotations.said[1]


def test_without_files_there_is_nothing_to_watch() -> None:
    before = threading.active_count()
    with SecretWatch((), lambda *_: None, lambda _: None):
        assert threading.active_count() == before
