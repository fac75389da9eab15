"""An HTTPS server that keeps every byte it was sent, and answers as it is told."""

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@dataclass
class Upstream:
    """An HTTP/1.1 server that says `answer` to whatever it is asked; `asked` has every byte it got, decrypted."""

    context: ssl.SSLContext
    answer: Callable[[bytes], bytes] = lambda _: OK
    asked: bytearray = field(default_factory=bytearray)
    connections: int = 0

    def serve(self, sock: socket.socket) -> None:
        self.connections += 1
        with self.context.wrap_socket(sock, server_side=True) as tls:
            held = b""
            while data := tls.recv(65536):
                self.asked += data
                held += data
                while b"\r\n\r\n" in held:
                    head, _, held = held.partition(b"\r\n\r\n")
                    tls.sendall(self.answer(head))
