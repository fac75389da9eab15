"""A container's root directory from outside: names in it are the image's and the workload's, and lead nowhere else.

Called by `build` and `terminals`. Not here: what is done with a directory in it.
"""

import contextlib
import ctypes
import os
import select
from collections.abc import Generator

from sandboxd.errors import SandboxdError
from sandboxd.warden.server.identity import Identity

_OPENAT2 = 437
_RESOLVE_IN_ROOT = 0x10
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@contextlib.contextmanager
def open_root(identity: Identity) -> Generator[int, None, None]:
    """A descriptor of the root; it is that one because the gate still lives after the opening. Raises `not_running`."""
    ended = SandboxdError("not_running", "the container has ended", hint="it can only be worked on while it runs")
    try:
        root = os.open(f"/proc/{identity.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise ended from None
    try:
        if select.select([identity.pidfd], [], [], 0)[0]:
            raise ended
        yield root
    finally:
        os.close(root)


def open_in_root(root: int, path: str) -> int:
    """A descriptor of a directory in it; the kernel resolves every link within that root. Raises OSError."""
    how = _OpenHow(os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
    fd = _libc.syscall(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return fd
