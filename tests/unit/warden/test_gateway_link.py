"""The warden's side of the gateway, with sockets instead of processes: hand-over, standing in, taking over again."""

import os
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from sandboxd import channel, limits
from sandboxd.errors import SandboxdError
from sandboxd.warden import protocol as p
from sandboxd.warden.server.gateway_link import GatewayLink, NewGateway, refused_reply


class Guardian:
    """The other end of the link's channel."""

    def __init__(self) -> None:
        self.sock, wardens = socket.socketpair()
        self.link = GatewayLink(wardens)
        self.thread = threading.Thread(target=self.link.watch)
        self.thread.start()

    def start_gateway(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(5)
        with theirs:
            channel.send(self.sock, NewGateway(), [theirs.fileno()])
        return ours


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    guardian = Guardian()
    yield guardian
    guardian.sock.close()
    guardian.thread.join(5)
    assert not guardian.thread.is_alive()


def listeners() -> tuple[socket.socket, socket.socket, socket.socket]:
    made = []
    for kind in (socket.SOCK_STREAM, socket.SOCK_STREAM, socket.SOCK_DGRAM):
        sock = socket.socket(socket.AF_INET, kind)
        sock.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        sock.setblocking(False)
        made.append(sock)
    return tuple(made)  # type: ignore[return-value]


def assert_reset(listener: socket.socket) -> None:
    """The reset may come before `connect` has returned."""
    with pytest.raises(ConnectionResetError), socket.create_connection(listener.getsockname(), timeout=5) as sock:
        sock.recv(1)


def told(gateway: socket.socket) -> tuple[object, list[socket.socket]]:
    received = channel.receive(gateway, p.GATEWAY_LINK)
    assert received
    return received[0], [socket.socket(fileno=fd) for fd in received[1]]


def test_listeners_reach_each_gateway(guardian: Guardian) -> None:
    made = listeners()
    addresses = [sock.getsockname() for sock in made]
    guardian.link.add("sb-1", made)
    for _ in range(2):
        gateway = guardian.start_gateway()
        message, socks = told(gateway)
        assert message == p.Listeners("sb-1")
        assert [sock.getsockname() for sock in socks] == addresses
        for sock in (*socks, gateway):
            sock.close()
    gateway = guardian.start_gateway()
    told(gateway)
    guardian.link.remove("sb-1")
    guardian.link.remove("sb-1")
    assert told(gateway) == (p.Gone("sb-1"), [])


def test_standing_in(guardian: Guardian) -> None:
    made = listeners()
    guardian.link.add("sb-1", made)
    for _ in range(3):
        assert_reset(made[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.sendto(b"not dns", made[2].getsockname())
        sock.sendto(b"\x12\x34\x01\x00" + bytes(8) + b"rest", made[2].getsockname())
        assert sock.recv(512) == b"\x12\x34\x81\x05" + bytes(8) + b"rest"


def test_a_living_gateway_is_left_alone(guardian: Guardian) -> None:
    made = listeners()
    guardian.link.add("sb-1", made)
    gateway = guardian.start_gateway()
    told(gateway)
    with socket.create_connection(made[0].getsockname(), timeout=5) as sock:
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        gateway.close()  # it dies with the connection still waiting
        sock.settimeout(5)
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_a_session_waits_for_a_gateway(guardian: Guardian) -> None:
    gateways: list[socket.socket] = []
    timer = threading.Timer(0.1, lambda: gateways.append(guardian.start_gateway()))
    timer.start()
    with guardian.link.session() as ours:
        timer.join()
        message, (theirs,) = told(gateways[0])
        assert message == p.Session()
        ours.sendall(b"x")
        assert theirs.recv(1) == b"x"


def test_a_session_that_finds_a_dead_gateway_waits_for_the_next() -> None:
    """Between a gateway's death and the moment `watch` sees it; so nobody watches here."""
    guardian, wardens = socket.socketpair()
    link = GatewayLink(wardens)
    ends = [socket.socketpair() for _ in range(2)]
    for _, theirs in ends:
        channel.send(guardian, NewGateway(), [theirs.fileno()])
        theirs.close()
    dead, living = (ours for ours, _ in ends)
    link._take_link()
    dead.close()
    timer = threading.Timer(0.1, link._take_link)
    timer.start()
    with link.session() as ours, guardian, wardens, living:
        timer.join()
        message, (theirs,) = told(living)
        assert message == p.Session()
        ours.sendall(b"x")
        assert theirs.recv(1) == b"x"
        theirs.close()


def test_no_gateway_comes(guardian: Guardian, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GATEWAY_RESTART", 0.05)
    with pytest.raises(SandboxdError) as refused:
        guardian.link.session()
    assert refused.value.code == "gateway_down"


def test_a_gateway_that_never_reads_is_dropped(guardian: Guardian, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GATEWAY_SEND", 1.0)
    gateway = guardian.start_gateway()
    guardian.link.session().close()
    name = "x" * 100_000  # fills the socket's buffer
    made = listeners()
    for number in range(10):
        guardian.link.add(f"sb-{number}{name}", [os_dup(sock) for sock in made])
    assert select.select([gateway], [], [], 5)[0]
    seen = b""
    while chunk := gateway.recv(65536):
        seen += chunk
    assert len(seen) < 10 * len(name)
    assert_reset(made[0])


def os_dup(sock: socket.socket) -> socket.socket:
    return socket.socket(fileno=os.dup(sock.fileno()))


def test_the_refusal_of_a_query() -> None:
    query = b"\xab\xcd\x01\x20" + b"\x00\x01" + bytes(6) + b"\x01a\x00\x00\x01\x00\x01"
    reply = refused_reply(query)
    assert reply[:2] == query[:2]
    assert reply[2] & 0x80
    assert reply[3] & 15 == 5
    assert reply[4:] == query[4:]
    assert refused_reply(reply) == b""
    assert refused_reply(b"short") == b""
