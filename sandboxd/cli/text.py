"""Texts for a terminal: what a hostile peer named can't move the cursor, and counts a person can read."""

import unicodedata

# Controls, invisible format characters (direction overrides, zero widths), surrogates, private and unassigned ones,
# line and paragraph separators.
_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def harmless(text: str) -> str:
    """`text` with every character that could do more than be seen written as `\\xNN`, `\\uNNNN` or `\\UNNNNNNNN`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in _HARMFUL else c for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def count(number: int) -> str:
    """Bytes for a person: 999, 1.2k, 34k, 5.6M (powers of 1000)."""
    size, units = float(number), ["", "k", "M", "G", "T"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.1f}{units[0]}" if units[0] and size < 9.95 else f"{size:.0f}{units[0]}"
