"""docs/run.md names every option of `run` and no other, and the numbers in it are the code's."""

import re
from pathlib import Path

from sandboxd import limits
from sandboxd.cli.run_options import run_parser
from sandboxd.controller.environment import BASICS
from sandboxd.controller.messages import INVALID_REQUEST, PARSE_ERROR, TOO_LONG
from sandboxd.controller.plan import BASE_IMAGE, DEFAULT_IMAGES
from sandboxd.errors import ExitCode
from sandboxd.warden.protocol import Resources

TEXT = (Path(__file__).parents[3] / "docs" / "run.md").read_text()


def test_options() -> None:
    known = {name for action in run_parser()._actions for name in action.option_strings} - {"-h", "--help"}
    table = TEXT.partition("### Options")[2].partition("Without `--allow`")[0]
    assert set(re.findall(r"^\| `(--[a-z-]+)", table, re.MULTILINE)) | {"--no-unix-sockets"} == known


def test_environment() -> None:
    for name, value in BASICS.items():
        assert f"`{name}`" in TEXT or f"`{name}={value}`" in TEXT


def test_images() -> None:
    for image in {BASE_IMAGE, *DEFAULT_IMAGES.values()}:
        assert f"`{image}`" in TEXT


def test_numbers() -> None:
    seconds = re.findall(r"(\d+) s\b", TEXT.partition("### Its end")[2].partition("| exit code")[0])
    assert {int(s) for s in seconds} == {int(limits.STOP_ANSWERS), int(limits.STOP_EOF), int(limits.STOP_TERM)}
    assert f"{limits.MCP_MESSAGE // limits.MIB} MiB" in TEXT
    for code in (PARSE_ERROR, INVALID_REQUEST, TOO_LONG):
        assert str(code) in TEXT
    default = Resources()
    assert f"{default.memory // limits.MIB}MiB" in TEXT
    assert f"{default.pids} processes" in TEXT


def test_exit_codes() -> None:
    for code in (ExitCode.USAGE, ExitCode.SANDBOX, ExitCode.CANNOT_EXECUTE, ExitCode.NOT_FOUND):
        assert f"| {int(code)} |" in TEXT
