"""Entering a network namespace: one function. Everyone else receives sockets.

setns is per thread, so the work runs in a fresh thread that ends with it. Called by the seal, the probe and
`Connect`.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def run_inside(netns: int, work: Callable[[], _T]) -> _T:
    """`work`'s result, run inside the network namespace of descriptor `netns`. Raises what it raises."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            if _libc.setns(netns, _CLONE_NEWNET):
                number = ctypes.get_errno()
                raise OSError(number, f"setns: {os.strerror(number)}")
            results.append(work())
        except BaseException as error:  # noqa: BLE001 (carried over to the caller's thread)
            errors.append(error)

    thread = threading.Thread(target=body, name="netns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
