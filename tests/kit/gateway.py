"""A gateway that refuses everything and answers the probe: what the warden's tests run in the gateway's place.

Each session gets every byte echoed, so that a test sees that it reached a living gateway.
"""

import select
import socket
import struct

from sandboxd import channel
from sandboxd.warden import protocol as p

CANARY = "canary-of-the-test"
_ORIGINAL_DST = 80


def run_refusing_gateway(link: socket.socket) -> int:
    """The gateway's process: until the link ends."""
    listeners: dict[str, list[socket.socket]] = {}
    sessions: list[socket.socket] = []
    while True:
        socks = [link, *sessions, *(sock for group in listeners.values() for sock in group)]
        for sock in select.select(socks, [], [])[0]:
            if sock is link:
                received = channel.receive(link, p.GATEWAY_LINK)
                if received is None:
                    return 0
                _obey(*received, listeners, sessions)
            elif sock in sessions:
                if not _echo(sock):
                    sessions.remove(sock)
                    sock.close()
            elif sock.type == socket.SOCK_DGRAM:
                _refuse_name(sock)
            else:
                _refuse_connection(sock)


def _obey(message: object, fds: list[int], listeners: dict[str, list[socket.socket]], sessions: list) -> None:
    socks = [socket.socket(fileno=fd) for fd in fds]
    if isinstance(message, p.Listeners):
        listeners[message.sandbox] = socks
    elif isinstance(message, p.Session):
        sessions.extend(socks)
    elif isinstance(message, p.Gone):
        for sock in listeners.pop(message.sandbox, []):
            sock.close()


def _echo(sock: socket.socket) -> bool:
    try:
        data = sock.recv(4096)
        sock.sendall(data)
    except OSError:
        return False
    return bool(data)


def _refuse_name(sock: socket.socket) -> None:
    query, peer = sock.recvfrom(512)
    sock.sendto(query[:2] + b"\x81\x05" + query[4:], peer)


def _refuse_connection(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    address = connection.getsockopt(socket.SOL_IP, _ORIGINAL_DST, 16)
    if socket.inet_ntoa(address[4:8]) == p.CANARY_ADDRESS:
        connection.sendall(CANARY.encode())
    else:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
