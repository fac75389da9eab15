"""What typer can't read is an error like any other: one line, what was expected, exit 2."""

import pytest

from sandboxd.errors import ExitCode
from sandboxd.main import main


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["audit", "ls", "--verdict", "maybe"], "'maybe' is not one of 'allow', 'deny', 'would_deny'"),
        (["audit", "ls", "--limit", "0"], "greater than or equal to 1"),
        (["audit", "ls", "--nonsense"], "No such option: --nonsense"),
        (["audit", "nonsense"], "No such command 'nonsense'"),
        (["audit", "show"], "Missing argument"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == ExitCode.USAGE
    errors = capsys.readouterr().err
    assert says in errors
    assert errors.startswith("sandboxd: ")
    named = " ".join(arguments[: 2 if arguments[0] == "audit" and arguments[1] != "nonsense" else 1])
    assert f"`sandboxd {named} --help`" in errors


def test_what_an_error_quotes_does_not_move_the_cursor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOXD_SETTINGS", "/nowhere/\x1b[2J\u202e")
    assert main(["run", "--", "x"]) == ExitCode.USAGE
    assert main(["policy", "check", "/nowhere/\x1b[2J\u202e"]) == ExitCode.USAGE
    errors = capsys.readouterr().err
    assert errors.count("/nowhere/\\x1b[2J\\u202e") >= 2
    assert errors.replace("\n", "").isprintable()


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("sandboxd ")


@pytest.mark.parametrize("group", ["audit", "image", "policy"])
def test_a_group_alone_lists_its_commands(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([group]) == ExitCode.OK
    printed = capsys.readouterr()
    assert printed.out.startswith(f"Usage: sandboxd {group}")
    assert not printed.err
