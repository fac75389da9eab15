"""A controller's connection: registrations, sandbox records, flushes (`sandboxd.egress.control`).

Policies are checked and compiled here, on the session's own thread, so that a large one delays no connection. What a
session registered ends with it. Not here: what a registration does (`sandboxes`). Called by `link`.
"""

import asyncio
import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from typing import Any

from sandboxd import channel, ids
from sandboxd.audit.events import Event, Sink, SinkError, Subject
from sandboxd.clock import Clock
from sandboxd.egress.control import REQUESTS, Calls, Failed, Flush, Ok, RecordSandbox, Register, Unregister
from sandboxd.egress.gateway.sandboxes import AlreadyRegisteredError, Registration, Sandboxes
from sandboxd.egress.gateway.threads import LoopEndedError, on_loop
from sandboxd.policy.matching import compile_egress
from sandboxd.policy.problems import PolicyError
from sandboxd.policy.wire import read_wire

log = logging.getLogger(__name__)

_EVENTS = ("sandbox_start", "sandbox_end")


@dataclass(frozen=True, slots=True)
class _Problem(Exception):
    code: str
    message: str


class Session:
    """One controller, on a thread of its own, until its connection ends."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, sandboxes: Sandboxes, sink: Sink, clock: Clock
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._sandboxes = sandboxes
        self._sink = sink
        self._clock = clock
        self._subjects: dict[str, Subject] = {}

    def run(self) -> None:
        """Serve until the end. A peer that breaks the protocol is hung up on."""
        try:
            with self._sock:
                while (received := channel.receive(self._sock, REQUESTS)) is not None:
                    message, fds = received
                    for fd in fds:  # no request comes with any
                        os.close(fd)
                    channel.send(self._sock, self._answer(message))
        except (channel.ChannelError, OSError) as error:
            log.warning("a controller's session broke: %s", error)
        finally:
            with contextlib.suppress(LoopEndedError):
                on_loop(self._loop, lambda: self._sandboxes.end_session(self))

    def _answer(self, message: Any) -> Ok | Failed:
        try:
            self._do(message)
        except _Problem as problem:
            return Failed(problem.code, problem.message)
        except SinkError as error:
            return Failed("audit_sink", f"the audit log takes no records: {error}")
        except Exception:
            log.exception("a control request failed because of a bug")
            return Failed("internal", "the gateway could not do it because of a bug; its log has the details")
        return Ok()

    def _do(self, message: Any) -> None:
        match message:
            case Register():
                self._register(message)
            case Unregister(sandbox):
                self._subjects.pop(sandbox, None)
                on_loop(self._loop, lambda: self._sandboxes.unregister(sandbox, self))
            case Calls(sandbox, started, ended):
                on_loop(self._loop, lambda: self._sandboxes.change_calls(sandbox, self, started, ended))
            case RecordSandbox():
                self._sink.emit(self._record(message))
            case Flush():
                self._sink.flush()
            case _:
                raise _Problem("unknown", f"not a request: {type(message).__name__}")

    def _register(self, message: Register) -> None:
        registration = self._registration(message)
        try:
            on_loop(self._loop, lambda: self._sandboxes.register(message.sandbox, registration))
        except AlreadyRegisteredError:
            raise _Problem("registered", f"{message.sandbox} is registered by another controller") from None
        self._subjects[message.sandbox] = registration.subject

    def _registration(self, message: Register) -> Registration:
        try:
            policies = [read_wire(policy) for policy in message.policies]
            compiled = compile_egress(policies, workload=message.workload, pins=message.pins)
        except (ValueError, PolicyError) as error:
            raise _Problem("bad_policy", str(error)) from None
        subject = Subject(
            message.tenant, message.agent, message.sandbox, message.workload, message.revision, message.hash
        )
        return Registration(subject, compiled, message.canary, self)

    def _record(self, message: RecordSandbox) -> Event:
        if message.event not in _EVENTS:
            raise _Problem("unknown", f"unknown event {message.event!r}; expected one of {', '.join(_EVENTS)}")
        subject = self._subjects.get(message.sandbox)
        if subject is None:
            raise _Problem("not_registered", f"{message.sandbox} is not registered on this connection")
        return Event(ids.ulid(), self._clock.wall(), message.event, subject, detail=message.facts)
