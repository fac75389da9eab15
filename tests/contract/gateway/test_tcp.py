"""Opaque TCP by name and port: every end that a stream can have, integrity, many at once."""

import hashlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest

from sandboxd.settings import Pin
from tests.contract.gateway.conftest import NAME, SANDBOX, Inside
from tests.kit import servers
from tests.kit.dns_client import exactly
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller, GatewayUnderTest

pytestmark = pytest.mark.root

PORT = 5432
RULE = allow({"hosts": [NAME], "ports": [PORT]}, "tcp")
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
MIB = 1024 * 1024

Site = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def site(controller: Controller, inside: Inside) -> Site:
    """Opens a server behind the allowed name."""

    @contextmanager
    def open_site(handler: servers.Handler, **more: object) -> Iterator[None]:
        with servers.open_server(handler) as port:
            controller.register(SANDBOX, RULE, pins=[Pin(NAME, "127.0.0.1", port)], **more)
            yield

    return open_site


def test_the_server_may_speak_first(inside: Inside, site: Site) -> None:
    with site(lambda sock: sock.sendall(b"220 ready\r\n")), inside.connect(NAME, PORT) as sock:
        assert exactly(sock, 11) == b"220 ready\r\n"
        assert sock.recv(10) == b""


def test_half_close_from_inside_leaves_the_way_back_open(inside: Inside, site: Site) -> None:
    def count(sock: socket.socket) -> None:
        total = 0
        while data := sock.recv(65536):
            total += len(data)
        sock.sendall(b"%d" % total)

    with site(count), inside.connect(NAME, PORT) as sock:
        sock.sendall(b"x" * MIB)
        sock.shutdown(socket.SHUT_WR)
        assert exactly(sock, 7) == b"%d" % MIB
        assert sock.recv(10) == b""


def test_half_close_from_outside_leaves_the_way_out_open(inside: Inside, site: Site) -> None:
    got = bytearray()
    done = threading.Event()

    def half(sock: socket.socket) -> None:
        sock.shutdown(socket.SHUT_WR)
        while data := sock.recv(65536):
            got.extend(data)
        done.set()

    with site(half), inside.connect(NAME, PORT) as sock:
        assert sock.recv(10) == b""
        sock.sendall(b"y" * MIB)
        sock.close()
        assert done.wait(20)
    assert len(got) == MIB


def test_100_mb_both_ways_at_once_unharmed(gateway: GatewayUnderTest, inside: Inside, site: Site) -> None:
    block = os.urandom(MIB)
    size = 100
    sums: dict[str, str] = {}

    def send(sock: socket.socket) -> None:
        for _ in range(size):
            sock.sendall(block)
        sock.shutdown(socket.SHUT_WR)

    def receive(sock: socket.socket) -> str:
        digest = hashlib.sha256()
        while data := sock.recv(MIB):
            digest.update(data)
        return digest.hexdigest()

    def peer(sock: socket.socket) -> None:
        sender = threading.Thread(target=send, args=(sock,))
        sender.start()
        sums["outside"] = receive(sock)
        sender.join()

    with site(peer), inside.connect(NAME, PORT) as sock:
        sender = threading.Thread(target=send, args=(sock,))
        sender.start()
        sums["inside"] = receive(sock)
        sender.join()
        (close,) = gateway.sink.wait_for("close")
    assert set(sums.values()) == {hashlib.sha256(block * size).hexdigest()}
    assert (close.detail["bytes_out"], close.detail["bytes_in"]) == (size * MIB, size * MIB)
    assert close.detail["how"] == "eof"


def test_a_reader_that_does_not_read_holds_the_writer_back(inside: Inside, site: Site) -> None:
    """What the gateway keeps for a slow reader is bounded, so the writer blocks."""
    stuck = threading.Event()
    go_on = threading.Event()

    def flood(sock: socket.socket) -> None:
        sock.settimeout(1)
        sent = 0
        try:
            while sent < 64 * MIB:
                sent += sock.send(b"z" * 65536)
        except TimeoutError:
            stuck.set()
        go_on.wait(20)

    with site(flood), inside.connect(NAME, PORT):
        assert stuck.wait(20)
        go_on.set()


def test_an_upstream_reset_reaches_the_inside(gateway: GatewayUnderTest, inside: Inside, site: Site) -> None:
    def reset(sock: socket.socket) -> None:
        sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)

    with site(reset), inside.connect(NAME, PORT) as sock:
        sock.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            sock.recv(10)
    (close,) = gateway.sink.wait_for("close")
    assert close.detail["how"] == "upstream_lost"


def test_a_reset_from_inside_reaches_the_upstream(gateway: GatewayUnderTest, inside: Inside, site: Site) -> None:
    seen = threading.Event()

    def wait(sock: socket.socket) -> None:
        sock.sendall(b"x")
        try:
            sock.recv(10)
        except ConnectionResetError:
            seen.set()

    with site(wait), inside.connect(NAME, PORT) as sock:
        exactly(sock, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        sock.close()
        assert seen.wait(20)
    (close,) = gateway.sink.wait_for("close")
    assert close.detail["how"] == "client_lost"


def test_silence_ends_with_idle(gateway: GatewayUnderTest, inside: Inside, site: Site) -> None:
    with site(servers.echo, limits={"idle": "300ms"}), inside.connect(NAME, PORT) as sock:
        with pytest.raises(ConnectionResetError):
            sock.recv(10)
    (close,) = gateway.sink.wait_for("close")
    assert close.reason == "idle"


def test_an_upstream_that_never_answers(gateway: GatewayUnderTest, controller: Controller, inside: Inside) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        where = full.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:  # the queue is full: the next SYN gets no answer
            filler.setblocking(False)
            filler.connect_ex(where)
        controller.register(SANDBOX, RULE, pins=[Pin(NAME, "127.0.0.1", where[1])], limits={"connect": "300ms"})
        with pytest.raises(ConnectionError), inside.connect(NAME, PORT) as sock:
            sock.recv(10)
        for filler in fillers:
            filler.close()
    (close,) = gateway.sink.wait_for("close")
    assert close.reason == "connect_failed"


def test_250_connections_at_once(gateway: GatewayUnderTest, inside: Inside, site: Site) -> None:
    with site(servers.echo):
        (address,) = inside.resolve(NAME).addresses
        socks = [inside.namespace.connect(address, PORT) for _ in range(250)]
        for number, sock in enumerate(socks):
            sock.sendall(b"%06d" % number)
        for number, sock in enumerate(socks):
            assert exactly(sock, 6) == b"%06d" % number
            sock.close()
        gateway.sink.wait_for("close", count=250)


def test_more_than_the_policy_allows_at_once_are_refused(gateway: GatewayUnderTest, inside: Inside, site: Site) -> None:
    with site(servers.echo, limits={"conns": 2}):
        (address,) = inside.resolve(NAME).addresses
        kept = [inside.namespace.connect(address, PORT) for _ in range(2)]
        for sock in kept:
            sock.sendall(b"x")
            exactly(sock, 1)
        with suppress(ConnectionError), inside.namespace.connect(address, PORT) as third:
            third.recv(1)
        gateway.sink.wait_for("decision", reason="quota_conns")
        for sock in kept:
            sock.close()
