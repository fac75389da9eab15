"""Secrets that the gateway puts into requests: the workload has placeholders. Read and opened with the caller's
privileges; a file that changes is read anew, and the gateway told, while the workload runs.

Not here: which requests get one (the policy's credentials). Called by `run`.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandboxd import limits
from sandboxd.controller.policy_file import OutOfReachError, PolicyFile, Version
from sandboxd.controller.secrets import Secret, resolve_secret
from sandboxd.egress.control import Secret as HeldSecret
from sandboxd.egress.vault import PLACEHOLDER_PREFIX
from sandboxd.errors import SandboxdError, UsageError

# Stands for a variable's name where the workload gets none.
_NO_VARIABLE = "_"


@dataclass(frozen=True, slots=True)
class Held:
    """Those of one run. `variables`: what the workload sees of them; `files`: where those come from that may change."""

    secrets: tuple[HeldSecret, ...] = ()
    variables: tuple[Secret, ...] = ()
    files: tuple[tuple[str, PolicyFile], ...] = ()


def hold_secrets(
    names: Sequence[str], references: Sequence[str], variables: Mapping[str, str], environment: Mapping[str, str]
) -> Held:
    """The secrets of these names out of `references` (as `secrets.resolve_secret` reads them); `variables`: secret →
    the workload's variable. Raises UsageError, which never holds a value."""
    secrets: list[HeldSecret] = []
    seen: list[Secret] = []
    files: list[tuple[str, PolicyFile]] = []
    for reference in references:
        name, _, source = reference.partition("=")
        if name not in names:
            continue
        if source.startswith("file:"):
            files.append((name, _open(name, source.removeprefix("file:"))))
        value = resolve_secret(reference, _NO_VARIABLE, environment).value
        held = HeldSecret(name, value, f"{PLACEHOLDER_PREFIX}{os.urandom(16).hex()}")
        secrets.append(held)
        if name in variables:
            seen.append(Secret(variables[name], held.placeholder))
    return Held(tuple(secrets), tuple(seen), tuple(files))


def _open(name: str, path: str) -> PolicyFile:
    try:
        return PolicyFile(Path(path))
    except OSError as error:
        raise UsageError(f"--secret {name}: can't read its file: {error.strerror}", code="bad_secret") from None


class SecretWatch:
    """Between `start` and `close` a secret whose file changed is given to `rotate` (its name, its value). `say` tells
    the operator, never a value."""

    def __init__(
        self,
        files: Sequence[tuple[str, PolicyFile]],
        rotate: Callable[[str, str], None],
        say: Callable[[str], None],
    ) -> None:
        self._files = files
        self._rotate = rotate
        self._say = say
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="secrets", daemon=True)

    def __enter__(self) -> "SecretWatch":
        if self._files:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join(limits.GATEWAY_REGISTER)
        for _, file in self._files:
            file.close()

    def _watch(self) -> None:
        taken: dict[str, Version | None] = {name: file.opened for name, file in self._files}
        pending = dict(taken)
        while not self._closed.wait(limits.POLICY_LOOK):
            for name, file in self._files:
                seen = self._version(name, file, taken)
                if seen not in (None, taken[name]) and seen == pending[name]:  # whoever writes it is done
                    taken[name] = seen
                    self._take(name, file)
                pending[name] = seen

    def _version(self, name: str, file: PolicyFile, taken: dict[str, Version | None]) -> Version | None:
        try:
            return file.version()
        except OutOfReachError:
            if taken[name] is not None:
                taken[name] = None
                self._say(_OUT_OF_REACH.format(name=name))
            return None

    def _take(self, name: str, file: PolicyFile) -> None:
        try:
            value = file.read().decode().removesuffix("\n")
            self._rotate(name, value)
        except OutOfReachError:
            self._say(_OUT_OF_REACH.format(name=name))
        except UnicodeDecodeError:
            self._say(f"secret {name}: its file changed and is not text in UTF-8; the value before still holds")
        except SandboxdError as error:
            self._say(f"secret {name}: its file changed and can't be used, the value before still holds: {error}")
        else:
            self._say(f"secret {name}: its file changed, the new value holds now")


_OUT_OF_REACH = (
    "secret {name}: its file was replaced, and this process, no longer root, may not read the new one: the value "
    "before still holds (a file that the user sandboxd can read is followed)"
)
