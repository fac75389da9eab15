"""The seal: what makes a container's empty network namespace catch everything and let nothing out (egress.md 1).

Runs inside the namespace. Not here: whether it is the right namespace (`identity`), and who answers on the listeners
(the gateway). Called by `sandboxes`.
"""

import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import DNS_PORT, LIFELINE_PORT, TCP_PORT
from sandboxd.warden.server.namespace import run_inside

_HERE = Path(__file__).parent
_RULES = b"create table inet sandboxd\n" + (_HERE / "seal.nft").read_bytes()
# No wire: an address and the default route on lo. A socket picks the address as its source, so that resolvers see IPv4.
_WIRE = b"link set dev lo up\naddr add 10.0.0.2/32 dev lo\nroute add default dev lo scope link src 10.0.0.2\n"
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
    wire = _start(["ip", "-batch", "-"], _WIRE)
    rules = _start(["nft", "-f", "-"], _RULES)
    _finish(rules, "seal_rules")
    _finish(wire, "seal_wire")
    _write_sysctls()
    return _listen()


def _refuse_used() -> None:
    """Nothing was ever here: lo only, no route and no socket. Whether there is a table, `create table` finds out."""
    links = [name for _, name in socket.if_nameindex()]
    if links != ["lo"]:
        raise SandboxdError("not_virgin", f"the namespace has links {', '.join(links)}")
    for kind in ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6", "packet", "unix"):
        try:
            lines = Path(f"/proc/thread-self/net/{kind}").read_text().splitlines()
        except FileNotFoundError:
            continue
        if len(lines) > 1:
            raise SandboxdError("not_virgin", f"the namespace has {len(lines) - 1} sockets already ({kind})")


def _start(command: list[str], text: bytes) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_ENV
        )
    except FileNotFoundError:
        raise SandboxdError("seal_tools", f"no {command[0]!r} on this host", hint="deploy/setup installs it") from None
    assert process.stdin
    process.stdin.write(text)
    process.stdin.close()
    process.stdin = None
    return process


_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_TOOL_WAIT = 10.0


def _finish(process: subprocess.Popen[bytes], code: str) -> None:
    try:
        _, errors = process.communicate(timeout=_TOOL_WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise SandboxdError(code, f"{code}: no end within {_TOOL_WAIT:g} s") from None
    if process.returncode:
        first = (errors.decode(errors="replace").splitlines() or [f"exit {process.returncode}"])[0]
        if code == "seal_rules" and "File exists" in first:
            raise SandboxdError("already_sealed", "the namespace has our table already: another sealed it")
        raise SandboxdError(code, f"the namespace could not be sealed: {first}", hint="sandboxd doctor checks the host")


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
        for kind, port in (
            (socket.SOCK_STREAM, TCP_PORT),
            (socket.SOCK_STREAM, DNS_PORT),
            (socket.SOCK_DGRAM, DNS_PORT),
            (socket.SOCK_STREAM, LIFELINE_PORT),
        ):
            sock = socket.socket(socket.AF_INET, kind)
            made.append(sock)
            sock.bind(("127.0.0.1", port))  # neither SO_REUSEADDR nor SO_REUSEPORT: nobody inside can share it
            if kind == socket.SOCK_STREAM:
                sock.listen(_BACKLOG)
            sock.setblocking(False)
    except OSError as error:
        for sock in made:
            sock.close()
        raise SandboxdError("seal_ports", f"can't listen inside the namespace: {error.strerror}") from None
    tcp, dns_tcp, dns_udp, lifeline = made
    return Listening((tcp, dns_tcp, dns_udp), lifeline)
