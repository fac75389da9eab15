"""A controller's connection: registrations, sandbox records, flushes (`sandboxd.egress.control`).

Policies are checked and compiled here, on the session's own thread, so that a large one delays no connection. What a
session registered ends with it. Not here: what a registration does (`sandboxes`). Called by `link`.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sandboxd import channel, ids, limits
from sandboxd.audit.events import Event, Sink, SinkError, Subject
from sandboxd.clock import Clock
from sandboxd.egress.control import (
    REQUESTS,
    Failed,
    Flush,
    InFlight,
    Noted,
    Ok,
    RecordSandbox,
    Register,
    Registered,
    Rotate,
    Secret,
    Unregister,
    Watch,
)
from sandboxd.egress.gateway.certificates import InterceptionError, SandboxCertificates
from sandboxd.egress.gateway.sandboxes import AlreadyRegisteredError, Registration, Sandboxes
from sandboxd.egress.gateway.telling import Told
from sandboxd.egress.gateway.threads import LoopEndedError, on_loop
from sandboxd.egress.gateway.upstream_tls import UpstreamTls
from sandboxd.egress.vault import PLACEHOLDER_PREFIX, HeldSecret
from sandboxd.errors import SandboxdError
from sandboxd.policy.interception import credential_names, intercepted_names
from sandboxd.policy.matching import compile_egress
from sandboxd.policy.problems import PolicyError
from sandboxd.policy.rules import Policy
from sandboxd.policy.wire import read_wire

log = logging.getLogger(__name__)

_PLACEHOLDER = re.compile(rf"{PLACEHOLDER_PREFIX}[0-9a-f]{{32}}")
_EVENTS = ("sandbox_start", "sandbox_end")


@dataclass(frozen=True, slots=True)
class _Problem(Exception):
    code: str
    message: str


class Session:
    """One controller, on a thread of its own, until its connection ends."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        sandboxes: Sandboxes,
        sink: Sink,
        clock: Clock,
        upstream_tls: UpstreamTls,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._sandboxes = sandboxes
        self._sink = sink
        self._clock = clock
        self._upstream_tls = upstream_tls
        self._subjects: dict[str, Subject] = {}
        self._certificates: dict[str, SandboxCertificates] = {}

    def run(self) -> None:
        """Serve until the end. A peer that breaks the protocol is hung up on."""
        try:
            with self._sock:
                while (received := channel.receive(self._sock, REQUESTS)) is not None:
                    message, fds = received
                    if (answer := self._answer(message, fds)) is not None:
                        channel.send(self._sock, answer)
        except (channel.ChannelError, OSError) as error:
            log.warning("a controller's session broke: %s", error)
        finally:
            with contextlib.suppress(LoopEndedError):
                on_loop(self._loop, lambda: self._sandboxes.end_session(self))

    def _answer(self, message: Any, fds: list[int]) -> Ok | Registered | Noted | Failed | None:
        try:
            if isinstance(message, Watch):
                return self._begin_watch(message, fds)
            return self._do(message)
        except _Problem as problem:
            return Failed(problem.code, problem.message)
        except SinkError as error:
            return Failed("audit_sink", f"the audit log takes no records: {error}")
        except Exception:
            log.exception("a control request failed because of a bug")
            return Failed("internal", "the gateway could not do it because of a bug; its log has the details")
        finally:
            for fd in fds:  # what nobody took
                os.close(fd)

    def _begin_watch(self, message: Watch, fds: list[int]) -> Ok:
        if len(fds) != 1:
            raise _Problem("no_board", f"Watch comes with one descriptor, not {len(fds)}")
        try:
            told = Told(self, self._sock, fds[0])
        except OSError:
            raise _Problem("no_board", "the descriptor that came with Watch is not memory") from None
        fds.clear()
        if not on_loop(self._loop, lambda: self._sandboxes.watch(message.sandbox, message.canary, told)):
            told.close()
            raise _Problem("not_registered", f"{message.sandbox} is not registered, or by someone else")
        return Ok()

    def _do(self, message: Any) -> Ok | Registered | Noted | None:
        match message:
            case Register():
                return self._register(message)
            case Rotate():
                self._rotate(message)
            case Unregister(sandbox):
                self._subjects.pop(sandbox, None)
                self._certificates.pop(sandbox, None)
                on_loop(self._loop, lambda: self._sandboxes.unregister(sandbox, self))
            case InFlight(sandbox, calls, serial):
                on_loop(self._loop, lambda: self._sandboxes.set_calls(sandbox, self, calls))
                return Noted(serial) if serial else None
            case RecordSandbox():
                self._sink.emit(self._record(message))
            case Flush():
                self._sink.flush()
            case _:
                raise _Problem("unknown", f"not a request: {type(message).__name__}")
        return Ok()

    def _rotate(self, message: Rotate) -> None:
        _check_value(message.name, message.value)
        sandbox, name, value = message.sandbox, message.name, message.value
        if not on_loop(self._loop, lambda: self._sandboxes.rotate(sandbox, self, name, value)):
            raise _Problem("no_secret", f"{sandbox} has no secret {name} on this connection")

    def _register(self, message: Register) -> Registered:
        registration = self._registration(message)
        try:
            on_loop(self._loop, lambda: self._sandboxes.register(message.sandbox, registration))
        except AlreadyRegisteredError:
            raise _Problem("registered", f"{message.sandbox} is registered by another controller") from None
        self._subjects[message.sandbox] = registration.subject
        certificates = self._certificates[message.sandbox]
        return Registered(certificates.ca, certificates.java)

    def _registration(self, message: Register) -> Registration:
        try:
            policies = [read_wire(policy) for policy in message.policies]
            compiled = compile_egress(policies, workload=message.workload, pins=message.pins)
        except (ValueError, PolicyError) as error:
            raise _Problem("bad_policy", str(error)) from None
        certificates = self._intercept(message, policies)
        subject = Subject(
            message.tenant, message.agent, message.sandbox, message.workload, message.revision, message.hash
        )
        return Registration(subject, compiled, message.canary, self, certificates, _held(message.secrets))

    def _intercept(self, message: Register, policies: Sequence[Policy]) -> SandboxCertificates:
        """What the policies intercept can be intercepted; the sandbox's authority stays the same."""
        given = {secret.name for secret in message.secrets}
        missing = sorted(credential_names(policies, message.workload) - given)
        if missing:
            raise _Problem("no_secret", f"the policy's credentials name {missing[0]}, and no such secret was given")
        registered = message.sandbox in self._subjects
        if not registered:
            self._certificates[message.sandbox] = SandboxCertificates(self._upstream_tls)
        certificates = self._certificates[message.sandbox]
        try:
            # of every workload: which one it is to be may be said later
            certificates.allow(intercepted_names(policies), message.sandbox, begin=not registered)
        except (InterceptionError, SandboxdError) as error:
            raise _Problem(error.code, str(error)) from None
        return certificates

    def _record(self, message: RecordSandbox) -> Event:
        if message.event not in _EVENTS:
            raise _Problem("unknown", f"unknown event {message.event!r}; expected one of {', '.join(_EVENTS)}")
        subject = self._subjects.get(message.sandbox)
        if subject is None:
            raise _Problem("not_registered", f"{message.sandbox} is not registered on this connection")
        return Event(ids.ulid(), self._clock.wall(), message.event, subject, detail=message.facts)


def _held(secrets: Sequence[Secret]) -> tuple[HeldSecret, ...]:
    for secret in secrets:
        _check_value(secret.name, secret.value)
        if not _PLACEHOLDER.fullmatch(secret.placeholder):
            raise _Problem("bad_secret", f"{secret.name}: not a placeholder")
    return tuple(HeldSecret(secret.name, secret.value, secret.placeholder) for secret in secrets)


def _check_value(name: str, value: str) -> None:
    """What a header can't carry would be a second header, or nothing."""
    controls = any(ord(char) < 32 or ord(char) == 127 for char in value)
    if controls or not 0 < len(value) <= limits.SECRET or value != value.strip():
        raise _Problem("bad_secret", f"{name}: a header carries 1 to {limits.SECRET} characters, none of control")
