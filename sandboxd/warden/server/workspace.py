"""A host directory in a sandbox: refused where it must not be seen or holds sockets, mounted for the sandbox's uid.

Called by `sandboxes` at Create. Not here: what a name alone tells (`admission`) and the system calls (`mounts`).
"""

import os
import stat
from collections.abc import Iterator

from sandboxd import limits
from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import Mount, Runtime
from sandboxd.warden.server import mounts
from sandboxd.warden.server.admission import check_source
from sandboxd.warden.server.scratch import Scratch

_SHOWN = 5


def mount_workspace(
    mount: Mount, index: int, scratch: Scratch, uid: int, runtime: Runtime, private: tuple[str, ...] = ()
) -> Mount:
    """The same mount with the idmapped copy as its source. Raises SandboxdError `mount_source`,
    `workspace_sockets`, `workspace_size`, `workspace_search`, `workspace_idmap`."""
    source = open_source(mount.source, private, read_only=mount.read_only)
    try:
        refuse_sockets(source, mount.source)
        point = scratch.mount_point(index)
        mounts.mount_as(source, str(point), uid, read_only=mount.read_only, for_root=runtime == "runsc")
    finally:
        os.close(source)
    return Mount(str(point), mount.target, mount.read_only)


def open_source(path: str, private: tuple[str, ...] = (), *, read_only: bool = False) -> int:
    """A descriptor of the directory, judged by where it really is; the mount is made from it, not from the name.
    `private`: places of this host's own settings that stay outside."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxdError("mount_source", f"can't open {path}: {error.strerror}") from None
    try:
        check_source(os.readlink(f"/proc/self/fd/{fd}"), private, read_only=read_only)
    except BaseException:
        os.close(fd)
        raise
    return fd


def refuse_sockets(directory: int, name: str, most: int = limits.WORKSPACE_SCAN) -> None:
    """Refuse a directory that holds Unix sockets: each is a way out that no network rule sees (egress.md 9)."""
    try:
        found = [os.path.normpath(os.path.join(name, path)) for path in _find_sockets(directory, name, most)]
    except (OSError, RecursionError) as error:  # what can't be searched could hold one
        where = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else "too many levels"
        why = f"{name} can't be searched for sockets: {where}"
        raise SandboxdError("workspace_search", why, hint="mount a smaller directory") from None
    if found:
        shown = ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
        raise SandboxdError(
            "workspace_sockets",
            f"{name} holds Unix sockets: {shown}",
            hint="stop what listens there and remove them, or mount another directory",
        )


def _find_sockets(directory: int, name: str, most: int) -> Iterator[str]:
    seen = 0
    walk = os.fwalk(".", onerror=_raise_unless_gone, dir_fd=directory, follow_symlinks=False)
    for folder, folders, files, fd in walk:
        seen += len(folders) + len(files)
        if seen > most:
            raise SandboxdError(
                "workspace_size",
                f"{name} has more than {most} entries, too many to search for sockets",
                hint="mount a smaller directory",
            )
        yield from (os.path.join(folder, file) for file in files if stat.S_ISSOCK(_mode(file, fd)))


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _mode(file: str, directory: int) -> int:
    try:
        return os.stat(file, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0
