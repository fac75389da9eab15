"""A workload's output to its end: both streams, bounds, and ends that can't be known."""

import socket
import threading
from collections.abc import Iterator

import pytest

from sandboxd import channel
from sandboxd.controller.collect import Collected, collect
from sandboxd.controller.probing import Outcome, open_host_listener, parse_outcomes
from sandboxd.controller.relay import Streams
from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import Exited
from tests.kit.attach import frame

Ends = tuple[Streams, socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    attach, workload = socket.socketpair()
    exit_, warden = socket.socketpair()
    yield Streams(attach, exit_), workload, warden
    for sock in (attach, workload, exit_, warden):
        sock.close()


def test_output_and_end(ends: Ends) -> None:
    streams, workload, warden = ends
    workload.sendall(frame(1, b"out") + frame(2, b"err") + frame(1, b"put"))
    channel.send(warden, Exited(3))
    workload.close()
    assert collect(streams, seconds=20, most=100) == Collected(b"output", b"err", Exited(3))


def test_its_input_ends_at_once_and_output_larger_than_any_buffer_comes(ends: Ends) -> None:
    streams, workload, warden = ends
    data = b"x" * 65536

    def talk() -> None:
        assert workload.recv(1) == b""
        for _ in range(50):
            workload.sendall(frame(1, data))
        channel.send(warden, Exited(0))
        workload.close()

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    assert collect(streams, seconds=60, most=1 << 24).stdout == data * 50
    thread.join(20)


def test_more_than_wanted_is_cut(ends: Ends) -> None:
    streams, workload, warden = ends
    workload.sendall(frame(1, b"abc") + frame(1, b"def"))
    channel.send(warden, Exited(0))
    workload.close()
    assert collect(streams, seconds=20, most=4) == Collected(b"abcd", b"", Exited(0), cut=True)


def test_it_does_not_end(ends: Ends) -> None:
    with pytest.raises(SandboxdError, match="in time"):
        collect(ends[0], seconds=0.05, most=1)


def test_the_warden_dies(ends: Ends) -> None:
    streams, workload, warden = ends
    workload.close()
    warden.close()
    with pytest.raises(SandboxdError, match="warden died"):
        collect(streams, seconds=20, most=1)


def test_no_frames(ends: Ends) -> None:
    ends[1].sendall(b"HTTP/1.1 200\r\n")
    with pytest.raises(SandboxdError, match="broken"):
        collect(ends[0], seconds=20, most=1)


def test_outcomes() -> None:
    line = b'{"promise": "no-wire", "name": "UDP", "ok": true, "seen": "EPERM"}\n'
    assert parse_outcomes(line * 2) == [Outcome("no-wire", "UDP", True, "EPERM")] * 2


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"[]",
        b"{}",
        b'{"promise":"a","name":"b","ok":1,"seen":"c"}',
        b'{"promise":"a","name":2,"ok":true,"seen":"c"}',
    ],
)
def test_not_an_outcome(line: bytes) -> None:
    with pytest.raises(SandboxdError, match="something else"):
        parse_outcomes(line)


def test_the_host_listener_notes_who_says_the_word() -> None:
    with open_host_listener() as listener:
        for word in (b"hello", b"probe"):
            with socket.create_connection(("127.0.0.1", listener.port), timeout=20) as sock:
                sock.sendall(word)
                sock.recv(10)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(20)
            sock.sendto(b"probe", ("127.0.0.1", listener.port))
            assert sock.recv(10) == b"reached"
    assert listener.reached == ["TCP from 127.0.0.1", "UDP from 127.0.0.1"]
