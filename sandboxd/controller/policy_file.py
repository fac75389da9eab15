"""A policy file that is read again while it changes, by a process that gave up root after it was opened.

Editors replace files, so the directory is held too and the name looked up in it; where the user that this process
became may not do that, the descriptor from the start still sees what is written into the same file. Owns both
descriptors. Called by `policy_watch`. Not here: what the text says.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from sandboxd import limits


@dataclass(frozen=True, slots=True)
class Version:
    """What tells one content of a file from another, without reading it."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class OutOfReachError(Exception):
    """The file was replaced or moved, and this process may not open what stands there now."""


class PolicyFile:
    """Opened with the privileges of the moment. `directory`: where relative paths in it begin; `opened`: the version
    that stood there then, so that whoever reads it after this misses no change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = path.resolve().parent
        self._parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._first = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.opened = self.version()

    def close(self) -> None:
        """Both descriptors."""
        os.close(self._parent)
        os.close(self._first)

    def version(self) -> Version | None:
        """Of what stands under the name now; None: nothing does. Raises OutOfReachError."""
        try:
            found = os.stat(self.path.name, dir_fd=self._parent)
        except FileNotFoundError:
            return None
        except OSError:
            found = os.fstat(self._first)
        if not found.st_nlink:
            raise OutOfReachError
        return Version(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def read(self) -> bytes:
        """The content, one byte more than a policy may have at most. Raises OutOfReachError."""
        try:
            file = os.open(self.path.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self._parent)
        except FileNotFoundError:
            return b""
        except OSError:
            if not self._is_the_first():
                raise OutOfReachError from None
            return _content(self._first)
        try:
            return _content(file)
        finally:
            os.close(file)

    def _is_the_first(self) -> bool:
        """Whether the descriptor from the start is, as far as can be told, what stands under the name."""
        first = os.fstat(self._first)
        try:
            named = os.stat(self.path.name, dir_fd=self._parent)
        except OSError:
            return first.st_nlink > 0
        return (named.st_dev, named.st_ino) == (first.st_dev, first.st_ino)


def _content(file: int) -> bytes:
    content = bytearray()
    while len(content) <= limits.POLICY_FILE:
        piece = os.pread(file, limits.POLICY_FILE + 1 - len(content), len(content))
        if not piece:
            break
        content += piece
    return bytes(content)
