"""Whom a sandbox's programs trust: its image's roots (or the host's) and the authority that a client names.

The files are made before the container and written into while it runs: bind mounts see the same inode. An image's file
is read as root out of a file system that the image's author made, so the kernel resolves every link inside of it. Not
here: whose authority that is. Called by `scratch` and `sandboxes`.
"""

import base64
import binascii
import contextlib
import ctypes
import os
import re
import stat
from pathlib import Path
from typing import Any, cast

from sandboxd import limits
from sandboxd.errors import SandboxdError

_PEM = re.compile(
    r"(?:-----BEGIN CERTIFICATE-----\n(?:[A-Za-z0-9+/=]{1,76}\n){1,512}-----END CERTIFICATE-----\n){1,8}", re.ASCII
)
# Where images have theirs: Debian and Alpine, Red Hat, SUSE.
_PLACES = (
    *("etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem"),
    "etc/ssl/cert.pem",
)
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Roots:
    """Two files at `pem` and `store`, empty at first; kept open for writing when their names are gone. `filled`:
    whether something was written."""

    def __init__(self, pem: Path, store: Path) -> None:
        self.filled = False
        self._files = [_make(path) for path in (pem, store)]

    def close(self) -> None:
        """Nothing is written any more."""
        for fd in self._files:
            with contextlib.suppress(OSError):
                os.close(fd)

    def fill(self, roots: bytes, authority: str, store: str) -> None:
        """`roots`, then `authority`; `store` as it is. Raises SandboxdError `bad_authority`."""
        if len(authority) > limits.AUTHORITY or not _PEM.fullmatch(authority):
            raise SandboxdError("bad_authority", "not certificates in PEM", hint="expected what the gateway answered")
        try:
            binary = base64.b64decode(store, validate=True)
        except binascii.Error:
            raise SandboxdError("bad_authority", "not roots for Java in base64") from None
        end = b"" if not roots or roots.endswith(b"\n") else b"\n"
        for fd, content in zip(self._files, (roots + end + authority.encode(), binary), strict=True):
            os.pwrite(fd, content, 0)  # first over what a reader may be at, then what is too long
            os.ftruncate(fd, len(content))
        self.filled = True


def image_roots(container: dict[str, Any]) -> bytes:
    """The roots of the image of a running container, as Docker inspects it; where it has none, or Docker does not show
    its file system, the host's."""
    driver = cast(dict[str, Any], container.get("GraphDriver") or {})
    merged = cast(dict[str, str], driver.get("Data") or {}).get("MergedDir")
    found = _first_roots(merged) if merged else b""
    return found or _first_roots("/")


def _first_roots(root: str) -> bytes:
    try:
        directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return next((content for place in _PLACES if (content := _read_inside(directory, place))), b"")
    finally:
        os.close(directory)


def _read_inside(directory: int, path: str) -> bytes:
    """A regular file below `directory`, which is its root for every link on the way; nothing where there is none."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    how = _OpenHow(flags, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    fd = _libc.syscall(_OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        return b""
    with open(fd, "rb") as file:
        size = os.fstat(fd)
        if not stat.S_ISREG(size.st_mode) or size.st_size > limits.ROOTS_FILE:
            return b""
        return file.read(limits.ROOTS_FILE)


def _make(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    os.fchmod(fd, 0o444)
    return fd
