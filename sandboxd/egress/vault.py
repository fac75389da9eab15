"""The secrets that the gateway holds for one sandbox, and the placeholders that the sandbox has in their place. Pure.

Nothing in here shows a value: neither its text form nor an error. Not here: where secrets come from, which request gets
one (`injection`). Filled by the gateway at registration and rotation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sandboxd import limits

PLACEHOLDER_PREFIX = "sandboxd-placeholder-"
_PREFIX = PLACEHOLDER_PREFIX.encode()


@dataclass(frozen=True, slots=True)
class HeldSecret:
    """A secret by name, its value, and what the sandbox holds instead."""

    name: str
    value: str
    placeholder: str

    def __repr__(self) -> str:
        return f"HeldSecret({self.name!r}, <hidden>)"


class Vault:
    """The secrets of one sandbox by name."""

    def __init__(self, secrets: Iterable[HeldSecret] = ()) -> None:
        self._values: dict[str, str] = {}
        self._placeholders: tuple[bytes, ...] = ()
        self.fill(secrets)

    def __repr__(self) -> str:
        return f"Vault({', '.join(sorted(self._values))})"

    def fill(self, secrets: Iterable[HeldSecret]) -> None:
        """These secrets and no others from here on."""
        held = tuple(secrets)
        self._values = {secret.name: secret.value for secret in held}
        self._placeholders = tuple(secret.placeholder.encode() for secret in held)

    def rotate(self, name: str, value: str) -> bool:
        """The secret has another value; False where none of that name is held."""
        if name not in self._values:
            return False
        self._values[name] = value
        return True

    def value(self, name: str) -> str | None:
        """The secret's value now."""
        return self._values.get(name)

    def in_bytes(self, data: bytes) -> bool:
        """Whether a placeholder of this sandbox stands in `data`."""
        return _PREFIX in data and any(placeholder in data for placeholder in self._placeholders)

    def scan(self) -> "Scan":
        """A look at one body as it passes."""
        return Scan(self, max(map(len, self._placeholders), default=0))


class Scan:
    """Looks for placeholders in the first `limits.PLACEHOLDER_BODY` bytes of a body, however it is cut."""

    def __init__(self, vault: Vault, longest: int) -> None:
        self._vault = vault
        self._keep = longest - 1
        self._tail = b""
        self._left = limits.PLACEHOLDER_BODY if longest else 0

    def found(self, data: bytes) -> bool:
        """Whether one stands in what has passed, `data` being the next piece."""
        if self._left <= 0:
            return False
        seen = self._tail + data
        self._left -= len(data)
        self._tail = seen[-self._keep :]
        return self._vault.in_bytes(seen)
