"""Intercepted connections as tests make them: rules, a client that trusts its sandbox's authority, HTTP by hand."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from sandboxd.egress.control import Registered, Secret
from sandboxd.settings import Pin
from tests.kit import servers
from tests.kit.playbook import allow
from tests.kit.real_gateway import Controller

NAME = "api.example.com"
SANDBOX = "sb-1"
TO = {"hosts": [NAME], "ports": [443]}
INTERCEPT = {"handling": "intercept"}
RULE = allow(TO, "tls", tls=INTERCEPT)
PLACEHOLDER = "sandboxd-placeholder-" + "0123456789abcdef" * 2
TOKEN = Secret("token", "s3cr3t-value", PLACEHOLDER)
BEARER = allow(
    TO, "tls", tls=INTERCEPT, credentials=[{"secret": "token", "header": "Authorization", "format": "Bearer {}"}]
)


class Inside(Protocol):
    """Where the client is."""

    def connect(self, name: str, port: int) -> socket.socket: ...


@dataclass
class Client:
    """A workload that trusts what it was told to."""

    inside: Inside
    ca: str

    def connect(self, alpn: Sequence[str] = (), sni: str = NAME) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.ca)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        sock = self.inside.connect(NAME, 443)
        sock.settimeout(20)
        try:
            return context.wrap_socket(sock, server_hostname=sni, suppress_ragged_eofs=False)
        except BaseException:
            sock.close()
            raise


@contextlib.contextmanager
def reached(
    controller: Controller,
    inside: Inside,
    upstream: Callable[[socket.socket], None],
    *rules: dict[str, Any],
    **more: Any,
) -> Iterator[Client]:
    """`upstream` under the name, and a client that may reach it."""
    with servers.open_server(upstream) as port:
        told = controller.register(SANDBOX, *(rules or (RULE,)), pins=[Pin(NAME, "127.0.0.1", port)], **more)
        assert isinstance(told, Registered), told
        yield Client(inside, told.ca)


def get(path: str = "/", host: str = NAME, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode() + body


def response(sock: ssl.SSLSocket, *, head_only: bool = False) -> tuple[int, bytes]:
    """One response: status and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(1) or pytest.fail(f"ended within a head: {data!r}")
    fields = dict(line.lower().split(b": ", 1) for line in data.split(b"\r\n")[1:-2])
    length = 0 if head_only else int(fields.get(b"content-length", 0))
    body = bytearray()
    while len(body) < length:
        body += sock.recv(length - len(body)) or pytest.fail(f"ended within a body of {length}")
    return int(data.split()[1]), bytes(body)
