"""The warden's process: root, the only holder of Docker's socket and of namespace privileges.

Serves one client over `clients`; when that ends, or the guardian does, everything made is removed and it ends. Called
by `guardian` in a forked child.
"""

import contextlib
import os
import socket
import threading

from sandboxd.errors import SandboxdError
from sandboxd.pids import own_start_ticks
from sandboxd.settings import Settings
from sandboxd.warden.server import prctl, reap
from sandboxd.warden.server.engine import Engine
from sandboxd.warden.server.gateway_link import GatewayLink
from sandboxd.warden.server.hardening import Owner
from sandboxd.warden.server.operations import serve_client
from sandboxd.warden.server.sandboxes import Host


def run_warden(clients: socket.socket, link_channel: socket.socket, settings: Settings) -> int:
    """Serve the client at the other end of `clients` until it goes; `link_channel` brings links to gateways.

    Returns the process's exit code.
    """
    prctl.forbid_new_privileges()
    prctl.be_undumpable()
    host = Host(
        settings=settings,
        engine=Engine(str(settings.docker_socket)),
        gateway=GatewayLink(link_channel),
        owner=Owner(os.getpid(), own_start_ticks()),
    )
    threading.Thread(target=_follow_gateways, args=(host.gateway, clients), name="gateways", daemon=True).start()
    threading.Thread(target=_reap_once, args=(host,), name="reaper", daemon=True).start()
    serve_client(clients, host)
    return 0


def _follow_gateways(gateway: GatewayLink, clients: socket.socket) -> None:
    """Without a guardian nobody restarts the gateway or reaps after us: that ends the client too."""
    try:
        gateway.watch()
    finally:
        with contextlib.suppress(OSError):
            clients.shutdown(socket.SHUT_RDWR)


def _reap_once(host: Host) -> None:
    with contextlib.suppress(SandboxdError, OSError):  # what Docker says is told at the first operation
        reap.reap(host.engine, host.settings.run_dir)
