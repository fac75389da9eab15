"""A gateway on a thread of the test's own process, with the warden's and the controller's ends in the test's hands."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from sandboxd import channel
from sandboxd.clock import SystemClock
from sandboxd.egress import control
from sandboxd.egress.gateway.process import serve
from sandboxd.egress.gateway.resolver import Resolver
from sandboxd.egress.gateway.sandboxes import Equipment
from sandboxd.policy.egress import EgressPolicy
from sandboxd.settings import Pin
from sandboxd.warden import protocol
from tests.kit.sinks import MemorySink

CANARY = "canary-0123456789"


class Controller:
    """A controller's session."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def ask(self, message: Any, fds: Sequence[int] = ()) -> Any:
        channel.send(self.sock, message, fds)
        received = channel.receive(self.sock, control.REPLIES)
        assert received is not None
        return received[0]

    def register(
        self,
        sandbox: str,
        *rules: dict[str, Any],
        pins: Sequence[Pin] = (),
        secrets: Sequence[control.Secret] = (),
        **more: Any,
    ) -> Any:
        policy = EgressPolicy.from_wire({"rules": list(rules), **more}).to_wire()
        return self.ask(
            control.Register(
                *(sandbox, "tenant", "agent", "mcp:test", (policy,), tuple(pins), CANARY, 1, "hash", tuple(secrets))
            )
        )

    def close(self) -> None:
        self.sock.close()


class GatewayUnderTest:
    """`sink` has its records, `link` is the warden's end."""

    def __init__(self, link: socket.socket, sink: MemorySink, thread: threading.Thread) -> None:
        self._thread = thread
        self.link = link
        self.sink = sink
        self._controllers: list[Controller] = []

    def attach(self, sandbox: str, listeners: Sequence[socket.socket]) -> None:
        channel.send(self.link, protocol.Listeners(sandbox), [sock.fileno() for sock in listeners])

    def gone(self, sandbox: str) -> None:
        channel.send(self.link, protocol.Gone(sandbox))

    def controller(self) -> Controller:
        ours, theirs = socket.socketpair()
        ours.settimeout(20)
        with theirs:
            channel.send(self.link, protocol.Session(), [theirs.fileno()])
        self._controllers.append(Controller(ours))
        return self._controllers[-1]

    def stop(self) -> None:
        """Close the warden's and the controllers' ends, wait for its end. Idempotent."""
        for controller in self._controllers:
            controller.close()
        self.link.close()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the gateway did not end with its link"


@contextlib.contextmanager
def open_gateway(**changes: Any) -> Iterator[GatewayUnderTest]:
    """`changes` replace parts of the gateway's equipment."""
    ours, theirs = socket.socketpair()
    sink = MemorySink()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        await serve(theirs, sink, Equipment(loop, sink, SystemClock(), Resolver(), **changes))

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    gateway = GatewayUnderTest(ours, sink, thread)
    try:
        yield gateway
    finally:
        gateway.stop()
