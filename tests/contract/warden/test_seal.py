"""The seal on a namespace of its own, without a container: what is caught, what is refused, what stays possible."""

import contextlib
import errno
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from sandboxd import limits
from sandboxd.warden.protocol import DNS_PORT, TCP_PORT
from sandboxd.warden.server.namespace import run_inside
from sandboxd.warden.server.seal import Listening, seal_namespace, sysctls

pytestmark = pytest.mark.root
_T = TypeVar("_T")
FOREIGN = "192.0.2.1"


class Sealed:
    """A sealed namespace; `inside` runs in it, as root: what root can't do there nobody can."""

    def __init__(self, netns: int) -> None:
        self.netns = netns
        self.listening: Listening = seal_namespace(netns)

    def inside(self, work: Callable[[], _T]) -> _T:
        return run_inside(self.netns, work)

    def counters(self) -> dict[str, int]:
        """Packets by counter."""
        text = self.inside(lambda: subprocess.check_output(["nft", "list", "counters"], text=True))
        words = text.split()
        return {words[i + 1]: int(words[i + 4]) for i, word in enumerate(words) if word == "counter"}

    def accept(self, listener: int = 0) -> tuple[socket.socket, tuple[str, int]]:
        """A caught connection and where it wanted to go."""
        sock = self.listening.capture[listener]
        sock.settimeout(5)
        connection, _ = sock.accept()
        raw = connection.getsockopt(socket.SOL_IP, 80, 16)
        return connection, (socket.inet_ntoa(raw[4:8]), struct.unpack(">H", raw[2:4])[0])


@pytest.fixture
def sealed() -> Iterator[Sealed]:
    with subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write(b".")
        holder.stdin.flush()
        holder.stdout.read(1)
        fd = os.open(f"/proc/{holder.pid}/ns/net", os.O_RDONLY)
        sealed = Sealed(fd)
        yield sealed
        sealed.listening.close()
        os.close(fd)
        holder.stdin.close()


def connect(address: str, port: int, family: int = socket.AF_INET, seconds: float = 5) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.settimeout(seconds)
    try:
        sock.connect((address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def error_of(work: Callable[[], object]) -> str:
    with pytest.raises(OSError) as caught:
        work()
    return errno.errorcode.get(caught.value.errno or 0, type(caught.value).__name__)


@pytest.mark.parametrize("port", [1, 22, 80, 443, 8443, 65535])
@pytest.mark.parametrize("address", [FOREIGN, "169.254.169.254", "10.0.0.1", "8.8.8.8", "198.18.7.7"])
def test_all_tcp_is_caught_with_its_destination(sealed: Sealed, address: str, port: int) -> None:
    with sealed.inside(lambda: connect(address, port)):
        connection, wanted = sealed.accept()
        connection.close()
    assert wanted == (address, port)


@pytest.mark.parametrize("server", [FOREIGN, "8.8.8.8", "198.18.0.1"])
def test_names_asked_anywhere_are_caught(sealed: Sealed, server: str) -> None:
    with sealed.inside(lambda: connect(server, 53)):
        connection, wanted = sealed.accept(1)
        connection.close()
    assert wanted == (server, 53)

    def ask() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(5)
            sock.connect((server, 53))
            sock.send(b"question")
            threading.Thread(target=answer).start()
            return sock.recv(64)  # the answer seems to come from the server that was asked

    def answer() -> None:
        listener = sealed.listening.capture[2]
        listener.settimeout(5)
        question, peer = listener.recvfrom(64)
        listener.sendto(question + b" answered", peer)

    assert sealed.inside(ask) == b"question answered"


def test_udp_and_other_protocols_are_refused(sealed: Sealed) -> None:
    def send(kind: int, protocol: int, port: int) -> None:
        with socket.socket(socket.AF_INET, kind, protocol) as sock:
            sock.settimeout(2)
            sock.connect((FOREIGN, port))
            sock.send(struct.pack(">BBHHH", 8, 0, 0xF7FF, 0, 0))
            sock.recv(1)

    refused = {"ECONNREFUSED", "EPERM", "EHOSTUNREACH", "EPROTONOSUPPORT"}
    for port in (123, 443, 5353):
        assert sealed.inside(lambda port=port: error_of(lambda: send(socket.SOCK_DGRAM, 0, port))) in refused
    for protocol in (1, 47, 132, 136):
        assert sealed.inside(lambda p=protocol: error_of(lambda: send(socket.SOCK_RAW, p, 0))) in refused
    assert sealed.counters()["refused"] > 0


def test_ipv6_is_for_itself_only(sealed: Sealed) -> None:
    assert sealed.inside(lambda: error_of(lambda: connect("2001:db8::1", 443, socket.AF_INET6))) in (
        "ENETUNREACH",
        "EADDRNOTAVAIL",
    )

    def to_itself() -> bytes:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
            listener.listen()
            with connect("::1", listener.getsockname()[1], socket.AF_INET6) as sock:
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(b"self")
                return sock.recv(8)

    assert sealed.inside(to_itself) == b"self"


def test_talking_to_itself(sealed: Sealed) -> None:
    """Works on every local address, is not caught, and takes no place in the host's conntrack table."""

    def talk(address: str) -> bytes:
        with socket.socket() as listener:
            listener.bind((address, 0))
            listener.listen()
            with connect(address, listener.getsockname()[1]) as sock:
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(b"self")
                return sock.recv(8)

    for address in ("127.0.0.1", "127.1.2.3", "10.0.0.2"):
        for _ in range(20):
            assert sealed.inside(lambda a=address: talk(a)) == b"self"
    tracked = sealed.inside(lambda: Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text())
    assert int(tracked) == 0


@pytest.mark.parametrize("port", [TCP_PORT, DNS_PORT])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "10.0.0.2", "0.0.0.0"])
def test_a_listeners_own_port_is_refused(sealed: Sealed, address: str, port: int) -> None:
    assert sealed.inside(lambda: error_of(lambda: connect(address, port))) == "ECONNREFUSED"
    assert sealed.counters()["self_loop"] > 0


@pytest.mark.parametrize(
    "option",
    [
        (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0"),
        (socket.SOL_SOCKET, socket.SO_DONTROUTE, 1),
        (socket.SOL_SOCKET, socket.SO_MARK, 1),
    ],
)
def test_no_option_of_a_socket_leads_out(sealed: Sealed, option: tuple[int, int, bytes | int]) -> None:
    """Neither a device, nor don't-route, nor a mark makes a destination local."""

    def connected() -> socket.socket:
        sock = socket.socket()
        sock.settimeout(5)
        sock.setsockopt(*option)
        sock.connect((FOREIGN, 80))
        return sock

    with sealed.inside(connected):
        connection, wanted = sealed.accept()
        connection.close()
    assert wanted == (FOREIGN, 80)


def test_a_foreign_source_gets_no_answer(sealed: Sealed) -> None:
    """Only root could take one."""

    def from_elsewhere() -> None:
        with socket.socket() as sock:
            sock.settimeout(0.5)
            sock.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
            sock.bind(("203.0.113.1", 0))
            sock.connect((FOREIGN, 80))

    assert sealed.inside(lambda: error_of(from_elsewhere)) in ("TimeoutError", "ECONNREFUSED")


def test_ports_are_taken(sealed: Sealed) -> None:
    def bind(kind: int, port: int, *options: int) -> None:
        with socket.socket(socket.AF_INET, kind) as sock:
            for option in options:
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            sock.bind(("127.0.0.1", port))

    for kind, port in ((socket.SOCK_STREAM, TCP_PORT), (socket.SOCK_STREAM, DNS_PORT), (socket.SOCK_DGRAM, DNS_PORT)):
        for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
            work = lambda k=kind, p=port, o=options: error_of(lambda: bind(k, p, *o))  # noqa: E731
            assert sealed.inside(work) == "EADDRINUSE"


def test_flows_are_limited(sealed: Sealed) -> None:
    """The 257th connection at once is reset; once one is closed, the next goes through."""
    accepted: list[socket.socket] = []
    stop = threading.Event()

    def accept() -> None:
        sealed.listening.capture[0].settimeout(0.2)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                accepted.append(sealed.listening.capture[0].accept()[0])

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        opened = sealed.inside(lambda: [connect(FOREIGN, 80) for _ in range(limits.FLOWS)])
        assert sealed.inside(lambda: error_of(lambda: connect(FOREIGN, 80))) == "ECONNREFUSED"
        assert sealed.counters()["over_limit"] == 1
        for sock in opened:
            sock.close()
    finally:
        stop.set()
        thread.join()
        for sock in accepted:
            sock.close()


def test_new_flows_are_limited(sealed: Sealed) -> None:
    """A burst is stopped: at most 400 at once, then 200 a second."""

    def burst() -> int:
        reached = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for _ in range(2000):
                try:
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                        one.sendto(b"q", (FOREIGN, 53))
                        reached += 1
                except PermissionError:
                    pass
            sock.close()
        return reached

    sealed.inside(burst)
    assert sealed.counters()["over_limit"] > 500


def test_sysctls_are_as_written(sealed: Sealed) -> None:
    def read() -> dict[str, list[str]]:
        return {str(path): path.read_text().split() for path, _ in sysctls()}

    before = {path: value.split() for path, value in ((str(path), value) for path, value in sysctls())}
    assert sealed.inside(read) == before


def test_no_forwarding_and_no_other_links(sealed: Sealed) -> None:
    routes = sealed.inside(lambda: subprocess.check_output(["ip", "route", "show"], text=True))
    assert routes == "default dev lo scope link src 10.0.0.2 \n"
    links = sealed.inside(lambda: [name for _, name in socket.if_nameindex()])
    assert links == ["lo"]
    addresses = sealed.inside(lambda: subprocess.check_output(["ip", "-brief", "address"], text=True)).split()
    assert addresses == ["lo", "UNKNOWN", "127.0.0.1/8", "10.0.0.2/32", "::1/128"]


def test_numbers_in_the_rules_are_those_of_the_code() -> None:
    rules = (Path(__file__).parents[3] / "sandboxd" / "warden" / "server" / "seal.nft").read_text()
    assert f"ct count over {limits.FLOWS} " in rules
    assert f"limit rate over {limits.NEW_FLOWS_PER_SECOND}/second" in rules
    assert f"{{ {TCP_PORT}, {DNS_PORT} }}" in rules
