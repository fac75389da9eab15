"""A server without a container: the other end of an attach stream, played by the test in Docker's framing."""

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from tests.kit.attach import frame

STDOUT, STDERR = 1, 2
Act = Callable[["Server", dict[str, Any]], None]


class Server:
    """Answers each message with `act` on a thread of its own; ends when its input does."""

    def __init__(self, act: Act) -> None:
        self.near, self._far = socket.socketpair()
        self._act = act
        self.heard: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def say(self, message: dict[str, Any] | bytes, stream: int = STDOUT) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        for at in range(0, len(data), 1 << 16):
            self._far.sendall(frame(stream, data[at : at + (1 << 16)]))

    def result(self, to: dict[str, Any], result: Any) -> None:
        self.say({"jsonrpc": "2.0", "id": to["id"], "result": result})

    def error(self, to: dict[str, Any], code: int, message: str) -> None:
        self.say({"jsonrpc": "2.0", "id": to["id"], "error": {"code": code, "message": message}})

    def exit(self) -> None:
        self._far.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.exit()
        self._thread.join(5)
        self._far.close()

    def _serve(self) -> None:
        with self._far.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                self.heard.append(message)
                try:
                    self._act(self, message)
                except OSError:
                    return


def handshake(server: Server, message: dict[str, Any], **capabilities: Any) -> bool:
    """Answer an `initialize`; whether it was one."""
    if message.get("method") != "initialize":
        return False
    info = {"name": "t", "version": "1"}
    server.result(message, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
    return True
