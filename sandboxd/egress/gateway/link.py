"""The gateway's end of its link to the warden: listeners and sessions arrive as descriptors.

Not here: what is done with them (`sandboxes`, `sessions`). Its end is the gateway's end: without a warden there is
nothing to serve. Called by `process`.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from sandboxd import channel
from sandboxd.egress.gateway.sandboxes import Sandboxes
from sandboxd.egress.gateway.threads import on_loop
from sandboxd.warden.protocol import GATEWAY_LINK, Gone, Listeners, Session

log = logging.getLogger(__name__)


class Link:
    """Reads `sock` on a thread of its own; `serve` takes over a controller's connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        sandboxes: Sandboxes,
        serve: Callable[[socket.socket], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._sandboxes = sandboxes
        self._serve = serve

    def run(self) -> None:
        """Until the warden closes the link or breaks its protocol; then it is closed."""
        try:
            with self._sock:
                while (received := channel.receive(self._sock, GATEWAY_LINK)) is not None:
                    self._handle(*received)
        except (channel.ChannelError, OSError) as error:
            log.warning("the link to the warden broke: %s", error)

    def _handle(self, message: Any, fds: list[int]) -> None:
        sockets = [socket.socket(fileno=fd) for fd in fds]
        match message, sockets:
            case Listeners(sandbox), [tcp, dns_tcp, dns_udp]:
                on_loop(self._loop, lambda: self._sandboxes.attach(sandbox, (tcp, dns_tcp, dns_udp)))
            case Session(), [controller]:
                self._serve(controller)
            case Gone(sandbox), []:
                on_loop(self._loop, lambda: self._sandboxes.remove(sandbox))
            case _:
                for sock in sockets:
                    sock.close()
                raise channel.ChannelError(f"{type(message).__name__} came with {len(sockets)} descriptors")
