"""A sealed network namespace without a container: the seal's own rules, and sockets made inside it.

A socket belongs to the namespace of the thread that made it, for good; so a test makes sockets inside and uses them
from anywhere. Needs root.
"""

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import sandboxd.warden.server
from sandboxd.warden.protocol import DNS_PORT, TCP_PORT

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_RULES = Path(sandboxd.warden.server.__file__).parent / "seal.nft"
_LINKS = """\
link set lo up
address add 10.0.0.2/32 dev lo
route add default dev lo
"""


class Namespace:
    """Entered by `inside`; `run` starts a program in it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def inside(self, make: Callable[[], T]) -> T:
        """What `make` returns, called on a thread inside."""
        outcome: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                descriptor = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(descriptor, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
                os.close(descriptor)
                outcome.append(make())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return outcome[0]

    def new_socket(self, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        sock = self.inside(lambda: socket.socket(socket.AF_INET, kind))
        sock.settimeout(20)
        return sock

    def connect(self, address: str, port: int) -> socket.socket:
        sock = self.new_socket()
        try:
            sock.connect((address, port))
        except BaseException:
            sock.close()
            raise
        return sock

    def listeners(self) -> list[socket.socket]:
        """The three that a seal makes: TCP capture, DNS over TCP, DNS over UDP."""

        def make() -> list[socket.socket]:
            sockets = []
            for kind, port in (
                (socket.SOCK_STREAM, TCP_PORT),
                (socket.SOCK_STREAM, DNS_PORT),
                (socket.SOCK_DGRAM, DNS_PORT),
            ):
                sock = socket.socket(socket.AF_INET, kind)
                sock.bind(("127.0.0.1", port))
                if kind == socket.SOCK_STREAM:
                    sock.listen(1024)
                sockets.append(sock)
            return sockets

        return self.inside(make)


@contextlib.contextmanager
def open_namespace() -> Iterator[Namespace]:
    """An empty one."""
    holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write(b"up\n")  # answered once it is `cat`, in its own namespace
        holder.stdin.flush()
        holder.stdout.readline()
        yield Namespace(holder.pid)
    finally:
        holder.kill()
        holder.wait()


@contextlib.contextmanager
def open_sealed_namespace() -> Iterator[Namespace]:
    with open_namespace() as namespace:
        enter = ["nsenter", "--net", f"--target={namespace.pid}"]
        subprocess.run([*enter, "ip", "-batch", "-"], input=_LINKS.encode(), check=True)
        subprocess.run([*enter, "nft", "-f", str(_RULES)], check=True)
        yield namespace
