"""Secrets: read from where the reference says, and never in an error or a repr."""

from pathlib import Path

import pytest

from sandboxd import limits
from sandboxd.controller.secrets import Secret, resolve_secret
from sandboxd.errors import UsageError

ENVIRONMENT = {"TOKEN": "hunter2", "OTHER": "s3cret", "NUL": "a\0b"}


@pytest.mark.parametrize(
    ("reference", "value"), [("TOKEN", "hunter2"), ("TOKEN=env:OTHER", "s3cret"), ("gh-token=env:TOKEN", "hunter2")]
)
def test_from_a_variable(reference: str, value: str) -> None:
    assert resolve_secret(reference, "TOKEN", ENVIRONMENT) == Secret("TOKEN", value)


@pytest.mark.parametrize(("content", "value"), [(b"hunter2\n", "hunter2"), (b"a\nb\n\n", "a\nb\n"), (b"", "")])
def test_from_a_file(tmp_path: Path, content: bytes, value: str) -> None:
    (tmp_path / "token").write_bytes(content)
    assert resolve_secret(f"T=file:{tmp_path}/token", "T", {}) == Secret("T", value)


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("TOKEN=hunter2", "unknown source"),
        ("TOKEN=env:", "unknown source"),
        ("TOKEN=file:", "unknown source"),
        ("TOKEN=env:hunter 2", "variable's name"),
        ("MISSING", "MISSING is not set"),
        ("TOKEN=env:MISSING", "MISSING is not set"),
        ("=env:TOKEN", "not the name"),
        ("a b=env:TOKEN", "not the name"),
        ("NUL", "NUL"),
        ("TOKEN=file:/nonexistent/hunter2", "can't read its file"),
    ],
)
def test_errors_say_what_is_wrong_and_no_value(reference: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        resolve_secret(reference, "TOKEN", ENVIRONMENT)
    assert "hunter" not in str(caught.value)


def test_a_file_that_is_no_text_or_too_long(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "long").write_bytes(b"x" * (limits.SECRET + 1))
    for name in ("binary", "long"):
        with pytest.raises(UsageError):
            resolve_secret(f"T=file:{tmp_path}/{name}", "T", {})


def test_not_in_a_repr() -> None:
    assert "hunter2" not in repr(Secret("T", "hunter2"))
    assert "hunter2" not in repr([Secret("T", "hunter2")])
