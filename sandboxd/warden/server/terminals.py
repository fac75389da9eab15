"""How many pseudo terminals a sandbox may have: the host has one pool for all containers, and Docker sets no bound.

Done before anything runs, by reconfiguring the container's own devpts. Called by `sandboxes`.
"""

import ctypes
import os

from sandboxd.errors import SandboxdError
from sandboxd.warden.server.identity import Identity
from sandboxd.warden.server.root import open_in_root, open_root

# The same numbers on every architecture (include/uapi/linux/mount.h, magic.h).
_FSCONFIG, _FSPICK = 431, 433
_FSPICK_CLOEXEC, _FSPICK_EMPTY_PATH = 1, 8
_SET_STRING, _RECONFIGURE = 1, 7
_DEVPTS = 0x1CD1
# As runc mounts it: a reconfiguration forgets what it isn't told.
_OPTIONS = {"mode": "0620", "ptmxmode": "0666", "gid": "5"}
_libc = ctypes.CDLL(None, use_errno=True)


def bound_terminals(identity: Identity, most: int) -> None:
    """No more than `most` at once. Raises SandboxdError `terminals`."""
    try:
        with open_root(identity) as root:
            pts = open_in_root(root, "/dev/pts")
            try:
                if _is_devpts(pts):  # an image's volume may cover it: then there are none to be had
                    _reconfigure(pts, {"max": str(most), **_OPTIONS})
            finally:
                os.close(pts)
    except OSError as error:
        raise SandboxdError("terminals", f"the container's terminals can't be bounded: {error.strerror}") from None


def _is_devpts(directory: int) -> bool:
    statfs = (ctypes.c_long * 32)()  # f_type comes first
    _checked(_libc.fstatfs(directory, statfs))
    return statfs[0] == _DEVPTS


def _reconfigure(directory: int, options: dict[str, str]) -> None:
    context = _checked(_libc.syscall(_FSPICK, directory, b"", _FSPICK_CLOEXEC | _FSPICK_EMPTY_PATH))
    try:
        for name, value in options.items():
            _checked(_libc.syscall(_FSCONFIG, context, _SET_STRING, name.encode(), value.encode(), 0))
        _checked(_libc.syscall(_FSCONFIG, context, _RECONFIGURE, None, None, 0))
    finally:
        os.close(context)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
