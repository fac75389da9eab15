"""What a client may ask of a container: every field of a ContainerSpec is checked again here, whoever asks. Pure.

Not here: what the host's files say (`workspace`), nor the hardening, which no spec can change. Called by
`sandboxes` before anything is made.
"""

import os
import posixpath
import re
from pathlib import PurePosixPath

from sandboxd import limits
from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import ContainerSpec, Mount, Resources

_SANDBOX = re.compile(r"sb-[0-9a-f]{16}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/@+-]{0,127}")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}")

# Inside, these are the image's, the kernel's or ours: nothing of the host may cover them.
_TAKEN_TARGETS = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr"),
    *("/var/run", "/.sandboxd"),
)
# On the host, neither these nor anything in them, nor what contains them, may be seen from inside.
_SECRET_SOURCES = (
    *("/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/var/run", "/root/.ssh", "/root/.docker"),
    *("/var/lib/docker", "/var/lib/containerd", "/var/lib/sandboxd", "/usr/local/lib/sandboxd"),
)
# What root runs or the system is made of: to be read, perhaps, but never written from inside.
_SYSTEM_SOURCES = (
    *("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr"),
    *("/var/cache", "/var/lib/apt", "/var/lib/dpkg", "/var/lib/systemd", "/var/log", "/var/spool"),
)
_BOUNDS = {
    "memory": (limits.MEMORY_LEAST, limits.MEMORY_MOST),
    "cpus": (0.01, float(os.cpu_count() or 1)),  # Docker takes no more than there are
    "pids": (2, 32768),
    "nofile": (16, 1 << 20),
    "tmp": (limits.KIB, limits.MEMORY_MOST),
}
_BOUNDS_HINT = "choose within these: --memory, --cpus, --pids, or a policy's resources"


def check_spec(spec: ContainerSpec) -> None:
    """Raises SandboxdError `bad_spec`, `bad_resources`, `mount_target`, `mount_source` or `build_mounts`."""
    _need(_SANDBOX.fullmatch(spec.sandbox), "bad_spec", "sandbox: expected sb- and 16 hex digits")
    _need(_LABEL.fullmatch(spec.agent), "bad_spec", "agent: expected 1 to 128 plain characters")
    _need(_LABEL.fullmatch(spec.workload), "bad_spec", "workload: expected 1 to 128 plain characters")
    _need(_IMAGE.fullmatch(spec.image), "bad_spec", f"not an image's name: {spec.image[:80]!r}")
    _check_resources(spec.resources)
    _need(len(spec.mounts) <= limits.MOUNTS, "bad_spec", f"more than {limits.MOUNTS} mounts")
    for mount in spec.mounts:
        check_target(mount)
        check_source(mount.source, read_only=mount.read_only)
    targets = [posixpath.normpath(m.target) for m in spec.mounts]
    _need(len(set(targets)) == len(targets), "mount_target", "two mounts have the same target")
    _check_build(spec)


def check_target(mount: Mount) -> None:
    """A mount's place inside. Raises SandboxdError `mount_target`."""
    target = _plain_path(mount.target, "mount_target", "target")
    _need(
        not _near(target, _TAKEN_TARGETS),
        "mount_target",
        f"a mount can't be at {mount.target}",
        "choose a directory such as /workspace",
    )


def check_source(source: str, private: tuple[str, ...] = (), *, read_only: bool = False) -> None:
    """A host directory by its name alone; `workspace` asks again with links resolved. `private`: more places that
    stay outside. Raises `mount_source`."""
    path = _plain_path(source, "mount_source", "source")
    if not read_only and (near := _near(path, _SYSTEM_SOURCES)):
        raise SandboxdError(
            "mount_source",
            f"{source} can't be mounted writable: {near[0]} is the system's",
            hint="mount the project's own directory, or this one read-only",
        )
    if near := _near(path, (*_SECRET_SOURCES, *private)):
        raise SandboxdError(
            "mount_source",
            f"{source} can't be mounted: {near[0]} stays outside every sandbox",
            hint="mount the project's own directory",
        )


def _near(path: PurePosixPath, places: tuple[str, ...]) -> list[str]:
    """Those that it is, lies in, or contains."""
    others = [PurePosixPath(place) for place in places]
    return [str(other) for other in others if path == other or other in path.parents or path in other.parents]


def _plain_path(text: str, code: str, what: str) -> PurePosixPath:
    ok = text.startswith("/") and not any(ord(c) < 32 or ord(c) == 127 for c in text) and len(text) < 4096
    ok = ok and not text.startswith("//")  # POSIX keeps two slashes apart, so that //etc would not be near /etc
    _need(ok and posixpath.normpath(text) == (text.rstrip("/") or "/"), code, f"{what}: expected a plain absolute path")
    return PurePosixPath(text)


def _check_resources(resources: Resources) -> None:
    for name, (least, most) in _BOUNDS.items():
        value = getattr(resources, name)
        _need(least <= value <= most, "bad_resources", f"{name}: {value} is not within {least} to {most}", _BOUNDS_HINT)


def _check_build(spec: ContainerSpec) -> None:
    _need(spec.build or not spec.files, "bad_spec", "files belong to a build")
    _need(not (spec.build and spec.trust), "bad_spec", "a build trusts what its image does")
    _need(not (spec.build and spec.mounts), "build_mounts", "a build mounts nothing of the host")
    _need(not spec.build or spec.runtime == "runc", "bad_spec", "a build runs under runc")
    total = sum(len(name) + len(text) for name, text in spec.files.items())
    _need(
        len(spec.files) <= limits.BUILD_FILES and total <= limits.BUILD_FILES_SIZE,
        "bad_spec",
        f"files of a build: more than {limits.BUILD_FILES}, or more than {limits.BUILD_FILES_SIZE} bytes",
    )
    for name in spec.files:
        path = _plain_path(name, "bad_spec", "file of a build")
        _need(len(path.parts) > 2 and not _near(path, _TAKEN_TARGETS), "bad_spec", f"a build's file can't be at {name}")


def _need(ok: object, code: str, message: str, hint: str = "") -> None:
    if not ok:
        raise SandboxdError(code, message, hint=hint)
