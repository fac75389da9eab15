"""What a controller tells the gateway, as typed messages; each gets `Ok` or `Failed`.

A sandbox that no one registered accepts and resets. Registrations end with the connection that made them.
"""

from typing import Any

from sandboxd import channel
from sandboxd.channel import message
from sandboxd.settings import Pin


@message
class Secret:
    """A secret that the gateway holds for a sandbox; `placeholder` is what the sandbox has in its place."""

    name: str
    value: str
    placeholder: str

    def __repr__(self) -> str:
        return f"Secret({self.name!r}, <hidden>)"


@message
class Register:
    """Apply `policies` to `sandbox`: the scopes that must all allow, widest first, each as plain JSON
    (`EgressPolicy.to_wire`, read by `policy.wire`); none of them denies everything. A second registration replaces the
    first. `canary` is what the gateway answers on the probe's address. `revision` counts, `hash` is the policy
    document's. `secrets`: those that the policies' credentials name. Answered by `Registered`."""

    sandbox: str
    tenant: str
    agent: str
    workload: str
    policies: tuple[dict[str, Any], ...]
    pins: tuple[Pin, ...]
    canary: str
    revision: int = 1
    hash: str = ""
    secrets: tuple[Secret, ...] = ()


@message
class Rotate:
    """Secret `name` of `sandbox` has another value from the next request on."""

    sandbox: str
    name: str
    value: str

    def __repr__(self) -> str:
        return f"Rotate({self.sandbox!r}, {self.name!r}, <hidden>)"


@message
class Unregister:
    """Close and reset everything of `sandbox`."""

    sandbox: str


@message
class RecordSandbox:
    """Put the start or end of a workload into the audit log. `event`: sandbox_start | sandbox_end. `facts`: plain,
    short, no secrets (image, command name, exit code)."""

    sandbox: str
    event: str
    facts: dict[str, Any]


@message
class Call:
    """A tool call in flight: its JSON-RPC id as text (`1`, `"a"`), and the tool's final name. Both bounded by whoever
    tells of it."""

    id: str
    tool: str


@message
class InFlight:
    """These, and no others, are the tool calls of `sandbox` in flight: rules with `tools` are open while one of theirs
    is. Said on a connection that watches; with a `serial` it is answered by `Noted` once it holds, without (0) by
    nothing. It ends with the connection."""

    sandbox: str
    calls: tuple[Call, ...]
    serial: int = 0


@message
class Noted:
    """`InFlight` with this serial holds."""

    serial: int


@message
class Watch:
    """From here on this connection gets a `Denied` for each denial of `sandbox`; only `InFlight` is said on it.
    With it comes one descriptor of memory, the board that says how records name the calls in flight (`egress.calls`).
    `canary` shows that whoever asks is who registered the sandbox."""

    sandbox: str
    canary: str


@message
class Denied:
    """A connection, request or name query was denied: on record under `id`, and about to be told to the workload.
    `host` and `ip` as in the record; `port` 0 for a name query; `missed`: denials before this one that were not told,
    because nobody read."""

    host: str | None
    ip: str | None
    port: int
    proto: str | None
    reason: str
    rule: str | None
    id: str
    missed: int = 0


@message
class Flush:
    """Answered once every record so far is on disk."""


@message
class Ok:
    """Done."""


@message
class Registered:
    """The policies apply. `ca`: the certificate (PEM) that the sandbox must trust where connections are intercepted;
    empty where none is; `java` the same with the host's roots for Java (PKCS12, base64). It stays the same until the
    registration ends."""

    ca: str = ""
    java: str = ""


@message
class Failed:
    """Not done; nothing changed."""

    code: str
    message: str


REQUESTS = channel.registry(Register, Rotate, Unregister, InFlight, Watch, RecordSandbox, Flush)
REPLIES = channel.registry(Ok, Registered, Failed)
NEWS = channel.registry(Denied, Noted)
