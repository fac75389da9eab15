"""Tells the gateway which tool calls are in flight, on a thread of its own: the relay never waits for an answer.

Not here: which calls there are (`tool_calls`), and that a new gateway is told of them all (`registration`). Called by
`tool_calls` through its Protocol.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from sandboxd.egress.control import Call
from sandboxd.errors import SandboxdError


class Gateway(Protocol):
    """`controller.registration.Registration` as far as calls go."""

    @property
    def by_tool(self) -> bool:
        """Whether the policy has rules that are open during calls only."""
        ...

    def change_calls(self, started: Sequence[Call], ended: Sequence[str]) -> None:
        """Returns once the gateway knows. Raises SandboxdError."""
        ...


class CallBoard:
    """`settle` is called on the board's thread, once for each `tell` that said `True`."""

    def __init__(self, gateway: Gateway, settle: Callable[[], None]) -> None:
        self._gateway = gateway
        self._settle = settle
        self._changes: queue.SimpleQueue[tuple[Sequence[Call], Sequence[str], bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="calls", daemon=True)

    def tell(self, started: Sequence[Call], ended: Sequence[str] = ()) -> bool:
        """Calls began or ended. Whether what begins them must wait until it is settled."""
        wait = bool(started) and self._gateway.by_tool
        if self._thread.ident is None:
            self._thread.start()
        self._changes.put((started, ended, wait))
        return wait

    def close(self) -> None:
        """Nothing more is told."""
        self._changes.put(None)

    def _work(self) -> None:
        while (change := self._changes.get()) is not None:
            started, ended, wait = change
            with contextlib.suppress(SandboxdError):  # no gateway: then nothing is open to the call either
                self._gateway.change_calls(started, ended)
            if wait:
                self._settle()
