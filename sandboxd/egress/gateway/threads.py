"""Hands work from a blocking thread to the event loop and back.

The channel (`sandboxd.channel`) is blocking, one thread a connection; what the gateway knows lives on the loop's
thread only. Called by `link` and `sessions`.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


class LoopEndedError(Exception):
    """The gateway is ending: nothing can be done any more."""


def on_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], _T]) -> _T:
    """Run `work` on the loop's thread and return what it returns, or raise what it raises.

    Raises LoopEndedError where the loop has ended.
    """
    outcome: Future[_T] = Future()

    def step() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asked
            outcome.set_exception(error)

    try:
        loop.call_soon_threadsafe(step)
    except RuntimeError:
        raise LoopEndedError from None
    return outcome.result()


def start_thread(name: str, work: Callable[[], None]) -> None:
    """A thread that ends with the process."""
    threading.Thread(target=work, name=name, daemon=True).start()
