"""What a workload says on stderr, when that is a person's terminal: shown, never obeyed.

Escape sequences can rewrite what stands on the screen, our own lines too, or put commands into the clipboard. Called
by the relay, unless it relays raw bytes. Not here: texts that are whole (`cli.text`).
"""

import codecs
import re

# Controls but tab and newline, and the marks that change the direction of what follows.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class ForTerminal:
    """Bytes in, cut anywhere; the same out with every control as `\\xNN`, in UTF-8."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def feed(self, data: bytes) -> bytes:
        """What of `data` can be shown by now; half a character waits for its other half."""
        return _OBEYED.sub(_shown, self._decoder.decode(data)).encode()


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
