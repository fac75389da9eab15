"""A gateway behind a really sealed namespace, and one sandbox in it. Needs root."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.egress.gateway.upstream_tls import UpstreamTls
from tests.kit import dns_client, servers
from tests.kit.namespaces import Namespace, open_sealed_namespace
from tests.kit.real_gateway import Controller, GatewayUnderTest, open_gateway
from tests.kit.site import Authority

SANDBOX = "sb-1"
NAME = "api.example.com"


class Inside:
    """What a workload can do."""

    def __init__(
        self, namespace: Namespace, listeners: list[socket.socket], gateway: GatewayUnderTest, pem: Path
    ) -> None:
        self.namespace = namespace
        self.gateway = gateway
        self.listeners = listeners
        self._pem = pem

    def resolve(self, name: str, qtype: int = 1) -> dns_client.Answer:
        with self.namespace.new_socket(socket.SOCK_DGRAM) as sock:
            return dns_client.ask_udp(sock, name, qtype)

    def connect(self, name: str, port: int) -> socket.socket:
        (address,) = self.resolve(name).addresses
        return self.namespace.connect(address, port)

    def connect_tls(self, name: str, port: int = 443, sni: str | None = None) -> ssl.SSLSocket:
        sock = self.connect(name, port)
        context = ssl.create_default_context(cafile=str(self._pem))
        context.check_hostname = False
        try:
            return context.wrap_socket(sock, server_hostname=sni or name)
        except BaseException:
            sock.close()
            raise


@pytest.fixture(scope="session")
def authority() -> Authority:
    """Who signs for upstream; the gateway under test trusts it as the operator's own."""
    return Authority()


@pytest.fixture
def gateway(authority: Authority, tmp_path: Path) -> Iterator[GatewayUnderTest]:
    roots = tmp_path / "roots.pem"
    roots.write_bytes(authority.pem)
    with open_gateway(upstream_tls=UpstreamTls(roots)) as running:
        yield running


@pytest.fixture
def controller(gateway: GatewayUnderTest) -> Controller:
    return gateway.controller()


@pytest.fixture(scope="session")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return servers.certificate(tmp_path_factory.mktemp("certificates"), NAME)


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with open_sealed_namespace() as sealed:
        yield sealed


@pytest.fixture(scope="module")
def listeners(namespace: Namespace) -> Iterator[list[socket.socket]]:
    """Kept through all gateways of a module, as the warden keeps them."""
    made = namespace.listeners()
    yield made
    for sock in made:
        sock.close()


@pytest.fixture
def inside(namespace: Namespace, listeners: list[socket.socket], gateway: GatewayUnderTest, pem: Path) -> Inside:
    gateway.attach(SANDBOX, listeners)
    return Inside(namespace, listeners, gateway, pem)
