"""Mount system calls that Python lacks: an idmapped, private copy of one directory, and taking it away again.

Not here: which directory may be mounted (`workspace`). Called by `workspace` and `scratch`.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Generator

from sandboxd.errors import SandboxdError

# The same numbers on every architecture that came after 2011 (include/uapi/asm-generic/unistd.h), and on x86-64.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_EMPTY_PATH = 0x1000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_RDONLY, _NOSUID, _NODEV, _IDMAP = 0x1, 0x2, 0x4, 0x100000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_MS_PRIVATE = 1 << 18
_NOBODY = 65534

_TOOLS = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # whatever PATH the client was started with
_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def mount_as(source: int, point: str, uid: int, *, read_only: bool, for_root: bool) -> None:
    """Mount the directory of descriptor `source` (itself alone, nothing mounted below it) at `point`, so that its
    owner appears as `uid` and what `uid` makes belongs to the owner. Neither set-id bits nor devices work there.

    `for_root`: root may make files there too, which are nobody's outside: gVisor makes each as root, then gives it
    away. Raises SandboxdError `workspace_idmap` where the file system can't.
    """
    owner = os.fstat(source)
    tables = [id_table(outside, uid, for_root=for_root) for outside in (owner.st_uid, owner.st_gid)]
    with open_user_namespace(*tables) as userns:
        tree = _call(_OPEN_TREE, source, b"", _AT_EMPTY_PATH | _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC)
        try:
            attributes = _NOSUID | _NODEV | _IDMAP | (_RDONLY if read_only else 0)
            attr = _MountAttr(attributes, 0, _MS_PRIVATE, userns)
            _call(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(attr), ctypes.sizeof(attr))
            _call(_MOVE_MOUNT, tree, b"", -100, os.fsencode(point), _MOVE_MOUNT_F_EMPTY_PATH)
        except OSError as error:
            raise SandboxdError(
                "workspace_idmap",
                f"the directory can't be given to the sandbox's user: {error.strerror}",
                hint="its file system must support idmapped mounts (ext4, xfs, btrfs, tmpfs; Linux 5.12 or newer)",
            ) from None
        finally:
            os.close(tree)


def unmount(point: str) -> None:
    """Take away every mount at `point`; idempotent, links are not followed."""
    while _libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0:
        pass


def id_table(outside: int, inside: int, *, for_root: bool) -> str:
    """A user namespace's table, for an idmapped mount: id on the disk, id in the mount, count. Pure."""
    nobody = _NOBODY if outside != _NOBODY else _NOBODY - 1
    return f"{outside} {inside} 1\n" + (f"{nobody} 0 1\n" if for_root else "")


@contextlib.contextmanager
def open_user_namespace(users: str, groups: str) -> Generator[int]:
    """A descriptor of a user namespace with exactly these tables."""
    import subprocess  # late: only a workspace needs it

    # unshare needs a process of one thread; `cat` answers from inside the new namespace, and ends with its input.
    with subprocess.Popen(
        ["unshare", "--user", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_TOOLS
    ) as holder:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write(b".")
        holder.stdin.flush()
        if holder.stdout.read(1) != b".":
            raise SandboxdError("workspace_idmap", "no user namespace can be made", hint="see `sandboxd doctor`")
        for name, lines in (("uid_map", users), ("gid_map", groups)):
            with open(f"/proc/{holder.pid}/{name}", "w") as table:
                table.write(lines)
        fd = os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        holder.stdin.close()
        try:
            yield fd
        finally:
            os.close(fd)


def _call(number: int, *arguments: object) -> int:
    result = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, errno.errorcode.get(code, "?") + ": " + os.strerror(code))
    return result
