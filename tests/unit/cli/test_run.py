"""`run`'s command line: one table of options, read, shown and completed; what it settles before anything starts."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd import channel
from sandboxd.cli import processes
from sandboxd.cli.run import describe, plan_run
from sandboxd.cli.run_options import RunOptions, parse_run
from sandboxd.errors import ExitCode, SandboxdError, UsageError
from sandboxd.main import main
from sandboxd.settings import Pin, Settings
from sandboxd.warden.client import WardenClient
from sandboxd.warden.protocol import Refused


def test_everything() -> None:
    line = (
        "--policy p --server s --allow a --allow b --image i --package npm:x@1 --workspace /w:ro --env A=1 --env B=2 "
        "--secret S --pin h=1.2.3.4 --runtime runsc --memory 1GiB --cpus 0.5 --pids 9 --raw --no-unix-sockets "
        "-- cmd --raw -- x"
    )
    assert parse_run(line.split()) == RunOptions(
        "p", "s", ("a", "b"), "i", "npm:x@1", "/w:ro", ("A=1", "B=2"), ("S",), ("h=1.2.3.4",), "runsc", "1GiB", 0.5, 9,
        True, True, False, ("cmd", "--raw", "--", "x"),
    )  # fmt: skip


def test_nothing() -> None:
    options = parse_run([])
    assert options == RunOptions(
        None, None, (), None, None, None, (), (), (), None, None, None, None, False, True, None, ()
    )  # fmt: skip


def test_a_command_needs_no_dashes_before_it() -> None:
    assert parse_run(["--raw", "python3", "-c", "--allow"]).command == ("python3", "-c", "--allow")


@pytest.mark.parametrize("arguments", [["--alow", "x"], ["--pids", "many"], ["--allow"], ["--all", "x"]])
def test_wrong_options(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="--help"):
        parse_run(arguments)


def test_values_do_not_show() -> None:
    assert "hunter2" not in repr(parse_run(["--env", "T=hunter2", "--", "x", "hunter2"]))


def test_secrets_reach_their_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINE", "hunter2")
    (tmp_path / "key").write_text("k\n")
    _, secrets, _ = plan_run(parse_run(["--secret", "A=env:MINE", "--secret", f"B=file:{tmp_path}/key", "--", "x"]))
    assert [(secret.name, secret.value) for secret in secrets] == [("A", "hunter2"), ("B", "k")]


def test_a_policys_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINE", "hunter2")
    policy = tmp_path / "p.yaml"
    policy.write_text("servers: {x: {command: serve, secrets: [{secret: gh-token, env: GITHUB_TOKEN}]}}\n")
    plan, secrets, _ = plan_run(parse_run(["--policy", str(policy), "--secret", "gh-token=env:MINE"]))
    assert [(secret.name, secret.value) for secret in secrets] == [("GITHUB_TOKEN", "hunter2")]
    assert plan.workload == "mcp:x"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--server", "x", "--", "y"], "--server without --policy"),
        (["--policy", "p", "--allow", "a.test"], "exclude each other"),
        (["--allow", "a.test:80", "--", "x"], "which protocol"),
        (["--memory", "lots", "--", "x"], "not a size"),
        (["--workspace", "/a", "--workspace", "/b", "--", "x"], "--workspace stands twice"),
        (["--cpus", "1", "--cpus", "1", "--", "x"], "--cpus stands twice"),
        ([], "nothing to run"),
    ],
)
def test_what_makes_no_sense(arguments: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_run(parse_run(arguments))


def test_one_line_says_what_runs_and_what_it_may_reach() -> None:
    hosts = [word for name in "abcdefg" for word in ("--allow", f"{name}.test")]
    plan, _, _ = plan_run(parse_run([*hosts, "--allow", "http://z.test:81", "--", "python3", "--token=hunter2"]))
    line = describe(plan, "sandboxd/python:latest", plan.command)
    assert line.startswith("python3 in sandboxd/python:latest as run/mcp:python3; may reach a.test:443 (tls), ")
    assert line.endswith("and 3 more")
    assert "\n" not in line
    assert "hunter2" not in line
    alone, _, _ = plan_run(parse_run(["--", "x"]))
    assert describe(alone, "i", ("x",)).endswith("no network")


@pytest.mark.parametrize(
    "text", ["*.test=192.0.2.1", "a b=192.0.2.1", "=192.0.2.1", "a.test", "a.test=b", "a.test=::1:9x"]
)
def test_what_is_no_pin(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST=ADDRESS"):
        Pin.parse(text)


@pytest.mark.parametrize(("code", "exits"), [("mount_source", ExitCode.USAGE), ("engine", ExitCode.SANDBOX)])
def test_what_the_caller_asked_for_and_cannot_have(code: str, exits: ExitCode) -> None:
    ours, wardens = socket.socketpair()
    with wardens:
        channel.send(wardens, Refused(code, "no"))
        client = WardenClient(ours)
        with pytest.raises(SandboxdError) as refused:
            client.hello()
        assert refused.value.exit_code is exits
        client.close()


def test_no_root_no_processes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(processes.os, "geteuid", lambda: 1000)
    assert main(["run", "--", "x"]) == ExitCode.SANDBOX
    assert "root" in capsys.readouterr().err


def test_folders_of_users_that_are_not_there(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, gateway_user="nobody-of-that-name")
    with pytest.raises(SandboxdError, match="nobody-of-that-name"):
        processes.make_directories(settings)


def test_folders_are_made_once_and_each_its_owners(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "new", gateway_user="nobody", controller_user="daemon")
    for _ in range(2):
        processes.make_directories(settings)
    assert (settings.audit_dir.owner(), settings.controller_dir.owner()) == ("nobody", "daemon")
    assert settings.audit_dir.stat().st_mode & 0o777 == 0o700


def test_help_comes_from_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["run", "--help"], ["run", "--raw", "-h"]):
        assert main(arguments) == ExitCode.OK
        shown = capsys.readouterr().out
        for option in ("--policy", "--secret", "--unix-sockets", "--pin", "examples", "exit:"):
            assert option in shown


def test_a_commands_own_help_is_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.os, "geteuid", lambda: 1000)
    assert main(["run", "--", "x", "--help"]) == ExitCode.SANDBOX  # it would have started


def test_the_hot_path_imports_neither_typer_nor_pydantic() -> None:
    code = (
        "import sys; from sandboxd.cli.run import plan_run; from sandboxd.cli.run_options import parse_run\n"
        "plan_run(parse_run(['--', 'python3']))\n"
        "print([m for m in ('typer', 'rich', 'pydantic', 'mcp', 'asyncio', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == ExitCode.OK
    assert "sandboxd" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [("sandboxd run --me", {"--memory"}), ("sandboxd pro", {"probe"}), ("sandboxd d", {"doctor"})],
)
def test_completes_commands_and_options(words: str, expected: set[str]) -> None:
    code = "import sys; from sandboxd.main import main; sys.exit(main([]))"
    asked = {"_SANDBOXD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == expected


def test_no_command_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.OK
    shown = capsys.readouterr().out
    for command in ("run", "image", "policy", "audit", "doctor", "probe", "completion", "version"):
        assert f"  {command} " in shown


def test_an_unknown_command_points_to_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == ExitCode.USAGE
    assert "`sandboxd --help`" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("sandboxd ")
