"""The `sandboxd` app: names, help and completion of every command; each is imported when it is the one that runs.

Called by `main` for everything but `run`, whose options are shown and completed here and read by `run_options`.
"""

import argparse
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer
from typer.exceptions import TyperException

from sandboxd import __version__
from sandboxd.cli.run_options import EXAMPLES, run_parser
from sandboxd.errors import ExitCode, UsageError

# Groups: the module has an `app`. Commands: the module has a function of that name.
_GROUPS = ("policy", "audit", "image")
_COMMANDS = ("doctor", "probe")
# A list of commands has one line for each, and cuts a longer sentence off.
_SHORT = {"doctor": "Check this machine, with the fix for each fault.", "probe": "Try to break out of a sandbox."}

_ALL = (*_GROUPS, *_COMMANDS, "run", "version", "completion")
_COMPLETE = "_SANDBOXD_COMPLETE"  # set by the shell's completion script

Shell = Literal["bash", "zsh", "fish"]


def run_app(arguments: Sequence[str]) -> int:
    """The exit code. Raises SandboxdError."""
    app = build_app(arguments[0] if arguments else "")
    if _COMPLETE in os.environ:
        from typer.completion import completion_init  # pyright: ignore[reportPrivateImportUsage]

        completion_init()
    given = ["version"] if list(arguments) == ["--version"] else list(arguments)
    if not given or (len(given) == 1 and given[0] in _GROUPS):
        given.append("--help")
    try:
        result: Any = app(given, prog_name="sandboxd", standalone_mode=False)
    except TyperException as error:  # arguments that typer can't read
        context = getattr(error, "ctx", None)
        hint = f"`{context.command_path if context else 'sandboxd'} --help` lists what is expected"
        raise UsageError(error.format_message().replace("Value error, ", ""), hint=hint) from None
    return result if isinstance(result, int) else ExitCode.OK


def build_app(wanted: str = "") -> typer.Typer:
    """All of the app, or no more of it than the command that is wanted needs."""
    app = typer.Typer(
        name="sandboxd",
        help="Run MCP servers nobody here wrote, sealed, under an egress policy outside their reach.",
        no_args_is_help=True,
        add_completion=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    every = wanted not in _ALL
    app.command("run", short_help="Run an MCP server, sealed, and relay MCP.", no_args_is_help=False)(_run_command())
    for name in _GROUPS:
        if every or wanted == name:
            app.add_typer(importlib.import_module(f"sandboxd.cli.{name}").app, name=name)
    for name in _COMMANDS:
        if every or wanted == name:
            app.command(name, short_help=_SHORT[name])(getattr(importlib.import_module(f"sandboxd.cli.{name}"), name))
    app.command("completion", short_help="Print a completion script.")(_completion)
    app.command("version")(_version)
    return app


def _run_command() -> Callable[..., None]:
    """`run` as typer shows and completes it, made from the one table of its options. It never runs from here but to
    print its help: `main` takes it before."""
    options = [action for action in run_parser()._actions if action.option_strings and action.dest != "help"]  # pyright: ignore[reportPrivateUsage]

    def run(**_: Any) -> None:
        raise AssertionError("main takes run before the app does")

    run.__doc__ = f"{run_parser().description}\n\n\b\n{EXAMPLES.replace(chr(10) * 2, chr(10) * 2 + chr(8) + chr(10))}"
    annotations: dict[str, Any] = {action.dest: _annotation(action) for action in options}
    annotations["command"] = Annotated[list[str] | None, typer.Argument(metavar="COMMAND", show_default=False)]
    run.__annotations__ = annotations
    keyword = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in annotations.items()]
    )
    return run


def _annotation(action: argparse.Action) -> Any:
    metavar = action.metavar if isinstance(action.metavar, str) else None
    option = typer.Option(*action.option_strings[:1], help=action.help, metavar=metavar, show_default=False)
    if action.nargs == 0:
        names = "/".join(action.option_strings)
        return Annotated[bool | None, typer.Option(names, help=action.help, show_default=False)]
    kind: Any = list[str] if isinstance(action.default, list) else action.type or str
    return Annotated[kind | None, option]


def _completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print a completion script: source it, or put it where your shell looks."""
    from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]

    typer.echo(get_completion_script(prog_name="sandboxd", complete_var=_COMPLETE, shell=shell))


def _version() -> None:
    """Print the version."""
    typer.echo(f"sandboxd {__version__} (Python {sys.version.split()[0]})")
