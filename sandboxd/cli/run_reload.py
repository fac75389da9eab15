"""The policy file of a `run` while it runs: opened with the caller's privileges, read anew when it changes.

Called by `run`, for `--policy` only. Not here: looking at the file (`controller.policy_watch`).
"""

import contextlib
from collections.abc import Callable, Generator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxd.controller.plan import Plan
from sandboxd.controller.policy_file import PolicyFile
from sandboxd.controller.policy_watch import PolicyWatch, Revision
from sandboxd.errors import UsageError

if TYPE_CHECKING:
    from sandboxd.controller.sandbox import Sandbox
    from sandboxd.policy.models import PolicyDocument


def open_policy_file(path: str) -> PolicyFile:
    """To be opened before the policy is read. Raises UsageError."""
    try:
        return PolicyFile(Path(path))
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", hint="expected a readable policy file", code="no_policy"
        ) from None


class Reload:
    """One run's. `plan`: what it was started with; `replan` makes that of a changed document, `summary` tells what it
    may reach."""

    def __init__(
        self,
        file: PolicyFile,
        plan: Plan,
        replan: "Callable[[PolicyDocument], Plan]",
        summary: Callable[[Plan], str],
    ) -> None:
        self._file = file
        self._plan = plan
        self._replan = replan
        self._summary = summary

    @contextlib.contextmanager
    def following(self, sandbox: "Sandbox", say: Callable[[str], None]) -> Generator[None, None, None]:
        """While it lasts changes of the file reach the sandbox."""
        watch = PolicyWatch(self._file, self._plan.hash, self._read, sandbox.revise, say)
        watch.start()
        try:
            yield
        finally:
            watch.close()
            self._file.close()

    def _read(self, content: bytes) -> Revision:
        from sandboxd.policy.loading import decode_text, parse_policy

        name = str(self._file.path)
        document = parse_policy(decode_text(content, name), name, self._file.directory)
        plan = self._replan(document)
        return Revision(plan.wire, plan.hash, _differences(self._plan, plan), self._summary(plan))


def _differences(before: Plan, after: Plan) -> tuple[str, ...]:
    """What no running workload can be given: everything but its egress. Names only, some of it is private."""
    names = (field.name for field in fields(Plan) if field.name != "policies")
    return tuple(_WORDS.get(n, n) for n in names if getattr(before, n) != getattr(after, n))


_WORDS = {"mounts": "workspace", "held": "credentials", "intercepts": "interception"}
