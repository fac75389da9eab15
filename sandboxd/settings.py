"""The operator's settings: where things are, who the processes run as, operator pins.

`/etc/sandboxd/settings.toml`, or the file that SANDBOXD_SETTINGS names; every key has a default. Strict: an unknown
key is an error. A policy can never set any of this.
"""

import ipaddress
import os
import re
import stat
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sandboxd.errors import UsageError

DEFAULT_FILE = Path("/etc/sandboxd/settings.toml")
# ADDRESS, [ADDRESS], either with :PORT; without brackets all colons but an IPv4 address's one are the address's.
_PLACE = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+|[0-9A-Fa-f:.]+))(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Pin:
    """Where a name really is (design.md decision 11): exempts exactly this address of this name from the floor.

    `port` None: any port that a rule allows, dialed as asked. A rule must still allow the name.
    """

    host: str
    address: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Pin":
        """`HOST=ADDR[:PORT]`, an IPv6 address in brackets when a port follows. Raises UsageError."""
        host, _, where = text.partition("=")
        match = _PLACE.fullmatch(where)
        try:
            address = ipaddress.ip_address((match[1] or match[2]) if match else "")
        except ValueError:
            raise _pin_error(text) from None
        port = int(match[3]) if match and match[3] else None
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", host) or (port is not None and not 0 < port < 65536):
            raise _pin_error(text)
        return cls(host.lower().rstrip("."), str(address), port)


def _pin_error(text: str) -> UsageError:
    return UsageError(f"not a pin: {text!r}", hint="expected HOST=ADDRESS or HOST=ADDRESS:PORT", code="bad_pin")


@dataclass(frozen=True, slots=True)
class Settings:
    """Absolute paths, user names of this host, pins. docs/architecture.md says what each is for."""

    state_dir: Path = Path("/var/lib/sandboxd")
    # Not below /run, which Debian mounts noexec: each sandbox's own copy of the gate is started from here.
    run_dir: Path = Path("/var/lib/sandboxd/run")
    docker_socket: Path = Path("/var/run/docker.sock")
    gate: Path = Path("/usr/local/lib/sandboxd/gate")
    controller_user: str = "sandboxd"
    gateway_user: str = "sandboxd-gateway"
    # Roots that upstream's certificates may have besides the host's own, where TLS is intercepted.
    upstream_ca: Path | None = None
    pins: tuple[Pin, ...] = field(default_factory=tuple)

    @property
    def audit_dir(self) -> Path:
        """The audit database's folder, the gateway's own."""
        return self.state_dir / "audit"

    @property
    def audit_database(self) -> Path:
        return self.audit_dir / "audit.db"

    @property
    def controller_dir(self) -> Path:
        """The state database's folder, the controller's own."""
        return self.state_dir / "state"

    @property
    def state_database(self) -> Path:
        return self.controller_dir / "state.db"


def load_settings(path: Path | None = None) -> Settings:
    """The settings of `path`, of SANDBOXD_SETTINGS, or of the default file if it is there. Raises UsageError."""
    named = path or (Path(os.environ["SANDBOXD_SETTINGS"]) if "SANDBOXD_SETTINGS" in os.environ else None)
    file = named or DEFAULT_FILE
    if named is None and not file.exists():
        return Settings()
    import tomllib  # late: most machines have no such file

    try:
        if file.stat().st_mode & stat.S_IWOTH:
            raise UsageError(f"{file}: every user of this host can write it", hint="chmod o-w, and see who owns it")
        raw = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:  # not to be read, not UTF-8, not TOML
        raise UsageError(f"{file}: {error}", hint="settings are TOML; see docs/architecture.md") from None
    return _from_table(raw, file)


def _from_table(raw: dict[str, Any], file: Path) -> Settings:
    known = {f.name: f.type for f in fields(Settings)}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in known:
            raise UsageError(f"{file}: unknown key {key!r}", hint=f"expected one of {', '.join(sorted(known))}")
        if key == "pins":
            values[key] = _pins(value, file)
        elif not isinstance(value, str):
            raise UsageError(f"{file}: {key}: expected a string, got {type(value).__name__}")
        elif key.endswith("_user"):
            values[key] = value
        elif not value.startswith("/"):
            raise UsageError(f"{file}: {key}: expected an absolute path, got {value!r}")
        else:
            values[key] = Path(value)
    return Settings(**values)


def _pins(value: Any, file: Path) -> tuple[Pin, ...]:
    if not isinstance(value, dict):
        raise UsageError(f'{file}: pins: expected a table of HOST = "ADDRESS[:PORT]"')
    return tuple(Pin.parse(f"{host}={where}") for host, where in value.items())  # pyright: ignore[reportUnknownVariableType]
