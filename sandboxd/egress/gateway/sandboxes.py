"""What the gateway knows of each sandbox: listeners, registration, names, live connections.

Register first, then check: a sandbox without a registration is reset. Not here: how listeners and registrations
arrive (`link`, `sessions`), verdicts (`flow`). Lives on the event loop's thread. Called by `link` and `sessions`.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hmac import compare_digest

from sandboxd import ids
from sandboxd.audit.events import Sink, SinkError, Subject
from sandboxd.clock import Clock
from sandboxd.egress.calls import CallsInFlight
from sandboxd.egress.control import Call
from sandboxd.egress.flow import Flow
from sandboxd.egress.gateway.dialer import is_host_address
from sandboxd.egress.gateway.dns import TcpQueries, UdpQueries
from sandboxd.egress.gateway.end import reset_and_close
from sandboxd.egress.gateway.listeners import Listener, original_destination
from sandboxd.egress.gateway.name_server import NameServer
from sandboxd.egress.gateway.names import SyntheticNames
from sandboxd.egress.gateway.pump import Certificates, Pump, Surroundings
from sandboxd.egress.gateway.resolver import Resolver, ResolverShare
from sandboxd.egress.gateway.telling import TellingSink, Told
from sandboxd.egress.gateway.upstream_tls import UpstreamTls
from sandboxd.egress.gateway.watch import TimeWatch
from sandboxd.egress.ledger import Ledger
from sandboxd.egress.quotas import Quotas
from sandboxd.egress.vault import HeldSecret, Vault
from sandboxd.policy.matching import CompiledEgress
from sandboxd.policy.requests import Decision, Target
from sandboxd.reasons import Layer, Reason, Verdict
from sandboxd.warden.protocol import CANARY_ADDRESS

log = logging.getLogger(__name__)

_CANARY = socket.inet_aton(CANARY_ADDRESS)
_LOOPBACK = 127

Destination = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class Registration:
    """What a controller said about a sandbox; `session` is the connection it said it on. `certificates`: for what the
    policy intercepts; `secrets`: those that its credentials name."""

    subject: Subject
    policy: CompiledEgress
    canary: str
    session: object
    certificates: Certificates
    secrets: tuple[HeldSecret, ...] = ()


@dataclass(frozen=True, slots=True)
class Equipment:
    """What all sandboxes of a gateway share. `destination_of` tells where an accepted connection was going."""

    loop: asyncio.AbstractEventLoop
    sink: Sink
    clock: Clock
    resolver: Resolver
    upstream_tls: UpstreamTls = field(default_factory=UpstreamTls)
    is_host: Callable[[bytes], bool] = is_host_address
    destination_of: Callable[[socket.socket], Destination | None] = original_destination


class AlreadyRegisteredError(Exception):
    """Another controller holds the sandbox."""


class Sandboxes:
    """All sandboxes, by id."""

    def __init__(self, equipment: Equipment) -> None:
        self._equipment = equipment
        self._known: dict[str, Sandbox] = {}

    def attach(self, sandbox: str, sockets: tuple[socket.socket, socket.socket, socket.socket]) -> None:
        """The sandbox's listeners: captured TCP, DNS over TCP, DNS over UDP. Earlier ones are closed."""
        self._get(sandbox).listen(*sockets)

    def register(self, sandbox: str, registration: Registration) -> None:
        """Replaces the session's earlier registration; live connections are judged again.

        Raises AlreadyRegisteredError where it is another session's.
        """
        self._get(sandbox).register(registration)

    def rotate(self, sandbox: str, session: object, name: str, value: str) -> bool:
        """The secret has another value; False where the session holds no such sandbox or secret."""
        found = self._known.get(sandbox)
        return found is not None and found.held_by(session) and found.vault.rotate(name, value)

    def unregister(self, sandbox: str, session: object) -> None:
        """Reset everything of the sandbox, if it is the session's."""
        found = self._known.get(sandbox)
        if found is not None and found.held_by(session):
            found.unregister()
            self._forget_unused(sandbox, found)

    def set_calls(self, sandbox: str, session: object, calls: Sequence[Call]) -> None:
        """The tool calls in flight in the sandbox, if the session watches it."""
        found = self._known.get(sandbox)
        if found is not None and found.sink.has(session):
            found.set_calls(calls)

    def watch(self, sandbox: str, canary: str, told: Told) -> bool:
        """It is told of denials and says what calls are in flight, if `canary` is the registration's."""
        found = self._known.get(sandbox)
        return found is not None and found.watch(canary, told)

    def end_session(self, session: object) -> None:
        """Reset everything of the sandboxes that the session registered."""
        for sandbox, found in tuple(self._known.items()):
            if found.sink.remove(session):
                found.set_calls(())
            self.unregister(sandbox, session)

    def remove(self, sandbox: str) -> None:
        """The sandbox is gone. Idempotent."""
        found = self._known.get(sandbox)
        if found is not None:
            found.stop_listening()
            found.unregister()
            del self._known[sandbox]

    def close(self) -> None:
        """Remove all."""
        for sandbox in tuple(self._known):
            self.remove(sandbox)

    def _get(self, sandbox: str) -> "Sandbox":
        if sandbox not in self._known:
            self._known[sandbox] = Sandbox(sandbox, self._equipment)
        return self._known[sandbox]

    def _forget_unused(self, sandbox: str, found: "Sandbox") -> None:
        if not found.listening:
            self._known.pop(sandbox, None)


class Sandbox:
    """One sandbox. Its listeners may come before or after its registration."""

    def __init__(self, sandbox: str, equipment: Equipment) -> None:
        self.sink = TellingSink(equipment.sink)
        self._equipment = equipment = replace(equipment, sink=self.sink)
        self._loop = equipment.loop
        self._names = SyntheticNames(sandbox)
        self._registration: Registration | None = None
        self._calls = CallsInFlight()
        self.vault = Vault()
        self._pumps: set[Pump] = set()
        self._share: ResolverShare = equipment.resolver.share()
        self._quotas = Quotas()
        self._server = NameServer(self._names, self._quotas, equipment.sink, equipment.clock)
        self._watch = TimeWatch(equipment.loop, equipment.clock, lambda: self._judge_again(Reason.EXPIRED))
        self._listeners: tuple[Listener | UdpQueries | TcpQueries, ...] = ()

    @property
    def listening(self) -> bool:
        """Whether the warden's listeners are here."""
        return bool(self._listeners)

    def held_by(self, session: object) -> bool:
        """Whether this session registered it."""
        return self._registration is not None and self._registration.session is session

    def listen(self, tcp: socket.socket, dns_tcp: socket.socket, dns_udp: socket.socket) -> None:
        """Accept and answer on these."""
        self.stop_listening()
        self._listeners = (
            Listener(self._loop, tcp, self._accepted, self._exhausted),
            TcpQueries(self._loop, dns_tcp, self._server),
            UdpQueries(self._loop, dns_udp, self._server),
        )

    def stop_listening(self) -> None:
        """Close this process's copies of the listeners."""
        for listener in self._listeners:
            listener.close()
        self._listeners = ()

    def register(self, registration: Registration) -> None:
        """Raises AlreadyRegisteredError where another session holds it."""
        if self._registration is not None and not self.held_by(registration.session):
            raise AlreadyRegisteredError
        self._registration = registration
        if not registration.policy.by_tool:  # nobody tells of them meanwhile
            self._calls = CallsInFlight()
        self.vault.fill(registration.secrets)
        self._quotas.follow(registration.policy.limits)
        self._attend()
        self._watch.follow(registration.policy)
        self._judge_again(Reason.POLICY_REVOKED)

    def unregister(self) -> None:
        """Reset everything."""
        self._registration = None
        self.sink.remove()
        self._calls = CallsInFlight()
        self._watch.follow(None)
        self.vault.fill(())
        self._server.stop()
        for pump in tuple(self._pumps):
            pump.revoke(Reason.POLICY_REVOKED)

    def set_calls(self, calls: Sequence[Call]) -> None:
        """What a rule opened for calls that have ended is reset."""
        before = self._calls.tools
        self._calls.replace(calls)
        self._attend()
        if self._registration is not None and self._registration.policy.by_tool and self._calls.tools != before:
            self._judge_again(Reason.TOOL)

    def watch(self, canary: str, told: Told) -> bool:
        """As `Sandboxes.watch`."""
        known = self._registration is not None and compare_digest(self._registration.canary, canary)
        if known:
            self.sink.add(told)
        return known

    def _attend(self) -> None:
        """What is judged and recorded from here on, on live connections too, is so under the revision that holds and
        for the calls in flight."""
        if self._registration is not None:
            subject, tools = self._registration.subject, self._calls.tools
            self._server.serve(subject, self._registration.policy, tools)
            for pump in self._pumps:
                pump.attend(subject, tools)

    def _judge_again(self, reason: Reason) -> None:
        """Live connections that are no longer allowed are reset, with this reason."""
        if self._registration is not None:
            for pump in tuple(self._pumps):
                pump.judge_again(self._registration.policy, reason)

    # --- captured connections ------------------------------------------------------------------------------------

    def _accepted(self, sock: socket.socket) -> None:
        try:
            self._admit(sock)
        except Exception:
            log.exception("a connection was refused because of a bug")
            reset_and_close(sock)

    def _exhausted(self) -> None:
        """Connections wait in the kernel until there are descriptors again; that they do is on record."""
        registration = self._registration
        if registration is not None:
            ledger = Ledger(Target(None, None, 0), registration.subject, ids.ulid, self._equipment.clock.wall)
            decision = Decision(Verdict.DENY, Reason.QUOTA_CONNS, Layer.CONNECT)
            with contextlib.suppress(SinkError):
                self._equipment.sink.emit(ledger.finding(decision, what="the gateway has no descriptor left").event)

    def _admit(self, sock: socket.socket) -> None:
        registration = self._registration
        destination = self._equipment.destination_of(sock)
        if registration is None:
            reset_and_close(sock)
        elif destination is None or destination[0][0] == _LOOPBACK:
            self._refuse(sock, registration, destination, Reason.SELF_LOOP, "a connection to the gateway itself")
        elif destination[0] == _CANARY:
            self._answer_canary(sock, registration)
        elif len(self._pumps) >= registration.policy.limits.conns:
            self._refuse(sock, registration, destination, Reason.QUOTA_CONNS, "too many connections at once")
        elif exhausted := self._quotas.admit(self._loop.time()):
            self._refuse(sock, registration, destination, exhausted, "a quota is used up")
        else:
            self._pump(sock, registration, self._target(destination))

    def _target(self, destination: Destination) -> Target:
        address, port = destination
        host = self._names.host_of(address)
        return Target(host, None if host is not None else address, port)

    def _pump(self, sock: socket.socket, registration: Registration, target: Target) -> None:
        equipment = self._equipment
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flow = Flow(
            *(registration.policy, target, registration.subject, ids.ulid, equipment.clock.wall, equipment.is_host),
            *(self._calls.tools, self.vault),
        )
        certificates = registration.certificates
        around = Surroundings(self._loop, equipment.sink, self._share, self._quotas, certificates, self._pumps.discard)
        pump = Pump(around, sock, flow)
        self._pumps.add(pump)
        pump.start()

    def _answer_canary(self, sock: socket.socket, registration: Registration) -> None:
        """The probe's: shows that this gateway, with this registration, is what stands behind the seal."""
        with sock:
            sock.send(registration.canary.encode())

    def _refuse(
        self, sock: socket.socket, registration: Registration, where: Destination | None, reason: Reason, text: str
    ) -> None:
        """What never becomes a flow: reset and recorded."""
        reset_and_close(sock)
        target = self._target(where) if where is not None else Target(None, None, 0)
        ledger = Ledger(target, registration.subject, ids.ulid, self._equipment.clock.wall)
        decision = Decision(Verdict.DENY, reason, Layer.CONNECT, text=text)
        with contextlib.suppress(SinkError):  # it is denied in any case
            self._equipment.sink.emit(ledger.decision(decision).event)
            self._equipment.sink.emit(ledger.close("denied", reason).event)
