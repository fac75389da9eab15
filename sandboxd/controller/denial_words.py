"""Denials in words: for a model, in the result of the call during which they happened; for a person, on stderr.

Pure. Called by `tool_calls`. Names come from inside: they are canonical or hexadecimal, and bounded by the gateway.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from sandboxd import limits
from sandboxd.egress.control import Denied
from sandboxd.reasons import Reason

_HTTPS, _HTTP = 443, 80
# What another rule would open.
_OPENABLE = frozenset((Reason.NO_MATCH, Reason.PORT, Reason.WORKLOAD))
_BUSY = frozenset((Reason.QUOTA_CONNS, Reason.QUOTA_NEW_CONNS, Reason.QUOTA_BYTES, Reason.QUOTA_NAMES))
_PLAIN = re.compile(r"[ -~]*")


def place(denied: Denied) -> str:
    """`HOST:PORT`, or the host alone for a name query."""
    host = _host(denied)
    shown = f"[{host}]" if denied.host is None and ":" in host and denied.port else host
    return f"{shown}:{denied.port}" if denied.port else shown


def for_model(denials: Sequence[Denied], more: int) -> str:
    """The text block of a tool's result. `more`: denials that it doesn't name."""
    named = "; ".join(f"{place(each)} ({_why(each)})" for each in denials)
    rest = f"; and {more} more" if more else ""
    busy = all(each.reason in _BUSY for each in denials)
    advice = (
        "Fewer connections at a time may pass."
        if busy
        else "Retrying will not help: only whoever runs this sandbox can change its policy."
    )
    return f"[sandboxd] While this tool ran, the sandbox's network policy refused: {named}{rest}. {advice}"


def for_operator(denied: Denied, *, short_form: bool) -> str:
    """One line, with the exact `--allow` (`short_form`) or rule that would have opened it, where one would."""
    said = f"refused {place(denied)} ({_why(denied)})"
    if denied.reason not in _OPENABLE or (denied.host or "").startswith("hex:") or _host(denied) == "?":
        return said
    if short_form:
        return f"{said}; to allow it: --allow {_short(denied)}"
    return f"{said}; to allow it, in egress.rules: {json.dumps(_rule(denied))}"


def annotated(line: bytes, text: str) -> bytes:
    """The response in `line` with one more text block; the very same bytes where its result has no content."""
    if len(line) > limits.MCP_PARSE:
        return line
    try:
        message: Any = json.loads(line)
        result = message["result"]
        if not isinstance(result["content"], list):
            return line
        result["content"] = [*result["content"], {"type": "text", "text": text}]
        written = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, LookupError, TypeError, RecursionError):
        return line
    return written + (b"\n" if line.endswith(b"\n") else b"")


def _why(denied: Denied) -> str:
    rule = f", rule {denied.rule}" if denied.rule else ""
    return f"{denied.reason}{rule}"


def _host(denied: Denied) -> str:
    host = denied.host or denied.ip or "?"
    return host if _PLAIN.fullmatch(host) else "?"


def _port(denied: Denied) -> int:
    return denied.port or _HTTPS


def _proto(denied: Denied) -> str:
    return {_HTTPS: "tls", _HTTP: "http"}.get(_port(denied), "tcp")


def _short(denied: Denied) -> str:
    host, port = _host(denied), _port(denied)
    bracketed = f"[{host}]" if ":" in host else host
    if port == _HTTPS:
        return bracketed
    return f"http://{bracketed}" if port == _HTTP else f"tcp://{bracketed}:{port}"


def _rule(denied: Denied) -> dict[str, Any]:
    host, port = _host(denied), _port(denied)
    where = {"hosts": [host]} if denied.host else {"cidrs": [f"{host}/{128 if ':' in host else 32}"]}
    name = f"{host}-{port}".replace(":", "-").strip("-")[:100]
    return {"id": name, "action": "allow", "to": {**where, "ports": [port]}, "proto": _proto(denied)}
