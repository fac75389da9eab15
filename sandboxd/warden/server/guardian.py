"""The guardian: root, one thread, waits. Starts warden and gateway, replaces a dead gateway, cleans up after a dead
warden, then ends.

It parses nothing from outside, so it is the process that is there when the others are not. Killed itself, the gateway
dies with it and the warden, which sees the end of its link, removes everything and ends. Not here: any operation.
Called by `sandboxd run` before it gives up root. What only a child needs is imported in the child: a third of a start.
"""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from sandboxd import channel, limits
from sandboxd.errors import SandboxdError
from sandboxd.settings import Settings
from sandboxd.warden.server import prctl

# Imports the gateway's code and returns what runs it: with the user goes the right to read the interpreter's files.
LoadGateway = Callable[[], Callable[[socket.socket], int]]


def fork_processes(settings: Settings, load: LoadGateway) -> socket.socket:
    """Start guardian, warden and gateway; the caller's connection to the warden. Needs root and a single thread.

    What `load` returns runs in the gateway's process after it has become `settings.gateway_user`, with its link to
    the warden; it returns the exit code. Nothing is exec'ed: imports are shared, starting takes milliseconds.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _child("sandboxd-guard", lambda: _guard(theirs, settings, load), keep=(theirs,))
    theirs.close()
    return ours


def _guard(clients: socket.socket, settings: Settings, load: LoadGateway) -> int:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    link, wardens_link = socket.socketpair()
    warden = os.fork()
    if warden == 0:
        _child("sandboxd-warden", lambda: _serve(clients, wardens_link, settings), keep=(clients, wardens_link))
    wardens_link.close()
    clients.close()
    guarded = os.pidfd_open(warden)
    try:
        _keep_gateways(guarded, link, settings, load)
    finally:
        link.close()  # a warden that still lives ends by this
        _, status = os.waitpid(warden, 0)
        _clean_up(settings, orderly=status == 0)
    return 0


def _serve(clients: socket.socket, link: socket.socket, settings: Settings) -> int:
    from sandboxd.warden.server.process import run_warden

    return run_warden(clients, link, settings)


def _keep_gateways(warden: int, link: socket.socket, settings: Settings, load: LoadGateway) -> None:
    """A gateway runs as long as the warden (its pidfd) does."""
    pause = 0.0
    while not _ended(warden, pause):
        born = time.monotonic()
        pid = _start_gateway(link, settings, load)
        running = os.pidfd_open(pid)
        try:
            ended = select.select([warden, running], [], [])[0]
            if warden in ended:
                signal.pidfd_send_signal(running, signal.SIGKILL)
        finally:
            os.close(running)
        os.waitpid(pid, 0)
        # One that dies at once is started ever more slowly.
        short = time.monotonic() - born < limits.GATEWAY_STEADY
        pause = min(limits.GATEWAY_PAUSE, pause * 2 or 0.05) if short else 0.0


def _start_gateway(link: socket.socket, settings: Settings, load: LoadGateway) -> int:
    wardens, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _child("sandboxd-gate-way", lambda: _become_gateway(theirs, settings, load, parent), keep=(theirs,))
    theirs.close()
    from sandboxd.warden.server.gateway_link import NewGateway

    with wardens, contextlib.suppress(OSError):  # a warden that is gone is seen by its pidfd
        channel.send(link, NewGateway(), [wardens.fileno()])
    return pid


def _become_gateway(link: socket.socket, settings: Settings, load: LoadGateway, parent: int) -> int:
    gateway = load()
    prctl.become_user(settings.gateway_user)
    prctl.forbid_new_privileges()
    prctl.be_undumpable()
    prctl.die_with_parent(parent)
    return gateway(link)


def _ended(process: int, wait: float) -> bool:
    return bool(select.select([process], [], [], wait)[0])


def _clean_up(settings: Settings, *, orderly: bool) -> None:
    """After the warden: what it left is ownerless now. Where it died in the middle of asking Docker for a container,
    that one appears a moment later: look twice."""
    from sandboxd.warden.server.engine import Engine
    from sandboxd.warden.server.reap import reap

    with contextlib.suppress(SandboxdError, OSError):  # Docker is down: the next start reaps
        reap(Engine(str(settings.docker_socket)), settings.run_dir)
        if not orderly:
            select.select([], [], [], limits.REAP_AGAIN)  # Docker tells nobody that such a request is through
            reap(Engine(str(settings.docker_socket)), settings.run_dir)


def _child(name: str, work: Callable[[], int], keep: tuple[socket.socket, ...]) -> None:
    """The whole life of a forked child: never returns into the parent's code."""
    code = 125
    try:
        prctl.set_name(name)
        prctl.forget_environment()
        os.umask(0o022)  # the client's could let anyone write into the directories that root mounts and removes from
        _release_descriptors(keep)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        code = work()
    except SandboxdError as error:
        os.write(2, f"sandboxd: {name}: {error}\n".encode())
    except BaseException as error:  # noqa: BLE001 (the last frame of a process)
        from sandboxd.warden.server.operations import report_bug

        report_bug(name, error)
    finally:
        os._exit(code)


def _release_descriptors(keep: tuple[socket.socket, ...]) -> None:
    """Only stderr and `keep` stay: an inherited end of anyone's pipe would hide that its holder died."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    kept = sorted(sock.fileno() for sock in keep)
    low = 3
    for fd in kept:
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
