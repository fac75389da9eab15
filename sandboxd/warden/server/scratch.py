"""A sandbox's scratch directory: its own copy of the gate and the files that cover the image's.

Lives from Create until the container has started: its mounts keep the inodes. One directory a warden, named after its
pid and start time, one a sandbox in it, so that whoever comes later sees whose it was. Removal never recurses: a
workspace may still be mounted in there. Called by `sandboxes`, and by `reap` for the dead.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import NAMESERVER
from sandboxd.warden.server import mounts
from sandboxd.warden.server.hardening import COVERED, HOME, TRUSTED, Owner
from sandboxd.warden.server.trust import Roots


@dataclass(frozen=True, slots=True)
class Scratch:
    """`path`: the directory; `gate`: an open descriptor of the gate's copy, which keeps its inode from being reused;
    `roots`: what is written once the sandbox's authority is known, where it has one."""

    path: Path
    gate: int
    roots: Roots | None = None

    def mount_point(self, index: int) -> Path:
        """A new empty directory for the spec's mount of that number."""
        point = self.path / f"mount-{index}"
        point.mkdir(mode=0o700)
        return point

    def remove(self) -> None:
        """Unmount and unlink all of it; idempotent. The gate's descriptor stays open."""
        remove_directory(self.path)

    def close(self) -> None:
        """Remove it, and let go of the gate's inode."""
        self.remove()
        if self.roots is not None:
            self.roots.close()
        with contextlib.suppress(OSError):
            os.close(self.gate)


def warden_directory(run_dir: Path, owner: Owner) -> Path:
    """Where a warden keeps its sandboxes' scratch directories."""
    return run_dir / f"{owner.pid}-{owner.start}"


def make_scratch(directory: Path, sandbox: str, gate: Path, uid: int, *, trust: bool = False) -> Scratch:
    """The files of one sandbox, readable by any user inside. Raises SandboxdError `gate_missing`, `run_dir`."""
    path = directory / sandbox
    try:
        path.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise _no_room(path, error) from None
    try:
        if os.statvfs(path).f_flag & os.ST_NOEXEC:
            raise SandboxdError("run_dir", f"{path} is mounted noexec", hint="set run_dir in the settings file")
        for name, text in covering_files(uid).items():
            _write(path / name, text)
        roots = Roots(*(path / name for name in TRUSTED)) if trust else None
        return Scratch(path, _copy_gate(gate, path / "gate"), roots)
    except BaseException as error:
        remove_directory(path)
        if isinstance(error, OSError):
            raise _no_room(path, error) from None
        raise


def covering_files(uid: int) -> dict[str, str]:
    """What covers the image's files: our resolver alone, and names for the sandbox's own id."""
    return {
        "resolv.conf": f"nameserver {NAMESERVER}\noptions ndots:0\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "passwd": f"root:x:0:0:root:/root:/bin/sh\nsandbox:x:{uid}:{uid}:sandbox:{HOME}:/bin/sh\n",
        "group": f"root:x:0:\nsandbox:x:{uid}:\n",
    }


def remove_directory(path: Path) -> None:
    """Unmount, unlink and rmdir what `make_scratch` and `mount_point` made, and the warden's directory with its last
    sandbox; idempotent, nothing deeper is touched."""
    for point in path.glob("mount-*"):
        mounts.unmount(str(point))
        with contextlib.suppress(OSError):
            point.rmdir()
    for name in (*COVERED, *TRUSTED):
        with contextlib.suppress(OSError):
            (path / name).unlink()
    with contextlib.suppress(OSError):
        path.rmdir()
        path.parent.rmdir()


def _no_room(path: Path, error: OSError) -> SandboxdError:
    return SandboxdError(
        "run_dir", f"can't write {path}: {error.strerror}", hint="free space there, or set run_dir in the settings file"
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o444)


def _copy_gate(gate: Path, to: Path) -> int:
    try:
        to.write_bytes(gate.read_bytes())
    except FileNotFoundError:
        raise SandboxdError("gate_missing", f"no gate at {gate}", hint="deploy/setup builds it") from None
    to.chmod(0o555)
    return os.open(to, os.O_RDONLY | os.O_CLOEXEC)
