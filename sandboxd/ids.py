"""Identifiers: ULIDs for records, short random names for sandboxes."""

import os
import time

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def ulid(milliseconds: int | None = None) -> str:
    """A ULID (github.com/ulid/spec): 48 bits of time, 80 of randomness, sortable as text."""
    stamp = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    value = (stamp & ((1 << 48) - 1)) << 80 | int.from_bytes(os.urandom(10))
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


def sandbox_id() -> str:
    """A new sandbox's name: `sb-` and 16 hex digits."""
    return f"sb-{os.urandom(8).hex()}"
