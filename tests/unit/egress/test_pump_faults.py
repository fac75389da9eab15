"""A bug in what a connection waits for ends that connection at once, with a record; the client never waits for it."""

import asyncio
import socket

import pytest

from sandboxd import ids
from sandboxd.audit.events import Event, Subject
from sandboxd.egress.flow import Flow
from sandboxd.egress.gateway.pump import Pump, Surroundings
from sandboxd.egress.quotas import Quotas
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.requests import Target
from sandboxd.reasons import Reason
from tests.kit.playbook import allow, policy


class Records:
    """A sink that keeps."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def flush(self) -> None: ...
    def close(self) -> None: ...


class BrokenResolver:
    """Fails as nobody expected."""

    async def resolve(self, host: str, *, seconds: float = 0) -> tuple[bytes, ...]:
        raise LookupError("unknown encoding")


def test_a_lookup_that_breaks_resets_and_is_recorded() -> None:
    records = Records()
    asyncio.run(asyncio.wait_for(_one_connection(records), 20))
    assert records.events[-1].reason is Reason.INTERNAL


async def _one_connection(records: Records) -> None:
    loop = asyncio.get_running_loop()
    rules = policy(allow({"hosts": ["db.example.com"], "ports": [5432]}, "tcp"))
    target = Target(canonical_host("db.example.com"), None, 5432)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        inside = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    inside.setblocking(False)
    flow = Flow(rules, target, Subject("t", "a", "s", "w"), ids.ulid, lambda: 0.0, lambda _: False)
    over = asyncio.Event()
    around = Surroundings(loop, records, BrokenResolver(), Quotas(), None, lambda _: over.set())  # type: ignore[arg-type]
    Pump(around, accepted, flow).start()
    await over.wait()
    with inside, pytest.raises(ConnectionResetError):
        await loop.sock_recv(inside, 1)
