"""The gateway process: the only one that parses what the network and the sandboxes say (design.md 4).

Unprivileged already when it begins. Owns the event loop and the order of start and end. Called in the child that
`warden.server.guardian` forks, by way of `cli.processes`.
"""

import asyncio
import logging
import resource
import signal
import socket

from sandboxd import ids
from sandboxd.audit.events import Sink
from sandboxd.audit.store import open_sink
from sandboxd.clock import SystemClock
from sandboxd.egress.gateway.link import Link
from sandboxd.egress.gateway.resolver import Resolver
from sandboxd.egress.gateway.sandboxes import Equipment, Sandboxes
from sandboxd.egress.gateway.sessions import Session
from sandboxd.egress.gateway.threads import start_thread
from sandboxd.egress.gateway.upstream_tls import UpstreamTls
from sandboxd.egress.gateway.watched_sink import WatchedSink
from sandboxd.errors import ExitCode
from sandboxd.settings import Settings

log = logging.getLogger(__name__)


def run_gateway(link: socket.socket, settings: Settings) -> int:
    """Serve until the warden closes `link`; the exit code. Raises sandboxd errors where the audit log can't be
    opened."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the controller's to answer
    _raise_descriptor_limit()
    with open_sink(settings.audit_database, writer=f"gateway-{ids.ulid()}") as sink:
        asyncio.run(serve(link, WatchedSink(sink), upstream_tls=UpstreamTls(settings.upstream_ca)))
    return ExitCode.OK


async def serve(
    link: socket.socket, sink: Sink, equipment: Equipment | None = None, upstream_tls: UpstreamTls | None = None
) -> None:
    """Serve until `link` ends; then everything is reset. `equipment` other than the usual is for tests."""
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    resolver = Resolver()
    equipment = equipment or Equipment(loop, sink, clock, resolver, upstream_tls or UpstreamTls())
    sandboxes = Sandboxes(equipment)
    ended = asyncio.Event()

    def read_link() -> None:
        try:
            Link(loop, link, sandboxes, open_session).run()
        finally:
            loop.call_soon_threadsafe(ended.set)

    def open_session(sock: socket.socket) -> None:
        session = Session(loop, sock, sandboxes, sink, clock, equipment.upstream_tls)
        start_thread("session", session.run)

    start_thread("link", read_link)
    await ended.wait()
    sandboxes.close()
    resolver.close()


def _raise_descriptor_limit() -> None:
    """As many descriptors as the hard limit gives: two a connection, times all sandboxes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
