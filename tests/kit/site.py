"""A small web site on loopback with a certificate authority of its own, and a list of everything that reached it.

HTTP, HTTPS and a plain TCP echo, under any names that the caller pins to it. Tests read `arrivals` to show what got
through and, more often, that nothing did.
"""

import contextlib
import datetime
import socket
import socketserver
import ssl
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Where = Literal["http", "https", "tcp"]
PAGE = """<!doctype html><html><head><title>The allowed page</title></head><body><article>
<h1>The allowed page</h1><p>This sentence was fetched from {name} through the gateway.</p>
<p>It stands here twice so that a reader's extraction takes it for an article. This sentence was fetched too.</p>
</article></body></html>
"""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that reached the site. `name`: SNI of a hello, Host of a request; `detail`: path, or bytes as text."""

    kind: Literal["connection", "hello", "request", "bytes"]
    where: Where
    name: str = ""
    detail: str = ""


class Authority:
    """A certificate authority, valid a day, that exists in memory and in the files it is asked to write."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandboxd test authority")])
        self._certificate = self._sign(self._name, self._key.public_key(), ca=True, names=())

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server_context(self, names: Sequence[str], age_days: int = 0) -> ssl.SSLContext:
        """A TLS server's context with one certificate for all of `names`, made so many days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        leaf = self._sign(subject, key.public_key(), ca=False, names=names, age_days=age_days)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(leaf.public_bytes(serialization.Encoding.PEM))
            form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            file.write(key.private_bytes(serialization.Encoding.PEM, form, plain))
            file.flush()
            context.load_cert_chain(file.name)
        return context

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, ca: bool, names: Sequence[str], age_days: int = 0
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=age_days)
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=ca, crl_sign=ca, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
            builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


class _Handler(BaseHTTPRequestHandler):
    """`/` a page, `/large/N` N bytes, `/redirect/URL` 302; an Upgrade is answered with 101 and an echo."""

    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_GET(self) -> None:
        if self.headers.get("Upgrade"):
            self._upgrade()
        elif self.path.startswith("/redirect/"):
            self._answer(302, b"", Location=self.path.removeprefix("/redirect/"))
        elif self.path.startswith("/large/"):
            self._answer(200, b"x" * int(self.path.removeprefix("/large/")))
        elif self.path == "/robots.txt":
            self._answer(404, b"")
        else:
            page = PAGE.format(name=self.headers.get("Host", "?"))
            self._answer(200, page.encode(), Content_Type="text/html; charset=utf-8")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, b"%d bytes" % len(body))

    do_HEAD = do_GET
    do_PUT = do_DELETE = do_OPTIONS = do_POST

    def parse_request(self) -> bool:
        ok = super().parse_request()
        if ok:
            self.server.site.note("request", self.server.where, self.headers.get("Host", ""), self.path)
        return ok

    def log_message(self, format: str, *args: object) -> None:
        """Arrivals are the log."""

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _upgrade(self) -> None:
        self.send_response(101)
        self.send_header("Upgrade", self.headers["Upgrade"])
        self.send_header("Connection", "Upgrade")
        self.end_headers()
        self.close_connection = True
        while data := self.connection.recv(4096):
            self.server.site.note("bytes", self.server.where, detail=data.decode("latin-1"))
            self.connection.sendall(data)


class _Echo(socketserver.BaseRequestHandler):
    """Sends back what it gets."""

    server: "_Server"

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(65536):
                self.server.site.note("bytes", "tcp", detail=data[:256].decode("latin-1"))
                self.request.sendall(data)


class _Server(socketserver.ThreadingTCPServer):
    """One port of the site."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, site: "Site", where: Where, handler: type[socketserver.BaseRequestHandler], port: int) -> None:
        self.site = site
        self.where: Where = where
        super().__init__((site.address, port), handler)

    def finish_request(self, request: socket.socket, client_address: object) -> None:  # pyright: ignore
        """In the connection's own thread, so that a slow handshake holds up nobody."""
        self.site.note("connection", self.where)
        with contextlib.suppress(OSError, ssl.SSLError):
            if self.where == "https":
                request = self.site.tls.wrap_socket(request, server_side=True)
            super().finish_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:  # pyright: ignore
        """A client that breaks off is what many tests are about."""


class Site:
    """The running site. `mark()` and `since(mark)` bracket an attempt."""

    def __init__(self, names: Sequence[str], address: str = "127.0.0.1", *, standard_ports: bool = False) -> None:
        self.names = tuple(names)
        self.address = address
        self.authority = Authority()
        self.tls = self.authority.server_context(self.names)
        self.tls.sni_callback = self._hello
        self._arrivals: list[Arrival] = []
        kinds: list[tuple[Where, type[socketserver.BaseRequestHandler], int]] = [
            ("http", _Handler, 80), ("https", _Handler, 443), ("tcp", _Echo, 7)
        ]  # fmt: skip
        self._servers = {
            where: _Server(self, where, handler, port if standard_ports else 0) for where, handler, port in kinds
        }

    @property
    def ca_pem(self) -> bytes:
        return self.authority.pem

    def port(self, where: Where) -> int:
        return self._servers[where].server_address[1]

    def pin(self, name: str, where: Where) -> str:
        """What `--pin` takes to lead `name` here."""
        return f"{name}={self.address}:{self.port(where)}"

    def note(self, kind: Literal["connection", "hello", "request", "bytes"], where: Where,
             name: str = "", detail: str = "") -> None:  # fmt: skip
        self._arrivals.append(Arrival(kind, where, name, detail))

    def mark(self) -> int:
        return len(self._arrivals)

    def since(self, mark: int) -> list[Arrival]:
        return self._arrivals[mark:]

    def serve(self) -> None:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    def _hello(self, _socket: object, name: str | None, _context: object) -> None:
        self.note("hello", "https", name or "")


@contextlib.contextmanager
def open_site(names: Sequence[str], address: str = "127.0.0.1", *, standard_ports: bool = False) -> Iterator[Site]:
    """The site under `names` (what its certificate says), running until the block ends. `standard_ports`: 80, 443
    and 7 of `address`, else free ones."""
    site = Site(names, address, standard_ports=standard_ports)
    site.serve()
    try:
        yield site
    finally:
        site.close()
