"""Writes seeds for the fuzzer of the gate's orders: `python -m images.gate.corpus DIRECTORY` in the repo's root."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from sandboxd.warden.server.orders import encode_orders


def good() -> Iterator[bytes]:
    """Good orders, without the length before them."""
    for orders in (
        encode_orders(["true"], {}, "/", 0),
        encode_orders(["/bin/sh", "-c", "echo $A"], {"A": "1", "PATH": "/usr/bin"}, "/tmp", 15099),  # noqa: S108
        encode_orders(["", ""], {"EMPTY": "", "EQUALS": "=="}, "/", 65535),
        encode_orders(["x"] * 12, {f"N{n}": "é" for n in range(11)}, "/a/b", 1),
    ):
        yield orders[4:]


def bad() -> Iterator[bytes]:
    """Orders with one thing wrong each."""
    yield b""
    for orders in good():
        yield orders[:-1]
        yield orders + b"\0"
        yield orders.replace(b"sandboxd1", b"sandboxd2", 1)
        yield orders[:-1].rpartition(b"\0")[0] + b"\0relative\0"
    yield from (
        b"sandboxd1\x0001\x001\0a\x000\0/\0",
        b"sandboxd1\x0065536\x001\0a\x000\0/\0",
        b"sandboxd1\x000\x000\x000\0/\0",
        b"sandboxd1\x000\x0099\0a\x000\0/\0",
        b"sandboxd1\x000\x0099999999999999999999\0a\x000\0/\0",
        b"sandboxd1\x000\x00-1\0a\x000\0/\0",
        b"sandboxd1\x000\x001\0a\x001\0=A\0/\0",
        b"sandboxd1\x000\x001\0a\x001\0A\0/\0",
        b"sandboxd1\x000\x001\0a\x000\0.\0",
        b"sandboxd1\x000\x001\0a\x000\0\0",
    )


def write(folder: Path) -> None:
    """One file a seed, named by its hash."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in [*good(), *bad()]:
        (folder / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
