"""The seal: what makes a container's empty network namespace catch everything and let nothing out (egress.md 1).

Runs inside the namespace. Not here: whether it is the right namespace (`identity`), and who answers on the listeners
(the gateway). Called by `sandboxes`.
"""

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import DNS_PORT, LIFELINE_PORT, TCP_PORT
from sandboxd.warden.server.namespace import run_inside
from sandboxd.warden.server.rules import load_rules
from sandboxd.warden.server.wire import lay_wire

_HERE = Path(__file__).parent
_RULES = b"create table inet sandboxd\n" + (_HERE / "seal.nft").read_bytes()
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Listening:
    """The sockets inside the namespace. `capture`: TCP, DNS over TCP, DNS over UDP, in this order; `lifeline`: the
    gate's, closed once it has connected."""

    capture: tuple[socket.socket, socket.socket, socket.socket]
    lifeline: socket.socket

    def close(self) -> None:
        """Close all four."""
        for sock in (*self.capture, self.lifeline):
            sock.close()


def sysctls() -> list[tuple[Path, str]]:
    """The table of seal.sysctl as files and values."""
    lines = [line for line in (_HERE / "seal.sysctl").read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.split("=", 1) for line in lines]
    return [(Path("/proc/sys") / name.replace(".", "/"), value) for name, value in pairs]


def seal_namespace(netns: int) -> Listening:
    """Seal the namespace of descriptor `netns`. Raises SandboxdError `already_sealed`, `not_virgin`, `seal_rules`,
    `seal_wire`, `seal_sysctl`, `seal_ports`; a namespace that was refused is left as it was found, and unused."""
    return run_inside(netns, _seal_here)


def _seal_here() -> Listening:
    _refuse_used()
    load_rules(_RULES)  # first: of several sealers one wins
    lay_wire()
    _write_sysctls()
    return _listen()


def _refuse_used() -> None:
    """Nothing was ever here: lo only and no socket. Whether there is a table, `create table` finds out."""
    links = [name for _, name in socket.if_nameindex()]
    if links != ["lo"]:
        raise SandboxdError("not_virgin", f"the namespace has links {', '.join(links)}")
    if found := sockets_here():
        raise SandboxdError("not_virgin", f"the namespace has sockets already: {', '.join(found)}")


def sockets_here() -> list[str]:
    """The kinds of sockets that are in the thread's namespace. The kernel's own counts for TCP, UDP and raw: its list
    of TCP sockets is made from a table of the whole host, which takes 12 ms."""
    here = Path("/proc/thread-self/net")
    counts = "".join((here / name).read_text() for name in ("sockstat", "sockstat6") if (here / name).exists())
    fields = [line.split() for line in counts.splitlines()]
    found = [words[0].rstrip(":") for words in fields if words[1] == "inuse" and words[2] != "0"]
    for kind in ("unix", "packet", "icmp", "icmp6"):
        with contextlib.suppress(FileNotFoundError):
            if len((here / kind).read_text().splitlines()) > 1:
                found.append(kind)
    return found


def _write_sysctls() -> None:
    for path, value in sysctls():
        if "ipv6" in path.parts and not os.path.isdir("/proc/sys/net/ipv6"):
            continue  # a kernel without IPv6
        try:
            path.write_text(value)
        except OSError as error:
            raise SandboxdError("seal_sysctl", f"can't set {path} to {value}: {error.strerror}") from None


def _listen() -> Listening:
    made: list[socket.socket] = []
    try:
        for kind, port, backlog in (
            (socket.SOCK_STREAM, TCP_PORT, _BACKLOG),
            (socket.SOCK_STREAM, DNS_PORT, _BACKLOG),
            (socket.SOCK_DGRAM, DNS_PORT, None),
            (socket.SOCK_STREAM, LIFELINE_PORT, 0),  # room for the gate alone: it connects before its workload runs
        ):
            sock = socket.socket(socket.AF_INET, kind)
            made.append(sock)
            sock.bind(("127.0.0.1", port))  # neither SO_REUSEADDR nor SO_REUSEPORT: nobody inside can share it
            if backlog is not None:
                sock.listen(backlog)
            sock.setblocking(False)
    except OSError as error:
        for sock in made:
            sock.close()
        raise SandboxdError("seal_ports", f"can't listen inside the namespace: {error.strerror}") from None
    tcp, dns_tcp, dns_udp, lifeline = made
    return Listening((tcp, dns_tcp, dns_udp), lifeline)
