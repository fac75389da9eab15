"""Attempts through the name system."""

import contextlib
import select
import socket
import struct
from typing import Any

from inside import wire


def lookup(name: str, qtype: str = "A", server: str = wire.NAMESERVER, tcp: bool = False) -> dict[str, Any]:
    """One query; synthetic answers are reported as such, so that expectations need no addresses."""
    seen = wire.ask(name, qtype, server=server, tcp=tcp)
    if "answers" in seen:
        seen["answers"] = ["synthetic" if a.startswith(("198.18.", "198.19.")) else a for a in seen["answers"]]
    return seen


def same_address(names: list[str]) -> bool:
    """Whether spellings of one name have one address."""
    return len({tuple(wire.ask(name).get("answers", [name])) for name in names}) == 1


def lookups(names: list[str]) -> list[int]:
    """The distinct response codes of many names, each asked until the rate limit lets it through."""
    codes: set[int] = set()
    for name in names:
        seen: dict[str, Any] = {"error": "not asked"}
        while "error" in seen:
            seen = wire.ask(name)
        codes.add(seen["rcode"])
    return sorted(codes)


def message(flags: int = 0x0100, questions: int = 1, name: str = "allowed.test") -> dict[str, Any]:
    """A message that is not one plain question."""
    return wire.exchange(wire.query(name, flags=flags, questions=questions))


def compressed_loop() -> dict[str, Any]:
    """A name that is a compression pointer to itself."""
    head = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0)
    return wire.exchange(head + b"\xc0\x0c" + struct.pack(">HH", 1, 1))


def getaddrinfo(name: str) -> str:
    """What an ordinary program sees."""
    try:
        return "synthetic" if socket.gethostbyname(name).startswith(("198.18.", "198.19.")) else "other"
    except OSError as error:
        return wire.name_of(error)


def many_at_once(names: list[str]) -> dict[str, int]:
    """Queries over TCP, each until the rate limit lets it through; how many were answered how."""
    counts: dict[str, int] = {}
    left = list(names)
    while left:
        answered = _answered(left[:50])
        for kind in answered:
            counts[kind] = counts.get(kind, 0) + 1
        left = left[len(answered) :]
        if not answered:
            select.select([], [], [], 0.2)  # the limit's own pace
    return counts


def _answered(names: list[str]) -> list[str]:
    """One connection's answers, as far as they came."""
    seen: list[str] = []
    with contextlib.suppress(OSError, struct.error):
        with socket.create_connection((wire.NAMESERVER, 53), timeout=wire.PATIENCE) as sock:
            stream = sock.makefile("rb")
            messages = [wire.query(name) for name in names]
            sock.sendall(b"".join(struct.pack(">H", len(message)) + message for message in messages))
            while len(seen) < len(names):
                (length,) = struct.unpack(">H", stream.read(2))
                answer = wire.read_reply(stream.read(length))
                seen.append("found" if answer["answers"] else f"rcode {answer['rcode']}")
    return seen
