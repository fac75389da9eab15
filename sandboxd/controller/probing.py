"""The full probe: bypass attempts from inside a sandbox, and what arrived outside meanwhile.

`attempts.py` runs inside as the workload; here is what it is told, what it is judged by, and a listener on this
host's own addresses that nothing from inside may ever reach. Called by `sandboxd probe`.
"""

import contextlib
import json
import selectors
import socket
import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from sandboxd import limits
from sandboxd.controller.collect import collect
from sandboxd.controller.environment import HOME
from sandboxd.controller.sandbox import Sandbox, close_streams
from sandboxd.errors import SandboxdError

FORBIDDEN = "forbidden.sandboxd-probe.invalid"
_SENT = b"probe"  # what the attempts send to the host's listener


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt: the promise it tries (docs/threat-model.md), whether it failed as it must, what was seen."""

    promise: str
    name: str
    ok: bool
    seen: str


@dataclass(slots=True)
class HostListener:
    """A port of this host that answers on every address, TCP and UDP; `reached` notes who from inside came."""

    port: int
    reached: list[str] = field(default_factory=list[str])


@contextlib.contextmanager
def open_host_listener() -> Generator[HostListener, None, None]:
    """While it lasts. Only what says the attempts' word counts: the port is open to the network too."""
    tcp = socket.create_server(("0.0.0.0", 0))  # noqa: S104 (every address is what is being proved)
    port = tcp.getsockname()[1]
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener = HostListener(port)
    ended, end = socket.socketpair()
    with tcp, udp, ended, end:
        udp.bind(("0.0.0.0", port))  # noqa: S104
        thread = threading.Thread(target=_listen, args=(listener, tcp, udp, ended), daemon=True)
        thread.start()
        try:
            yield listener
        finally:
            end.send(b".")
            thread.join(limits.PROBE)


def _listen(listener: HostListener, tcp: socket.socket, udp: socket.socket, ended: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        for sock in (tcp, udp, ended):
            selector.register(sock, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is ended:
                    return
                with contextlib.suppress(OSError):
                    _take_tcp(listener, tcp) if key.fileobj is tcp else _take_udp(listener, udp)


def _take_tcp(listener: HostListener, tcp: socket.socket) -> None:
    connection, peer = tcp.accept()
    with connection:
        connection.settimeout(1.0)
        if connection.recv(64) == _SENT:
            listener.reached.append(f"TCP from {peer[0]}")
            connection.send(b"reached")


def _take_udp(listener: HostListener, udp: socket.socket) -> None:
    data, peer = udp.recvfrom(64)
    if data == _SENT:
        listener.reached.append(f"UDP from {peer[0]}")
        udp.sendto(b"reached", peer)


def run_attempts(
    sandbox: Sandbox, listener: HostListener, host_addresses: Iterable[str], environment: dict[str, str]
) -> list[Outcome]:
    """All attempts' outcomes, and one for what the host's listener saw. Raises SandboxdError."""
    told = {
        "forbidden": FORBIDDEN,
        "host_addresses": list(host_addresses),
        "port": listener.port,
        "unix_sockets": sandbox.spec.unix_sockets,
        "pids": sandbox.spec.resources.pids,
        "environment": sorted({*environment, "LC_CTYPE"}),  # Python sets it itself where LANG is C
    }
    script = (Path(__file__).parent / "attempts.py").read_text()
    streams = sandbox.launch(("python3", "-I", "-c", script, json.dumps(told)), environment, HOME)
    try:
        found = collect(streams, seconds=limits.PROBE_FULL, most=limits.MIB)
    finally:
        close_streams(streams)
    sandbox.ended(found.exited)
    outcomes = parse_outcomes(found.stdout)
    if found.exited.code or not outcomes:
        last = found.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["nothing on stderr"]
        raise SandboxdError("probe_broken", f"the attempts ended with {found.exited.code}: {last[0][:200]}")
    seen = ", ".join(listener.reached) or "nothing"
    return [*outcomes, Outcome("neighbours", "what reached this host's listener", not listener.reached, seen)]


def parse_outcomes(output: bytes) -> list[Outcome]:
    """What the attempts printed. Pure; raises SandboxdError where a line is not an outcome."""
    outcomes: list[Outcome] = []
    for line in output.splitlines():
        try:
            found: Any = json.loads(line)
            outcome = Outcome(**found)
        except (ValueError, TypeError):
            raise SandboxdError("probe_broken", "the attempts printed something else than outcomes") from None
        if type(outcome.ok) is not bool or not all(
            isinstance(text, str) for text in (outcome.promise, outcome.name, cast(object, outcome.seen))
        ):
            raise SandboxdError("probe_broken", "the attempts printed something else than outcomes")
        outcomes.append(outcome)
    return outcomes
