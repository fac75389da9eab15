"""The gate's orders as bytes: what `images/gate/orders.h` reads. Pure.

Not here: the length before them and the writing (the caller's), nor what a workload may be given.
"""

import os
from collections.abc import Iterable, Mapping

from sandboxd.errors import UsageError
from sandboxd.limits import GATE_ORDERS

MAGIC = "sandboxd1"


def encode_orders(argv: Iterable[str], env: Mapping[str, str], cwd: str, lifeline_port: int) -> bytes:
    """Orders for the gate, behind their 4-byte big-endian length.

    `lifeline_port` 0: none. Raises UsageError, which names the piece at fault and never shows a value.
    """
    words = tuple(argv)
    if not words:
        raise _bad("the command is empty", "expected at least the program's name")
    if not cwd.startswith("/"):
        raise _bad(f"not an absolute directory: {cwd!r}", "expected a path that begins with /")
    if not 0 <= lifeline_port <= 65535:
        raise _bad(f"not a port: {lifeline_port}", "expected 0 to 65535")
    pieces = [MAGIC.encode(), b"%d" % lifeline_port, b"%d" % len(words)]
    pieces += [_bytes(word, f"argument {index}") for index, word in enumerate(words)]
    pieces += [b"%d" % len(env), *(_entry(name, value) for name, value in env.items())]
    pieces.append(_bytes(cwd, "the directory"))
    orders = b"".join(piece + b"\0" for piece in pieces)
    if len(orders) > GATE_ORDERS:
        raise _bad(f"command and environment take {len(orders)} bytes", f"expected at most {GATE_ORDERS} together")
    return len(orders).to_bytes(4) + orders


def _entry(name: str, value: str) -> bytes:
    if not name or "=" in name:
        raise _bad(f"not a name of an environment variable: {name!r}", "expected a non-empty name without '='")
    return _bytes(name, "the name of a variable") + b"=" + _bytes(value, f"the value of {name!r}")


def _bytes(text: str, what: str) -> bytes:
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        raise _bad(f"{what} can't be encoded", "expected text that UTF-8 can carry") from None
    if b"\0" in encoded:
        raise _bad(f"{what} has a NUL byte in it", "expected text without NUL bytes")
    return encoded


def _bad(message: str, hint: str) -> UsageError:
    return UsageError(message, hint=hint, code="bad_orders")
