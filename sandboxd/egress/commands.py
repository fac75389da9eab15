"""The vocabulary between a flow (pure) and the pump that performs it: events in, commands out (`egress.flow`)."""

from dataclasses import dataclass
from typing import Literal

from sandboxd import limits
from sandboxd.audit.events import Event
from sandboxd.reasons import Reason

# --- events: what happened ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientData:
    """Bytes from inside."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ClientEof:
    """Inside closed its sending half."""


@dataclass(frozen=True, slots=True)
class ClientLost:
    """Inside reset or vanished."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Packed addresses (4 or 16 bytes) of the host, in the resolver's order; empty: it has none."""

    addresses: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ResolveFailed:
    """No answer."""

    detail: str


@dataclass(frozen=True, slots=True)
class Connected:
    """The upstream connection stands, to this packed address."""

    address: bytes


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """Every address refused or was silent."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class UpstreamData:
    """Bytes from outside."""

    data: bytes


@dataclass(frozen=True, slots=True)
class UpstreamEof:
    """Outside closed its sending half."""


@dataclass(frozen=True, slots=True)
class UpstreamLost:
    """Outside reset or vanished."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The timer of this name ran out."""

    timer: str


@dataclass(frozen=True, slots=True)
class SpliceEnded:
    """A splice is over: bytes inside→outside and outside→inside, and how: `eof` both ways, `client_lost`,
    `upstream_lost`, `idle`."""

    bytes_out: int
    bytes_in: int
    how: Literal["eof", "client_lost", "upstream_lost", "idle"]


@dataclass(frozen=True, slots=True)
class Revoked:
    """The policy or the sandbox is gone, or this is a bug's end. Bytes that a splice passed until now."""

    reason: Reason
    bytes_out: int = 0
    bytes_in: int = 0


InputEvent = (
    ClientData | ClientEof | ClientLost | Resolved | ResolveFailed | Connected | ConnectFailed
    | UpstreamData | UpstreamEof | UpstreamLost | TimedOut | SpliceEnded | Revoked
)  # fmt: skip

# --- commands: what to do -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resolve:
    """Ask upstream for the addresses of `host`, already canonical."""

    host: str


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to the first of `addresses` (packed, vetted) that answers, within `seconds` in all."""

    addresses: tuple[bytes, ...]
    port: int
    seconds: float = limits.CONNECT


@dataclass(frozen=True, slots=True)
class ToClient:
    """Send inside."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ToUpstream:
    """Send outside."""

    data: bytes


@dataclass(frozen=True, slots=True)
class EofUpstream:
    """Close the sending half towards outside."""


@dataclass(frozen=True, slots=True)
class EofClient:
    """Close the sending half towards inside."""


@dataclass(frozen=True, slots=True)
class Splice:
    """From here on bytes pass both ways unread until both ends or `idle` seconds of silence: then SpliceEnded."""

    idle: float


@dataclass(frozen=True, slots=True)
class Close:
    """Close both ends, after what was sent; `reset` sends RST inside instead of FIN. The flow is over."""

    reset: bool = False


@dataclass(frozen=True, slots=True)
class StartTimer:
    """`TimedOut(timer)` after `seconds`; a second one of that name replaces the first."""

    timer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Forget it."""

    timer: str


@dataclass(frozen=True, slots=True)
class Record:
    """Emit an audit record. Where the sink refuses it the pump closes the flow with a reset: nothing may pass that
    was not recorded."""

    event: Event


Command = (
    Resolve | Dial | ToClient | ToUpstream | EofUpstream | EofClient | Splice | Close | StartTimer | StopTimer | Record
)
