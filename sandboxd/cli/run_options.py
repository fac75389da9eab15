"""The options of `sandboxd run`: one table, read by argparse on the hot path and shown by the app's help.

argparse and not typer: importing typer costs 100 ms, a third of a start. Called by `run` and by the app. Pure.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sandboxd.errors import UsageError

EXAMPLES = """\
examples, each the `command` and `args` of an MCP client's configuration:
  sandboxd run --allow api.github.com -- npx -y @modelcontextprotocol/server-everything@2026.8.31
  sandboxd run --workspace ~/project:ro -- uvx mcp-server-git==2026.10.19
  sandboxd run --image sandboxd/python --secret TOKEN=env:MY_TOKEN -- python3 -m my_server
  sandboxd run --policy github.yaml --server github

Without --allow and --policy the command has no network. Its environment is what --env and --secret list, and PATH,
HOME, USER, LANG and TMPDIR. It can write /tmp and HOME, which end with it, and the workspace. When stdin ends and
nothing is unanswered it has 2 s, then it gets TERM, then KILL.

exit: the command's own code, 128+N after signal N; 2 wrong input, nothing was started; 125 sandboxd or Docker could
not do it; 126 the command can't be executed; 127 it is not in the image.
"""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The command line as given; what it means together is `run`'s to say."""

    policy: str | None
    server: str | None
    allow: tuple[str, ...]
    image: str | None
    package: str | None
    workspace: str | None
    env: tuple[str, ...]
    secret: tuple[str, ...]
    pin: tuple[str, ...]
    runtime: str | None
    memory: str | None
    cpus: float | None
    pids: int | None
    raw: bool
    annotate: bool
    unix_sockets: bool | None
    command: tuple[str, ...]

    def __repr__(self) -> str:  # env and command may hold secrets
        return f"RunOptions(policy={self.policy!r}, image={self.image!r}, …)"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint="sandboxd run --help shows every option, with examples")


class _Once(argparse.Action):
    """A value that is given twice is a mistake: which of them is meant?"""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{self.option_strings[0]} stands twice")
        setattr(namespace, self.dest, values)


def run_parser() -> argparse.ArgumentParser:
    """The parser; its errors are UsageError."""
    parser = _Parser(
        prog="sandboxd run",
        usage="sandboxd run [OPTIONS] [--] COMMAND [ARG…]",
        description="Run an MCP server in a sealed container of its own and relay MCP between it and stdin/stdout.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    reach = parser.add_argument_group("what it may reach")
    reach.add_argument("--policy", action=_Once, metavar="FILE", help="a policy file; see sandboxd policy")
    reach.add_argument(
        "--server", action=_Once, metavar="NAME", help="which server of the policy, where it has several"
    )
    _list(reach, "--allow", "HOST", "allow TLS to HOST:443; or tcp://HOST:PORT, tls://HOST:PORT, http://HOST[:PORT]")
    _list(reach, "--pin", "HOST=ADDR[:PORT]", "where HOST really is, also if that address is never reached otherwise")
    what = parser.add_argument_group("what runs")
    what.add_argument("--image", action=_Once, metavar="IMAGE", help="an image of this host; default: by COMMAND")
    what.add_argument(
        "--package",
        action=_Once,
        metavar="npm:NAME@VERSION",
        help="a package image (or pypi:NAME==VERSION), built once",
    )
    what.add_argument(
        "--workspace", action=_Once, metavar="DIR[:ro]", help="a directory of this host, seen at /workspace"
    )
    _list(what, "--env", "NAME=VALUE", "set a variable of its environment")
    _list(what, "--secret", "NAME[=env:VAR|file:PATH]", "the same from here, without showing on a command line")
    what.add_argument("--raw", action="store_true", help="relay bytes instead of MCP messages")
    what.add_argument(
        "--no-annotate",
        dest="annotate",
        action="store_false",
        help="leave results of tools as they are: without this they say which hosts were refused meanwhile",
    )
    bounds = parser.add_argument_group("how it is held")
    bounds.add_argument("--runtime", action=_Once, metavar="R", help="runc (default) or runsc (gVisor)")
    bounds.add_argument("--memory", action=_Once, metavar="SIZE", help="512MiB by default")
    bounds.add_argument("--cpus", action=_Once, type=float, metavar="N", help="1 by default")
    bounds.add_argument("--pids", action=_Once, type=int, metavar="N", help="256 processes and threads by default")
    bounds.add_argument(
        "--unix-sockets",
        action=argparse.BooleanOptionalAction,
        help="allow Unix sockets (default: unless the workspace can be written)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def parse_run(arguments: Sequence[str]) -> RunOptions:
    """Raises UsageError; prints and exits on --help."""
    found = run_parser().parse_args(list(arguments))
    command: list[str] = found.command
    return RunOptions(
        policy=found.policy,
        server=found.server,
        allow=tuple(found.allow),
        image=found.image,
        package=found.package,
        workspace=found.workspace,
        env=tuple(found.env),
        secret=tuple(found.secret),
        pin=tuple(found.pin),
        runtime=found.runtime,
        memory=found.memory,
        cpus=found.cpus,
        pids=found.pids,
        raw=found.raw,
        annotate=found.annotate,
        unix_sockets=found.unix_sockets,
        command=tuple(command[1:] if command[:1] == ["--"] else command),
    )


def _list(group: argparse._ArgumentGroup, name: str, metavar: str, help_: str) -> None:  # pyright: ignore[reportPrivateUsage]
    group.add_argument(name, action="append", default=[], metavar=metavar, help=help_)
