"""Docker's frames: whole, byte by byte and at every cut the same pieces; anything else is refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.mcp.connections.frames import STDERR, STDOUT, FrameError, FrameReader


def frame(stream: int, payload: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(payload)) + payload


def joined(pieces: list[tuple[int, bytes]]) -> dict[int, bytes]:
    found = {STDOUT: b"", STDERR: b""}
    for stream, piece in pieces:
        assert piece
        found[stream] += piece
    return found


WIRE = frame(1, b"hello\n") + frame(2, b"") + frame(2, b"oops") + frame(1, b"x" * 300)
EXPECTED = {STDOUT: b"hello\n" + b"x" * 300, STDERR: b"oops"}


def test_whole() -> None:
    reader = FrameReader()
    assert joined(reader.feed(WIRE)) == EXPECTED
    assert reader.between_frames


def test_byte_by_byte() -> None:
    reader = FrameReader()
    pieces = [piece for byte in WIRE for piece in reader.feed(bytes([byte]))]
    assert joined(pieces) == EXPECTED


@pytest.mark.parametrize("cut", range(1, len(WIRE)))
def test_every_cut(cut: int) -> None:
    reader = FrameReader()
    assert joined(reader.feed(WIRE[:cut]) + reader.feed(WIRE[cut:])) == EXPECTED


def test_half_a_frame_shows() -> None:
    reader = FrameReader()
    reader.feed(WIRE[:3])
    assert not reader.between_frames
    reader.feed(WIRE[3:10])
    assert not reader.between_frames


def test_order_of_streams_is_kept() -> None:
    wire = frame(1, b"a") + frame(2, b"b") + frame(1, b"c")
    assert FrameReader().feed(wire) == [(STDOUT, b"a"), (STDERR, b"b"), (STDOUT, b"c")]


@pytest.mark.parametrize("head", [b"\0\0\0\0\0\0\0\1", b"\3\0\0\0\0\0\0\1", b"\1\0\1\0\0\0\0\1", b"HTTP/1.1"])
def test_not_a_frame(head: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader().feed(head + b"x")


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8), st.integers(1, 50))
def test_any_segmentation(frames: list[tuple[int, bytes]], size: int) -> None:
    wire = b"".join(frame(*f) for f in frames)
    reader = FrameReader()
    pieces = [p for i in range(0, len(wire), size) for p in reader.feed(wire[i : i + size])]
    assert joined(pieces) == {n: b"".join(b for s, b in frames if s == n) for n in (STDOUT, STDERR)}
