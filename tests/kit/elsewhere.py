"""Another machine, as far as the gateway can tell: a network namespace at the end of a wire, in which port 80 greets.

Attempts need an address that is neither this host's nor anybody else's.
"""

import contextlib
import ipaddress
import os
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator

from tests.kit.namespaces import open_namespace


class _Greeter(socketserver.ThreadingTCPServer):
    """Says its word to everyone and closes."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, word: bytes) -> None:
        super().__init__(("", 0), socketserver.BaseRequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self._word = word

    def finish_request(self, request: socket.socket, client_address: object) -> None:  # pyright: ignore
        request.sendall(self._word)


@contextlib.contextmanager
def open_elsewhere(address: str, word: bytes) -> Iterator[None]:
    """A machine at `address`, until the block ends; this host's end of the wire has the address before it."""
    near, far = f"sbxn{os.getpid()}", f"sbxf{os.getpid()}"
    host = ipaddress.ip_address(address) - 1
    with open_namespace() as namespace:
        links = f"""\
link add {near} type veth peer name {far} netns {namespace.pid}
address add {host}/30 dev {near}
link set {near} up
"""
        _ip(links)
        _ip(f"link set lo up\naddress add {address}/30 dev {far}\nlink set {far} up\n", f"--target={namespace.pid}")
        server = _Greeter(namespace.inside(lambda: socket.create_server((address, 80))), word)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            _ip(f"link del {near}\n")


def _ip(commands: str, *target: str) -> None:
    enter = ["nsenter", "--net", *target] if target else []
    subprocess.run([*enter, "ip", "-batch", "-"], input=commands.encode(), check=True)
