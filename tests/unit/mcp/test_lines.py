"""Lines: the same bytes out as in for any segmentation; a longer one costs its two ends and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.mcp.connections.lines import LineSplitter, OverLong


def split(data: bytes, size: int, limit: int = 1000, edge: int = 10) -> list[bytes | OverLong]:
    splitter = LineSplitter(limit, edge)
    lines = [line for i in range(0, len(data), size) for line in splitter.feed(data[i : i + size])]
    return lines + splitter.end()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_bytes_are_unchanged(size: int) -> None:
    assert split(b"a\r\n\n\xff\0b\nlast", size) == [b"a\r\n", b"\n", b"\xff\0b\n", b"last"]


def test_nothing_at_the_end() -> None:
    assert split(b"a\n", 1) == [b"a\n"]
    assert split(b"", 1) == []


def test_the_very_object_passes_when_a_chunk_is_a_line() -> None:
    line = b'{"jsonrpc":"2.0"}\n'
    assert LineSplitter().feed(line)[0] is line


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_the_limit_is_without_the_newline(size: int) -> None:
    assert split(b"x" * 20 + b"\n", size, limit=20) == [b"x" * 20 + b"\n"]
    assert split(b"x" * 21 + b"\n", size, limit=20) == [OverLong(b"x" * 10, b"x" * 10, 21)]


@pytest.mark.parametrize("size", [1, 4, 9, 1000])
def test_head_and_tail_of_an_over_long_line(size: int) -> None:
    data = b"HEAD" + b"." * 500 + b"TAIL\nnext\n"
    assert split(data, size, limit=20, edge=4) == [OverLong(b"HEAD", b"TAIL", 508), b"next\n"]


def test_over_long_without_newline() -> None:
    assert split(b"HEAD" + b"." * 50 + b"TAIL", 3, limit=20, edge=4) == [OverLong(b"HEAD", b"TAIL", 58)]


def test_memory_stays_bounded() -> None:
    splitter = LineSplitter(limit=1000, edge=100)
    for _ in range(10_000):
        assert splitter.feed(b"y" * 100) == []
        assert len(splitter._held) <= 1100  # the limit, and one piece
    (line,) = splitter.feed(b"\n")
    assert isinstance(line, OverLong)
    assert line.length == 1_000_000


@given(st.binary(max_size=300), st.integers(1, 40), st.integers(2, 50))
def test_any_segmentation(data: bytes, size: int, limit: int) -> None:
    lines = split(data, size, limit, edge=3)
    expected = data.splitlines(keepends=True) if b"\r" not in data else None
    whole = split(data, len(data) or 1, limit, edge=3)
    assert lines == whole
    if expected is not None and not {b"\v", b"\f", b"\x1c", b"\x1d", b"\x1e"} & {bytes([b]) for b in data}:
        assert [line if isinstance(line, bytes) else line.length for line in lines] == [
            line if len(line.rstrip(b"\n")) <= limit else len(line.rstrip(b"\n")) for line in expected
        ]
