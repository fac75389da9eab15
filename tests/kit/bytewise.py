"""Every parser's input runs whole, byte by byte, in halves and in threes: the answers must be the same."""

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def segmentations(data: bytes) -> list[list[bytes]]:
    """Ways in which the same bytes can arrive."""
    middle = len(data) // 2
    return [
        [data],
        [data[at : at + 1] for at in range(len(data))],
        [data[:middle], data[middle:]],
        [data[at : at + 3] for at in range(0, len(data), 3)],
    ]


def same_however_cut(read: Callable[[Sequence[bytes]], _T], data: bytes) -> _T:
    """What `read` makes of `data`; fails where a segmentation changes it."""
    first, *others = (read(pieces) for pieces in segmentations(data))
    for other in others:
        assert other == first
    return first
