"""Hot reload: a policy file that changes becomes the sandbox's next revision while its workload runs.

A thread of its own looks at the file a few times a second and, once it rests, has it read and registered; an invalid
one changes nothing and is told once. Called by `run` around the relay. Not here: what a document means for this run
(`read`, the caller's), judging live connections again (the gateway).
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sandboxd import limits
from sandboxd.controller.policy_file import OutOfReachError, PolicyFile, Version
from sandboxd.errors import SandboxdError


@dataclass(frozen=True, slots=True)
class Revision:
    """What a file's content means for a run. `later`: what in it takes effect at the next start only."""

    policies: tuple[dict[str, Any], ...]
    hash: str
    later: tuple[str, ...] = ()
    summary: str = ""


class Register(Protocol):
    """`controller.registration.Registration.revise`: the number of the revision. Raises SandboxdError."""

    def __call__(self, policies: tuple[dict[str, Any], ...], hash: str) -> int: ...


class PolicyWatch:
    """Between `start` and `close`. `read` makes a Revision of the content, or raises SandboxdError; `say` tells the
    operator. `hash`: of the revision that stands."""

    def __init__(
        self,
        file: PolicyFile,
        hash: str,
        read: Callable[[bytes], Revision],
        register: Register,
        say: Callable[[str], None],
    ) -> None:
        self._file = file
        self._hash = hash
        self._read = read
        self._register = register
        self._say = say
        self._said = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="policy", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """No revision comes after this."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join(limits.GATEWAY_REGISTER)

    def _watch(self) -> None:
        taken = pending = self._file.opened
        while not self._closed.wait(limits.POLICY_LOOK):
            seen = self._version()
            if seen not in (None, taken) and seen == pending:  # it rests: whoever writes it is done
                taken = seen
                self._take()
            pending = seen

    def _version(self) -> Version | None:
        try:
            return self._file.version()
        except OutOfReachError:
            self._tell_out_of_reach()
            return None

    def _take(self) -> None:
        name = self._file.path
        try:
            revision = self._read(self._file.read())
            changed = revision.hash != self._hash
            number = self._register(revision.policies, revision.hash) if changed else 0
        except OutOfReachError:
            self._tell_out_of_reach()
        except SandboxdError as error:
            self._tell(f"{name} changed and can't be used, what it said before still holds:\n{error}")
        else:
            self._hash, self._said = revision.hash, ""
            if changed:
                self._say(f"{name}: revision {number} holds now; {revision.summary}")
            if revision.later:
                self._tell(f"{name}: {', '.join(revision.later)}: takes effect at the next start")

    def _tell_out_of_reach(self) -> None:
        self._tell(
            f"{self._file.path} was replaced, and this process, no longer root, may not read what stands there: it "
            "takes effect at the next start (a file that the user sandboxd can read is followed)"
        )

    def _tell(self, text: str) -> None:
        """Once, until something else is to be told."""
        if text != self._said:
            self._said = text
            self._say(text)
