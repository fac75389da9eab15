"""Docker's HTTP, from a server that says exactly what the test wants."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.warden.server import docker_http
from sandboxd.warden.server.engine import Engine

Serve = Callable[[bytes], str]
ASKED: list[bytes] = []


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A daemon that answers one connection with the given bytes and closes it."""
    path = str(tmp_path / "docker.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    threads: list[threading.Thread] = []

    def answer(data: bytes) -> None:
        connection, _ = listener.accept()
        with connection:
            ASKED.append(connection.recv(65536))
            connection.sendall(data)

    def serve(data: bytes) -> str:
        ASKED.clear()
        threads.append(threading.Thread(target=answer, args=(data,)))
        threads[-1].start()
        return path

    yield serve
    for thread in threads:
        thread.join()
    listener.close()


def code_of(work: Callable[[], object]) -> str:
    with pytest.raises(SandboxdError) as refused:
        work()
    assert refused.value.message
    return refused.value.code


def test_a_request(serve: Serve) -> None:
    path = serve(b'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{"a": 1}')
    answer = docker_http.request(path, "POST", "/x", query={"a": "b c&d"}, body={"k": "v"}, wait=5)
    assert (answer.status, answer.json()) == (200, {"a": 1})
    head, _, body = ASKED[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /x?a=b%20c%26d HTTP/1.0\r\n")
    assert b"Content-Length: 10" in head
    assert body == b'{"k": "v"}'


def test_not_running(tmp_path: Path) -> None:
    assert code_of(lambda: docker_http.request(str(tmp_path / "none"), "GET", "/", wait=1)) == "docker_down"


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.0 200 OK\r\n", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.0 abc\r\n\r\n", b'HTTP/1.0 200 OK\r\n\r\n{"a"'],
)
def test_nonsense(serve: Serve, data: bytes) -> None:
    assert code_of(lambda: Engine(serve(data)).version()) == "docker_lost"


def test_silence(tmp_path: Path) -> None:
    path = str(tmp_path / "docker.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        assert code_of(lambda: docker_http.request(path, "GET", "/", wait=0.05)) == "docker_silent"


@pytest.mark.parametrize(
    ("status", "message", "work", "code"),
    [
        (404, "No such image: x", lambda e: e.inspect_image("x"), "image_missing"),
        (404, "No such image: x", lambda e: e.create("n", {"Image": "x"}), "image_missing"),
        (400, "Unknown runtime specified runsc", lambda e: e.create("n", {"Image": "x"}), "no_runtime"),
        (404, "No such container: x", lambda e: e.inspect("x"), "no_container"),
        (409, "in use", lambda e: e.remove_image("x"), "image_in_use"),
        (500, "cannot", lambda e: e.start("x"), "docker_refused"),
        (400, "cannot", lambda e: e.attach("x"), "docker_refused"),
        (301, "another path", lambda e: e.inspect("x"), "docker_refused"),
    ],
)
def test_refusals(serve: Serve, status: int, message: str, work: Callable[[Engine], object], code: str) -> None:
    data = f'HTTP/1.0 {status} X\r\n\r\n{{"message":"{message}"}}'.encode()
    assert code_of(lambda: work(Engine(serve(data)))) == code


NO_IMAGES = ["../containers/json", "a/../../containers/x", "a/..", "", "\udcff", "a b", "a\n", "a?b=c", ".a", "a" * 300]


@pytest.mark.parametrize("name", NO_IMAGES)
def test_no_name_of_an_image_leads_elsewhere(tmp_path: Path, name: str) -> None:
    nobody = Engine(str(tmp_path / "docker.sock"))
    for work in (nobody.inspect_image, nobody.remove_image):
        assert code_of(lambda work=work: work(name)) == "image_missing"  # nobody was asked


def test_a_redirect_is_no_answer(serve: Serve) -> None:
    moved = b"HTTP/1.0 301 Moved Permanently\r\nLocation: /elsewhere\r\n\r\n"
    assert code_of(lambda: Engine(serve(moved)).inspect("x")) == "docker_refused"


def test_attach_is_a_raw_stream(serve: Serve) -> None:
    with Engine(serve(b"HTTP/1.0 101 UPGRADED\r\n\r\n")).attach("c") as stream:
        assert stream.gettimeout() is None
    assert b"Upgrade: tcp" in ASKED[0]


def test_idempotent_removal(serve: Serve) -> None:
    Engine(serve(b'HTTP/1.0 404 X\r\n\r\n{"message":"No such container"}')).remove("x")
    assert Engine(serve(b'HTTP/1.0 404 X\r\n\r\n{"message":"No"}')).inspect_or_none("x") is None
