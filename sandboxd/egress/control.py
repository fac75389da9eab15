"""What a controller tells the gateway, as typed messages; each gets `Ok` or `Failed`.

A sandbox that no one registered accepts and resets. Registrations end with the connection that made them.
"""

from typing import Any

from sandboxd import channel
from sandboxd.channel import message
from sandboxd.settings import Pin


@message
class Register:
    """Apply `policies` to `sandbox`: the scopes that must all allow, widest first, each as plain JSON
    (`EgressPolicy.to_wire`, read by `policy.wire`); none of them denies everything. A second registration replaces the
    first. `canary` is what the gateway answers on the probe's address. `revision` counts, `hash` is the policy
    document's."""

    sandbox: str
    tenant: str
    agent: str
    workload: str
    policies: tuple[dict[str, Any], ...]
    pins: tuple[Pin, ...]
    canary: str
    revision: int = 1
    hash: str = ""


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
class Calls:
    """Tool calls of `sandbox` began and ended, these by their ids. Rules with `tools` are open while one of theirs is
    in flight; once this is answered, what it says holds."""

    sandbox: str
    started: tuple[Call, ...] = ()
    ended: tuple[str, ...] = ()


@message
class Flush:
    """Answered once every record so far is on disk."""


@message
class Ok:
    """Done."""


@message
class Failed:
    """Not done; nothing changed."""

    code: str
    message: str


REQUESTS = channel.registry(Register, Unregister, Calls, RecordSandbox, Flush)
REPLIES = channel.registry(Ok, Failed)
