"""What becomes of one line between client and server: passed, dropped, answered. Pure.

Only what has an envelope passes, and passes as the bytes it came as. Called by the relay for every line unless it
relays raw bytes. Not here: grants and annotations, which will decide on the same envelopes.
"""

from typing import Literal, NamedTuple

from sandboxd import limits
from sandboxd.mcp.connections.envelope import Envelope, error_reply, read_edges, read_envelope
from sandboxd.mcp.connections.lines import OverLong

Side = Literal["client", "server"]
Fault = Literal["not_jsonrpc", "too_long"]

# JSON-RPC 2.0 section 5.1; the last is in the range left to implementations.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
TOO_LONG = -32050


class Outcome(NamedTuple):
    """`forward` goes to the other side; `to_sender` and `to_receiver` are answers of our own. `fault`: why the line
    did not pass, `complaint` says it for stderr and never holds what the line said."""

    envelope: Envelope | None = None
    forward: bytes = b""
    to_sender: bytes = b""
    to_receiver: bytes = b""
    fault: Fault | None = None
    complaint: str = ""


_NOTHING = Outcome()


def judge_line(line: bytes | OverLong, sender: Side) -> Outcome:
    """`sender` wrote `line`."""
    if isinstance(line, OverLong):
        return _over_long(line, sender)
    envelope = read_envelope(line)
    if envelope.kind != "invalid":
        return Outcome(envelope, forward=line)
    if not line.strip():
        return _NOTHING
    if sender == "server":
        complaint = (
            f"dropped a line of the server's stdout that is not JSON-RPC: {envelope.problem} (--raw passes anything)"
        )
        return Outcome(envelope, fault="not_jsonrpc", complaint=complaint)
    code = PARSE_ERROR if envelope.problem.startswith("not ") else INVALID_REQUEST
    return Outcome(
        envelope,
        to_sender=error_reply(None, code, f"not a JSON-RPC message: {envelope.problem}"),
        fault="not_jsonrpc",
        complaint=f"refused a line of the client that is not JSON-RPC: {envelope.problem}",
    )


def _over_long(line: OverLong, sender: Side) -> Outcome:
    """Whoever waits for an answer to it is told: the sender of a request, the receiver of a response."""
    envelope = read_edges(line)
    kind = "line" if envelope.kind == "invalid" else envelope.kind
    text = f"a {kind} of {line.length} bytes is too long, the limit is {limits.MCP_MESSAGE}"
    reply = error_reply(envelope.id, TOO_LONG, text)
    return Outcome(
        envelope,
        to_sender=reply if envelope.kind == "request" else b"",
        to_receiver=reply if envelope.kind == "response" else b"",
        fault="too_long",
        complaint=f"dropped what the {sender} sent: {text}",
    )
