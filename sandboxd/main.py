"""The `sandboxd` command: wiring only, imported by nobody.

`run` goes past the app: its start is what every MCP client waits for, and typer alone costs a third of it.
"""

import os
import sys
from collections.abc import Sequence

from sandboxd import limits
from sandboxd.cli.text import harmless
from sandboxd.errors import ExitCode, SandboxdError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code (`errors.ExitCode`, or a workload's own)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _fill_standard_descriptors()
    try:
        if given[:1] == ["run"] and not _asks_for_help(given[1:]):
            return _run(given[1:])
        from sandboxd.cli.app import run_app

        return run_app(["run", "--help"] if given[:1] == ["run"] else given)
    except SandboxdError as error:
        for line in f"sandboxd: {error}".splitlines():  # it may quote what a name, an image or a gateway said
            print(harmless(line), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return ExitCode.FAILED


def _run(arguments: Sequence[str]) -> int:
    """Fork first, import the rest then."""
    from sandboxd.cli.processes import start_processes
    from sandboxd.settings import load_settings

    settings = load_settings()
    warden = start_processes(settings, intercepts=_may_intercept(arguments))
    from sandboxd.cli.run import run_command

    return run_command(arguments, settings, warden)


def _may_intercept(arguments: Sequence[str]) -> bool:
    """Whether a policy file says so: before the fork nothing is parsed, and a policy that can't be read is refused."""
    for option, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if option == "--":
            break
        path = following if option == "--policy" else option.removeprefix("--policy=")
        if option.startswith("--policy") and path != option:
            try:
                with open(path, "rb") as file:
                    return b"intercept" in file.read(limits.POLICY_FILE)
            except OSError:
                break
    return False


def _asks_for_help(arguments: Sequence[str]) -> bool:
    """`--help` among our own options, not the command's."""
    for argument in arguments:
        if not argument.startswith("-") or argument == "--":
            return False
        if argument in ("--help", "-h"):
            return True
    return False


def _fill_standard_descriptors() -> None:
    """A client may start us with stdio closed: what we open must not take those numbers."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return


if __name__ == "__main__":
    sys.exit(main())
