"""Flow tests that read like a conversation: an event in, the commands out as short lines."""

import ipaddress
import itertools
from collections.abc import Sequence
from typing import Any

from sandboxd.audit.events import Event, Subject
from sandboxd.egress import commands as c
from sandboxd.egress.flow import Flow
from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.matching import CompiledEgress, compile_egress
from sandboxd.policy.requests import Target
from sandboxd.settings import Pin

SUBJECT = Subject("tenant", "agent", "sb-1", "mcp:test", revision=3, policy_hash="abc")


def allow(to: dict[str, Any], proto: str, **more: Any) -> dict[str, Any]:
    return {"id": f"{proto}-rule", "action": "allow", "to": to, "proto": proto, **more}


def deny(to: dict[str, Any]) -> dict[str, Any]:
    return {"id": "deny-rule", "action": "deny", "to": to}


def policy(*rules: dict[str, Any], pins: Sequence[Pin] = (), **more: Any) -> CompiledEgress:
    scope = EgressPolicy.from_wire({"rules": list(rules), **more})
    return compile_egress([scope], workload="mcp:test", pins=pins)


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


class Playbook:
    """One flow, told what happens; `records` keeps its audit events."""

    def __init__(
        self,
        compiled: CompiledEgress,
        *,
        host: str | None = None,
        address: str | None = None,
        port: int = 443,
        own: Sequence[str] = (),
    ) -> None:
        own_addresses = {packed(text) for text in own}
        ids = (f"id{n}" for n in itertools.count(1))
        target = Target(canonical_host(host) if host else None, packed(address) if address else None, port)
        self.records: list[Event] = []
        self.now = 1000.0
        self.flow = Flow(compiled, target, SUBJECT, lambda: next(ids), lambda: self.now, lambda a: a in own_addresses)
        self.sent_inside = b""
        self.sent_outside = b""

    def start(self) -> list[str]:
        return self._tell(self.flow.start())

    def __call__(self, event: c.InputEvent) -> list[str]:
        return self._tell(self.flow.handle(event))

    def says(self, data: bytes) -> list[str]:
        return self(c.ClientData(data))

    def resolved(self, *addresses: str) -> list[str]:
        return self(c.Resolved(tuple(map(packed, addresses))))

    def connected(self, address: str) -> list[str]:
        return self(c.Connected(packed(address)))

    def _tell(self, commands: list[c.Command]) -> list[str]:
        return [self._line(command) for command in commands]

    def _line(self, command: c.Command) -> str:
        match command:
            case c.Record(event):
                self.records.append(event)
                words = [event.event, event.verdict, event.detail.get("how"), event.reason]
                return " ".join(str(word) for word in words if word)
            case c.Resolve(host):
                return f"resolve {host}"
            case c.Dial(addresses, port, seconds):
                where = ",".join(str(ipaddress.ip_address(address)) for address in addresses)
                return f"dial {where} port {port} within {seconds:g}"
            case c.ToClient(data):
                self.sent_inside += data
                return f"to client {len(data)}"
            case c.ToUpstream(data):
                self.sent_outside += data
                return f"to upstream {len(data)}"
            case c.Splice(idle):
                return f"splice {idle:g}"
            case c.Close(reset):
                return "reset" if reset else "close"
            case c.StartTimer(timer, seconds):
                return f"timer {timer} {seconds:g}"
            case c.StopTimer(timer):
                return f"stop {timer}"
            case c.EofClient():
                return "eof client"
            case c.EofUpstream():
                return "eof upstream"
