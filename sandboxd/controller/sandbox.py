"""A sandbox as a context: sealed, registered and probed when it opens, gone with everything it had when it closes.

create → lease → start → seal → (registered meanwhile) → probe; `launch` then makes it a workload. A failure anywhere
undoes what was done, within bounds. Called by `run`, `probe` and package builds. Not here: what it may reach (the
caller's policies), the relay.
"""

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandboxd import limits
from sandboxd.controller.ports import Leases, Warden
from sandboxd.controller.registration import Registration
from sandboxd.controller.relay import Streams
from sandboxd.egress.control import Register, Registered
from sandboxd.egress.control import Secret as HeldSecret
from sandboxd.errors import SandboxdError
from sandboxd.settings import Pin
from sandboxd.warden.protocol import ContainerSpec, Created, Exited, ProbeResult


@dataclass(frozen=True, slots=True)
class Scope:
    """What a sandbox may reach: `policies` as plain JSON, widest first, all of which must allow (none denies
    everything); operator pins; secrets that the gateway holds; whose it is in the audit log."""

    policies: tuple[dict[str, Any], ...] = ()
    pins: tuple[Pin, ...] = ()
    tenant: str = "local"
    hash: str = ""
    secrets: tuple[HeldSecret, ...] = ()


class _Orders:
    """What the relay asks of the warden, done one after the other by a thread of its own: the warden may be busy, and
    what the workload says must be relayed meanwhile."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="orders", daemon=True)

    def give(self, order: Callable[[], None]) -> None:
        if self._worker.ident is None:
            self._worker.start()
        self._orders.put(order)

    def close(self) -> None:
        self._orders.put(None)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            with contextlib.suppress(SandboxdError):  # the relay sees no end, and says so
                order()


@dataclass(slots=True)
class Sandbox:
    """An open sandbox. `probed`: the cheap probe's results, all of them good. Also the relay's `Control`."""

    spec: ContainerSpec
    created: Created
    probed: tuple[ProbeResult, ...]
    _warden: Warden
    _registration: Registration
    _exited: Exited | None = None
    _launched: bool = False
    _orders: _Orders = field(default_factory=_Orders, repr=False)

    @property
    def id(self) -> str:
        return self.spec.sandbox

    def launch(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Streams:
        """Become `argv`. `env` is all of the environment. The start is on disk in the audit log before anything
        runs; arguments and values are not part of the record."""
        facts = {"image": self.spec.image, "image_id": self.created.image, "command": argv[0], "uid": self.created.uid}
        self._registration.record("sandbox_start", {**facts, "runtime": self.spec.runtime})
        attach, exit_ = self._warden.launch(self.id, argv, env, cwd)
        self._launched = True
        return Streams(attach, exit_)

    def revise(self, policies: tuple[dict[str, Any], ...], hash: str) -> int:
        """What it may reach from now on, and the revision's number. Raises SandboxdError; then nothing changed."""
        return self._registration.revise(policies, hash)

    @property
    def by_tool(self) -> bool:
        """Whether its policy has rules that are open during calls only."""
        return self._registration.by_tool

    def listen(self, hear: Callable[[socket.socket], None] | None, board: int = -1) -> None:
        """As `Registration.listen`. Raises SandboxdError."""
        self._registration.listen(hear, board)

    def rotate(self, secret: str, value: str) -> None:
        """The gateway puts another value in from now on. Raises SandboxdError; then nothing changed."""
        self._registration.rotate(secret, value)

    def ended(self, exited: Exited) -> None:
        """How the workload ended, for the records."""
        self._exited = exited

    def signal(self, number: int) -> None:
        """To the workload's process group; one that has ended gets none."""
        self._orders.give(lambda: self._warden.signal(self.id, number))

    def stop(self) -> None:
        """Begin TERM, then KILL."""
        self._orders.give(lambda: self._warden.stop(self.id, limits.STOP_TERM))

    def close(self) -> None:
        """No more orders."""
        self._orders.close()

    @property
    def how(self) -> dict[str, Any]:
        """The facts of its end."""
        if self._exited is None:
            return {"how": "removed" if self._launched else "never launched"}
        return {"how": "exited", "code": self._exited.code, "oom": self._exited.oom}


@contextlib.contextmanager
def open_sandbox(
    warden: Warden, spec: ContainerSpec, scope: Scope, leases: Leases, report: Callable[[str], None]
) -> Generator[Sandbox, None, None]:
    """The sandbox, ready to launch. `report` gets what went wrong while it was undone. Raises SandboxdError."""
    canary = os.urandom(16).hex()

    def trust(answer: Registered) -> None:
        """A later gateway's authority becomes the sandbox's."""
        try:
            warden.trust(spec.sandbox, answer.ca, answer.java)
        except SandboxdError as error:
            report(f"what is intercepted is refused from now on: {error}")

    registration = Registration(warden.gateway, _register(spec, scope, canary), trust)
    opened: list[Sandbox] = []

    def end() -> None:
        """Nothing runs any more by now."""
        for sandbox in opened:
            sandbox.close()
            registration.record("sandbox_end", sandbox.how)

    with contextlib.ExitStack() as undo:  # the last one first
        undo.callback(registration.close)
        undo.callback(_try, report, lambda: leases.end(spec.sandbox, failed=not opened))
        undo.callback(_try, report, end)
        undo.callback(_try, report, lambda: warden.remove(spec.sandbox))
        registration.start()
        created = warden.create(spec)
        leases.begin(spec.sandbox, spec.agent, spec.workload, created.container, created.image)
        warden.start(spec.sandbox)
        warden.seal(spec.sandbox)
        registration.wait()
        if spec.trust:
            warden.trust(spec.sandbox, registration.answer.ca, registration.answer.java)
        probed = _probe(warden, spec.sandbox, canary)
        registration.name(spec.workload)
        opened.append(Sandbox(spec, created, probed, warden, registration))
        yield opened[0]


# Whose the seal's own trial is in the audit log: a reader must not take its refusals for the workload's.
PROBE = "probe"


def _register(spec: ContainerSpec, scope: Scope, canary: str) -> Register:
    return Register(
        sandbox=spec.sandbox,
        tenant=scope.tenant,
        agent=spec.agent,
        workload=PROBE,
        policies=scope.policies,
        pins=scope.pins,
        canary=canary,
        hash=scope.hash,
        secrets=scope.secrets,
    )


def _probe(warden: Warden, sandbox: str, canary: str) -> tuple[ProbeResult, ...]:
    results = warden.probe(sandbox, canary)
    bad = [f"{result.name}: {result.seen}" for result in results if not result.ok]
    if bad:
        raise SandboxdError("probe_failed", f"the seal does not hold: {'; '.join(bad)}", hint="run sandboxd doctor")
    return results


def _try(report: Callable[[str], None], undo: Callable[[], None]) -> None:
    """The rest is undone whatever this one says."""
    try:
        undo()
    except (SandboxdError, OSError) as error:
        if getattr(error, "code", "") != "warden_gone":  # then everything is gone, and that is said already
            report(f"while cleaning up: {error}")


def close_streams(streams: Streams) -> None:
    """Both sockets; whoever relays no more."""
    for sock in (streams.attach, streams.exit):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
