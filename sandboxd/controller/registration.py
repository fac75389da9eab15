"""A sandbox's registration with the gateway, kept for the sandbox's life: when a gateway dies, the next one is told.

One thread waits for the end of the control connection and registers anew; the relay knows nothing of it. While nobody
is registered the sandbox reaches nothing, so every failure here is closed. Called by `controller.sandbox`. Not here:
what the policy says.
"""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sandboxd import channel, limits
from sandboxd.egress.control import REPLIES, Failed, Flush, RecordSandbox, Register, Registered, Rotate, Watch
from sandboxd.errors import SandboxdError

Connect = Callable[[], socket.socket]


class Registration:
    """`connect` gives a new control connection and waits for a gateway to be there; `register` is said on each.
    `trust` is told what each later gateway answers: its authority is another one. `answer`: the last one."""

    def __init__(
        self, connect: Connect, register: Register, trust: Callable[[Registered], None] = lambda _: None
    ) -> None:
        self._connect = connect
        self._register = register
        self._trust = trust
        self.answer = Registered()
        self._lock = threading.RLock()  # over the connection: one request and its answer
        self._session: socket.socket | None = None
        self._hear: Callable[[socket.socket], None] | None = None
        self._board = -1
        self._closed = threading.Event()
        self._first = threading.Event()
        self._failure: SandboxdError | None = None
        self.renewals = 0
        self._keeper = threading.Thread(target=self._keep, name="registration", daemon=True)

    def start(self) -> None:
        """Begin to register; `wait` tells how it went."""
        self._keeper.start()

    def wait(self) -> None:
        """Return once the sandbox is registered. Raises SandboxdError where the gateway refused or doesn't run."""
        if not self._first.wait(limits.GATEWAY_REGISTER):
            raise SandboxdError("gateway_down", "the gateway does not answer", hint="its messages on stderr say why")
        if self._failure is not None:
            raise self._failure

    def record(self, event: str, facts: dict[str, Any]) -> None:
        """Put the start or end of the workload into the audit log, durably. Raises SandboxdError."""
        self._ask_again(RecordSandbox(self._register.sandbox, event, facts))
        self._ask_again(Flush())

    def revise(self, policies: tuple[dict[str, Any], ...], hash: str) -> int:
        """Register these scopes as the next revision, and its number. Where it raises SandboxdError the one before
        still holds, here and for every later gateway."""
        with self._lock:
            before = self._register
            self._replace(replace(before, policies=policies, hash=hash, revision=before.revision + 1))
            return self._register.revision

    def name(self, workload: str) -> None:
        """From here on what the sandbox does is this workload's. Raises SandboxdError."""
        with self._lock:
            self._replace(replace(self._register, workload=workload))

    def _replace(self, register: Register) -> None:
        self._ask_again(register)
        self._register = register

    @property
    def by_tool(self) -> bool:
        """Whether the policy has rules that are open during calls only."""
        rules = (rule for policy in self._register.policies for rule in policy.get("rules", ()))
        return any("tools" in rule for rule in rules)

    def listen(self, hear: Callable[[socket.socket], None] | None, board: int = -1) -> None:
        """`hear` gets a connection, its own, on which denials come; another one from each later gateway, which gets a
        copy of `board`. None: nobody is told any more. Raises SandboxdError."""
        with self._lock:
            self._hear, self._board = hear, board
            if hear is not None:
                self._watch()

    def rotate(self, name: str, value: str) -> None:
        """The secret has another value, here and for every later gateway. Raises SandboxdError; then it has not."""
        with self._lock:
            before = self._register
            if name not in {secret.name for secret in before.secrets}:
                return
            self._ask_again(Rotate(before.sandbox, name, value))
            rotated = tuple(replace(s, value=value) if s.name == name else s for s in before.secrets)
            self._register = replace(before, secrets=rotated)

    def close(self) -> None:
        """The sandbox is over: what it still had is reset. Idempotent."""
        self._closed.set()
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(OSError):
                session.shutdown(socket.SHUT_RDWR)

    def _keep(self) -> None:
        failures = 0
        while not self._closed.is_set():
            try:
                session = self._registered()
            except SandboxdError as error:
                self._failure = error
                failures += 1
                if error.code in _FINAL or failures >= limits.GATEWAY_TRIES:
                    self._first.set()  # whoever waits for the first registration is told; the keeper goes on
                if error.code in _FINAL:
                    return
                self._closed.wait(limits.GATEWAY_RETRY)
                continue
            if self._first.is_set():
                self.renewals += 1
            self._failure = None
            self._first.set()
            _wait_for_end(session)
            self._drop(session)

    def _registered(self) -> socket.socket:
        """The connection on which the sandbox is registered, made if there is none."""
        with self._lock:
            if self._session is None:
                session = self._connect()
                session.settimeout(limits.GATEWAY_REGISTER)  # a gateway that is silent is as good as dead
                try:
                    answer = _ask(session, self._register)
                    if isinstance(answer, Registered):
                        self._tell(answer)
                    if self._hear is not None:
                        self._watch()
                except BaseException:
                    session.close()
                    raise
                self._session = session
            return self._session

    def _tell(self, answer: Registered) -> None:
        self.answer = answer
        if self._first.is_set() and answer.ca:
            self._trust(answer)

    def _watch(self) -> None:
        assert self._hear is not None
        sock = self._connect()
        sock.settimeout(limits.GATEWAY_REGISTER)
        try:
            _ask(sock, Watch(self._register.sandbox, self._register.canary), [self._board])
        except BaseException:
            sock.close()
            raise
        self._hear(sock)

    def _ask_again(self, request: Any) -> None:
        """Ask; where the gateway dies over it, ask the next one, for as long as a restart may take."""
        deadline = time.monotonic() + limits.GATEWAY_RESTART
        while True:
            session = None
            try:
                with self._lock:
                    session = self._registered()
                    _ask(session, request)
                    return
            except SandboxdError as error:
                if error.code != "gateway_down" or time.monotonic() >= deadline or self._closed.is_set():
                    raise
                if session is not None:
                    self._drop(session)

    def _drop(self, session: socket.socket) -> None:
        """Forget a connection that has ended; a newer one stays. It is not closed, for the keeper may still wait on
        its descriptor: it closes with its last reference."""
        with self._lock:
            if self._session is session:
                self._session = None


# Trying again changes nothing about these.
_FINAL = frozenset({"warden_gone", "gateway_refused", "channel"})


def _ask(session: socket.socket, request: Any, fds: Sequence[int] = ()) -> Any:
    try:
        channel.send(session, request, fds)
        received = channel.receive(session, REPLIES)
    except OSError:
        received = None
    if received is None:
        raise SandboxdError("gateway_down", "the gateway died", hint="its messages on stderr say why")
    if isinstance(received[0], Failed):
        raise SandboxdError("gateway_refused", f"the gateway refused: {received[0].message}")
    return received[0]


def _wait_for_end(session: socket.socket) -> None:
    """Answers are someone else's to read: this waits for the other side to close, or for our own."""
    poll = select.poll()
    poll.register(session, select.POLLRDHUP)
    poll.poll()
