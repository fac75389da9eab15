"""The SSH identification line: what an SSH client says first, in the clear (RFC 4253 4.2, egress.md 4).

Not here: anything after it, which is opaque. Called by `egress.first_bytes`.
"""

import re
from dataclasses import dataclass

from sandboxd.egress.wire.outcome import NEED_MORE, NeedMore, Refusal
from sandboxd.reasons import Reason

_START = b"SSH-2.0-"
# The carriage return and the line feed included.
_LONGEST = 255
# Printable ASCII; comments after a space. Some clients put a minus into their version, and end with a line feed alone.
_LINE = re.compile(rb"SSH-2\.0-[!-~]+(?: [ -~]*)?")


@dataclass(frozen=True, slots=True)
class Identification:
    """`software`: the version and comments that the client names, printable ASCII."""

    software: str


class IdentificationReader:
    """Reads one identification line. A client sends nothing before it. Never raises."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._answer: Identification | Refusal | None = None

    def feed(self, data: bytes) -> NeedMore | Identification | Refusal:
        """The answer so far; once it is not NeedMore it stays, and further data is not kept."""
        if self._answer is None:
            self._line += data[: _LONGEST + 1]
            self._answer = self._read()
        return self._answer or NEED_MORE

    def _read(self) -> Identification | Refusal | None:
        head = bytes(self._line[: len(_START)])
        if head != _START[: len(head)]:
            return Refusal(Reason.PROTO_MISMATCH, "no SSH 2 identification line")
        line, end, _ = bytes(self._line).partition(b"\n")
        if len(line) + len(end) > _LONGEST or (not end and len(line) >= _LONGEST):
            return Refusal(Reason.MALFORMED, f"an SSH identification line of more than {_LONGEST} bytes")
        if not end:
            return None
        line = line.removesuffix(b"\r")
        if not _LINE.fullmatch(line):
            return Refusal(Reason.MALFORMED, "an SSH identification line that is not printable ASCII")
        return Identification(line[len(_START) :].decode("ascii"))
