"""The vocabulary between a flow (pure) and the pump that performs it: events in, commands out (`egress.flow`)."""

from typing import Literal

from sandboxd import limits
from sandboxd.audit.events import Event
from sandboxd.channel import message
from sandboxd.reasons import Reason

# --- events: what happened ------------------------------------------------------------------------------------


@message
class ClientData:
    """Bytes from inside."""

    data: bytes


@message
class ClientEof:
    """Inside closed its sending half."""


@message
class ClientLost:
    """Inside reset or vanished."""


@message
class Resolved:
    """Packed addresses (4 or 16 bytes) of the host, in the resolver's order; empty: it has none."""

    addresses: tuple[bytes, ...]


@message
class ResolveFailed:
    """No answer."""

    detail: str


@message
class Connected:
    """The upstream connection stands, to this packed address."""

    address: bytes


@message
class ConnectFailed:
    """Every address refused or was silent."""

    reason: Reason
    detail: str


@message
class UpstreamData:
    """Bytes from outside."""

    data: bytes


@message
class UpstreamEof:
    """Outside closed its sending half."""


@message
class UpstreamLost:
    """Outside reset or vanished."""


@message
class UpstreamSecured:
    """TLS to upstream stands, its certificate verified; `alpn`: what it chose, empty where it chose nothing."""

    alpn: str


@message
class UpstreamNotSecured:
    """No TLS to upstream, or its certificate is not good for the name. `detail`: in OpenSSL's words."""

    detail: str


@message
class ClientSecured:
    """TLS with inside stands: ClientData and ToClient are what is in it from here on."""


@message
class ClientNotSecured:
    """Inside broke off the handshake, or does not trust the certificate. `detail`: in OpenSSL's words."""

    detail: str


@message
class TimedOut:
    """The timer of this name ran out."""

    timer: str


@message
class SpliceEnded:
    """A splice is over: bytes inside→outside and outside→inside, and how: `eof` both ways, `client_lost`,
    `upstream_lost`, `idle`, `quota` of bytes."""

    bytes_out: int
    bytes_in: int
    how: Literal["eof", "client_lost", "upstream_lost", "idle", "quota"]


@message
class Revoked:
    """The policy or the sandbox is gone, or this is a bug's end. Bytes that a splice passed until now."""

    reason: Reason
    bytes_out: int = 0
    bytes_in: int = 0


InputEvent = (
    ClientData | ClientEof | ClientLost | Resolved | ResolveFailed | Connected | ConnectFailed
    | UpstreamData | UpstreamEof | UpstreamLost | TimedOut | SpliceEnded | Revoked
    | UpstreamSecured | UpstreamNotSecured | ClientSecured | ClientNotSecured
)  # fmt: skip

# --- commands: what to do -------------------------------------------------------------------------------------


@message
class Resolve:
    """Ask upstream for the addresses of `host`, already canonical."""

    host: str


@message
class Dial:
    """Connect to the first of `addresses` (packed, vetted) that answers, within `seconds` in all."""

    addresses: tuple[bytes, ...]
    port: int
    seconds: float = limits.CONNECT


@message
class ToClient:
    """Send inside."""

    data: bytes


@message
class ToUpstream:
    """Send outside."""

    data: bytes


@message
class SecureUpstream:
    """Begin TLS to upstream: its certificate must be good for `host`; `alpn`: what to offer."""

    host: str
    alpn: tuple[str, ...]


@message
class SecureClient:
    """Begin TLS with inside under a certificate for `host`, `first` being its bytes so far; `alpn`: what to choose."""

    host: str
    alpn: str
    first: bytes


@message
class EofUpstream:
    """Close the sending half towards outside."""


@message
class EofClient:
    """Close the sending half towards inside."""


@message
class Splice:
    """From here on bytes pass both ways unread until both ends or `idle` seconds of silence: then SpliceEnded."""

    idle: float


@message
class Close:
    """Close both ends, after what was sent; `reset` sends RST inside instead of FIN. The flow is over."""

    reset: bool = False


@message
class StartTimer:
    """`TimedOut(timer)` after `seconds`; a second one of that name replaces the first."""

    timer: str
    seconds: float


@message
class StopTimer:
    """Forget it."""

    timer: str


@message
class Record:
    """Emit an audit record. Where the sink refuses it the pump closes the flow with a reset: nothing may pass that
    was not recorded."""

    event: Event


Command = (
    Resolve | Dial | ToClient | ToUpstream | EofUpstream | EofClient | Splice | Close | StartTimer | StopTimer | Record
    | SecureUpstream | SecureClient
)  # fmt: skip
