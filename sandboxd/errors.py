"""The one family of errors that reaches a person, and the exit codes they end with.

Every error says what happened and what to do next. Not here: verdicts (`policy`), which are values, not errors.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Stable exit codes of every command; `run` otherwise exits as its server did (128+N after signal N)."""

    OK = 0
    FAILED = 1  # a check, a probe or a test says no
    USAGE = 2  # arguments or policy are wrong; nothing was started
    SANDBOX = 125  # sandboxd or the engine could not do it
    CANNOT_EXECUTE = 126  # the command is there, but can't be executed
    NOT_FOUND = 127  # the command is not in the image


class SandboxdError(Exception):
    """What happened (`message`), what to do next (`hint`), how a program tells (`code`, `exit_code`).

    `message` and `hint` never hold a secret.
    """

    def __init__(self, code: str, message: str, *, hint: str = "", exit_code: ExitCode = ExitCode.SANDBOX) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(SandboxdError):
    """The caller's input is wrong: exit 2, nothing was started."""

    def __init__(self, message: str, *, hint: str = "", code: str = "usage") -> None:
        super().__init__(code, message, hint=hint, exit_code=ExitCode.USAGE)
