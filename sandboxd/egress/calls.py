"""The tool calls in flight in one workload: which tools rules may be open for, and how records name them. Pure.

Two ways lead here, since records must know of calls that no rule asks for, and telling costs a call more than it takes:
`CallsInFlight` is what a controller said in messages, and rules go by it alone; a *board* is what it wrote into memory
that the gateway looks at when it makes a record. Called by the gateway, and by the controller to write.
"""

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any, cast

from sandboxd import limits
from sandboxd.egress.control import Call

BOARD_SIZE = 32 * limits.KIB
_HEAD = struct.Struct(">II")  # length and CRC-32 of the JSON list that follows


class CallsInFlight:
    """`tools`: final names of tools with a call in flight."""

    def __init__(self) -> None:
        self.tools: frozenset[str] = frozenset()

    def replace(self, calls: Sequence[Call]) -> None:
        """These and no others. What is too many or too long opens nothing."""
        fit = [call for call in calls if max(len(call.id), len(call.tool)) <= limits.CALL_TEXT]
        self.tools = frozenset(call.tool for call in fit[: limits.CALLS])


def write_board(calls: Sequence[Call]) -> bytes:
    """What is to stand at the board's beginning: the calls as records name them, `ID TOOL`, the first ones of many."""
    labels = [f"{call.id} {call.tool}" for call in calls[: limits.CALLS_NAMED]]
    if len(calls) > limits.CALLS_NAMED:
        labels.append(f"and {len(calls) - limits.CALLS_NAMED} more")
    body = json.dumps(labels, separators=(",", ":")).encode()
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def read_board(raw: bytes) -> tuple[str, ...] | None:
    """The calls that stand there; None where it is being written, or nonsense."""
    if len(raw) < _HEAD.size:
        return ()
    length, check = _HEAD.unpack_from(raw)
    body = raw[_HEAD.size : _HEAD.size + length]
    if len(body) != length or zlib.crc32(body) != check:
        return None
    try:
        found: Any = json.loads(body) if body else []
    except (ValueError, RecursionError):
        return None
    labels = cast(list[Any], found) if isinstance(found, list) else [found]
    good = len(labels) <= limits.CALLS_NAMED + 1 and isinstance(found, list) and all(map(_is_label, labels))
    return tuple(labels) if good else None


def _is_label(label: object) -> bool:
    return isinstance(label, str) and len(label) <= 2 * limits.CALL_TEXT + 1 and label.isascii() and label.isprintable()
