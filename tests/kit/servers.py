"""Servers on this machine's loopback for tests: TLS with a certificate of their own, plain TCP."""

import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Handler = Callable[[socket.socket], None]


def certificate(directory: Path, name: str) -> Path:
    """A self-signed certificate for `name` and its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = directory / f"{name}.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@contextlib.contextmanager
def open_server(handler: Handler, backlog: int = 512) -> Iterator[int]:
    """A TCP server on a free port of 127.0.0.1 (yielded); `handler` runs on a thread a connection."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=backlog)
    threads: list[threading.Thread] = []

    def serve(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.settimeout(60)
            handler(sock)

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=serve, args=(sock,), daemon=True)
            thread.start()
            threads.append(thread)

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(10)


def tls(handler: Handler, pem: Path) -> Handler:
    """`handler` behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    def serve(sock: socket.socket) -> None:
        with context.wrap_socket(sock, server_side=True) as wrapped:
            handler(wrapped)

    return serve


def echo(sock: socket.socket) -> None:
    """Sends back what comes, until the end."""
    while data := sock.recv(65536):
        sock.sendall(data)
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
