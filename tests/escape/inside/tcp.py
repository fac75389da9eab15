"""Attempts over TCP: literal addresses, other ports, first bytes that are not what the rule says."""

import contextlib
import os
import socket
import time
from typing import Any

from inside import wire


def fetch(host: str, port: int = 80, mark: str = "", claim: str = "") -> str:
    """A plain HTTP request to `host` (a name or any spelling of an address)."""
    return wire.talk(host, port, wire.get(claim or host, f"/{mark}"))


def body(host: str, port: int, path: str) -> str:
    """The body of the answer to a plain HTTP request."""
    with socket.create_connection((host, port), timeout=wire.PATIENCE) as sock:
        sock.sendall(wire.get(host, path, "Connection: close"))
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    return answer.partition(b"\r\n\r\n")[2].decode()


def send(host: str, port: int, text: str) -> str:
    """Raw bytes."""
    return wire.talk(host, port, text.encode("latin-1"))


def tls(host: str, port: int = 443, name: str = "") -> str:
    """A real handshake to `host` that asks for `name`."""
    return wire.handshake(host, port, name=name or host)


def mapped(address: str, port: int, mark: str) -> str:
    """The IPv4-mapped form through an IPv6 socket."""
    return wire.talk(f"::ffff:{address}", port, wire.get(address, f"/{mark}"), family=socket.AF_INET6)


def requests(host: str, port: int, heads: list[str]) -> list[str]:
    """Several requests on one connection, each sent when the one before was answered."""
    answers: list[str] = []
    with socket.create_connection((host, port), timeout=wire.PATIENCE) as sock:
        for head in heads:
            try:
                sock.sendall(head.encode("latin-1"))
                answers.append(wire.read_answer(sock))
            except OSError as error:
                answers.append(wire.name_of(error))
    return answers


def pipelined(host: str, port: int, text: str) -> list[str]:
    """Bytes sent at once; every answer until the end, as words."""
    with socket.create_connection((host, port), timeout=wire.PATIENCE) as sock:
        data = b""
        with contextlib.suppress(OSError):
            sock.sendall(text.encode("latin-1"))
            sock.shutdown(socket.SHUT_WR)
            while chunk := sock.recv(65536):
                data += chunk
    parts = data.split(b"HTTP/1.1 ")
    return [wire.describe(b"HTTP/1.1 " + part) for part in parts if part] or ["nothing"]


def silent(host: str, port: int) -> str:
    """Connect and say nothing."""
    return wire.talk(host, port)


def hello(host: str, names: list[str], ech: bool = False, pad: int = 0, record: int = 16384, port: int = 443) -> str:
    """A hand-made ClientHello with these SNI names."""
    extensions = [wire.sni(*(name.encode("latin-1") for name in names))] if names else []
    if ech:
        extensions.append(wire.extension(0xFE0D, b"\0" + os.urandom(180)))
    if pad:
        extensions.append(wire.extension(21, bytes(pad)))
    return wire.talk(host, port, wire.hello(*extensions, record=record))


def cut_everywhere(host: str, name: str, port: int = 443) -> list[str]:
    """The same ClientHello cut in two at every byte; the distinct ways it ended. No faster than the sandbox's queries
    and connections a second, or a lookup that waits its turn is seen instead of the cut."""
    whole = wire.real_hello(name)
    ends: set[str] = set()
    for at in range(1, len(whole)):
        ends.add(wire.talk(host, port, whole[:at], whole[at:]))
        time.sleep(0.01)  # a lookup is two queries, of 200 a second
    return sorted(ends)


def dribble(host: str, name: str, port: int = 443) -> str:
    """A ClientHello, one byte a segment."""
    whole = wire.real_hello(name)
    return wire.talk(host, port, *(whole[at : at + 1] for at in range(len(whole))))


def records(host: str, name: str, port: int = 443) -> list[str]:
    """A ClientHello in TLS records of every size from 1 to 40; the distinct ways it ended."""
    extensions = wire.sni(name.encode())
    return sorted({wire.talk(host, port, wire.hello(extensions, record=size)) for size in range(1, 41)})


def several(host: str, port: int, count: int) -> list[str]:
    """Connections one after the other, each waiting to be spoken to."""
    return [wire.talk(host, port) for _ in range(count)]


def connect(host: str, port: int) -> str:
    """Connect only."""
    try:
        with socket.create_connection((host, port), timeout=wire.PATIENCE):
            return "connected"
    except OSError as error:
        return wire.name_of(error)


def bind(address: str, port: int, kind: str = "tcp", options: bool = True) -> str:
    """Take a port that is held outside, with every option that might share it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as sock:
        try:
            if options:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind((address, port))
            if kind == "tcp":
                sock.listen(1)
            return "bound"
        except OSError as error:
            return wire.name_of(error)


def flood(host: str, port: int, count: int) -> dict[str, Any]:
    """Open `count` connections, say nothing, keep them; how many stand at once and what the rest saw."""
    held: list[socket.socket] = []
    refused: dict[str, int] = {}
    for _ in range(count):
        sock = socket.socket()
        sock.settimeout(2)
        try:
            sock.connect((host, port))
            held.append(sock)
        except OSError as error:
            sock.close()
            refused[wire.name_of(error)] = refused.get(wire.name_of(error), 0) + 1
    standing = sum(1 for sock in held if _stands(sock))
    for sock in held:
        sock.close()
    return {"at_most_256": standing <= 256, "some": standing > 0, "refused": sorted(refused)}


def _stands(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return bool(sock.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


def fast_open(host: str, port: int, mark: str) -> str:
    """Data in the SYN."""
    with socket.socket() as sock:
        sock.settimeout(wire.PATIENCE)
        try:
            sock.sendto(wire.get(host, f"/{mark}"), socket.MSG_FASTOPEN, (host, port))
            return wire.read_answer(sock)
        except OSError as error:
            return wire.name_of(error)


def bound_to_device(host: str, port: int, device: str, mark: str) -> str:
    """Bind the socket to an interface first, or to a local source address."""
    with socket.socket() as sock:
        sock.settimeout(wire.PATIENCE)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            sock.connect((host, port))
            sock.sendall(wire.get(host, f"/{mark}"))
            return wire.read_answer(sock)
        except OSError as error:
            return wire.name_of(error)


def reconnected(first: str, second: str, port: int, mark: str) -> str:
    """Connect to an allowed name, dissolve the socket (AF_UNSPEC), and connect it elsewhere."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    with socket.socket() as sock:
        sock.settimeout(wire.PATIENCE)
        sock.connect((first, port))
        sock.sendall(b"first")
        sock.recv(5)  # it stands, all the way
        unspecified = (ctypes.c_char * 16)()
        libc.connect(sock.fileno(), unspecified, 16)
        try:
            sock.connect((second, port))
            sock.sendall(wire.get(first, f"/{mark}"))
            return wire.read_answer(sock)
        except OSError as error:
            return wire.name_of(error)


def held(host: str, port: int, then: str, tries: int) -> list[str]:
    """Keep a connection until it ends, say how, and try `then` again and again: the distinct outcomes, in order."""
    with socket.create_connection((host, port), timeout=wire.PATIENCE) as sock:
        sock.sendall(b"held")
        sock.recv(4)
        seen = [wire.read_answer(sock)]
    for _ in range(tries):
        outcome = wire.talk(then, port, b"again")
        if outcome != seen[-1]:
            seen.append(outcome)
    return seen


def short(host: str, port: int, seconds: float) -> str:
    """One exchange with little patience."""
    with socket.socket() as sock:
        sock.settimeout(seconds)
        try:
            sock.connect((host, port))
            sock.sendall(b"short")
            return wire.describe(sock.recv(100))
        except OSError as error:
            return wire.name_of(error)


def held_many(host: str, port: int, count: int, seconds: float) -> int:
    """Keep up to `count` connections, each answered once, for so long; how many stood."""
    import time

    kept: list[socket.socket] = []
    while len(kept) < count:
        sock = socket.socket()
        sock.settimeout(5)
        try:
            sock.connect((host, port))
            sock.sendall(b"held")
            sock.recv(4)
        except OSError:
            break
        kept.append(sock)
    time.sleep(seconds)  # what is attempted is to hold on
    return len(kept)


def timed(host: str, port: int) -> float:
    """Seconds of one HTTP exchange, from the connection on; the name was asked for before."""
    import time

    address = socket.gethostbyname(host)
    begin = time.perf_counter()
    with socket.create_connection((address, port), 20) as sock:
        sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert sock.recv(12).startswith(b"HTTP/1.1 200"), "no answer"
    return time.perf_counter() - begin


def half_open(host: str, port: int, count: int, at_once: int) -> int:
    """Begin `count` connections and say nothing on them, `at_once` at a time; how many stood."""
    kept: list[socket.socket] = []
    stood = 0
    for _ in range(count):
        sock = socket.socket()
        sock.settimeout(2)
        try:
            sock.connect((host, port))
            stood += 1
        except OSError:
            sock.close()
            continue
        kept.append(sock)
        if len(kept) > at_once:
            kept.pop(0).close()
    for sock in kept:
        sock.close()
    return stood


def listen(address: str, port: int, name: str) -> str:
    """Listen on TCP and on an abstract Unix socket until someone comes; who came."""
    import select

    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind((address, port))
        tcp.listen()
        unix.bind("\0" + name)
        unix.listen()
        print("listening", flush=True)
        return "a visitor" if select.select([tcp, unix], [], [], wire.PATIENCE / 4)[0] else "nobody"
