"""A build's files, and the image that it becomes.

The image gets neither the build's environment (it came with the gate's orders) nor its files, and starts nothing by
itself: run by anyone else's `docker run` it ends at once. Called by `sandboxes`.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from sandboxd.errors import SandboxdError
from sandboxd.warden.server.engine import Engine
from sandboxd.warden.server.identity import Identity
from sandboxd.warden.server.root import open_in_root, open_root

_NAME = re.compile(r"([a-z0-9]+(?:[._/-]+[a-z0-9]+)*):([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})")
_LABEL = re.compile(r"sandboxd\.[a-z0-9.-]{1,64}")
_CONTAINER_LABELS = ("sandbox", "agent", "workload", "run", "owner", "owner-start", "uid")


def pack_files(files: Mapping[str, str], uid: int) -> bytes:
    """A tar of the files and the directory of each, owned by `uid`. Pure."""
    import tarfile  # late: not on the path of a start

    def entry(name: str, mode: int, kind: bytes) -> tarfile.TarInfo:
        made = tarfile.TarInfo(name.lstrip("/"))
        made.uid = made.gid = uid
        made.mode, made.type = mode, kind
        return made

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in sorted({str(PurePosixPath(name).parent) for name in files}):
            tar.addfile(entry(folder, 0o755, tarfile.DIRTYPE))
        for name, text in files.items():
            data = text.encode()
            file = entry(name, 0o644, tarfile.REGTYPE)
            file.size = len(data)
            tar.addfile(file, io.BytesIO(data))
    return out.getvalue()


def drop_files(identity: Identity, files: Iterable[str]) -> None:
    """Unlink the build's files from the container's root. Links inside lead nowhere but inside: the kernel resolves
    every name within that root."""
    with open_root(identity) as root:
        try:
            for name in files:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    _unlink_in_root(root, PurePosixPath(name))
        except OSError as error:
            raise SandboxdError("build_files", f"the build's files can't be removed: {error.strerror}") from None


def _unlink_in_root(root: int, path: PurePosixPath) -> None:
    folder = open_in_root(root, str(path.parent))
    try:
        os.unlink(path.name, dir_fd=folder)
    finally:
        os.close(folder)


def commit(engine: Engine, container: str, name: str, labels: Mapping[str, str]) -> str:
    """The container as image `name` (repository:tag); the new image's id. Raises SandboxdError `image_name`."""
    match = _NAME.fullmatch(name)
    if not match:
        raise SandboxdError("image_name", f"not an image's name: {name[:80]!r}", hint="expected repository:tag")
    return engine.commit(container, match[1], match[2], image_config(labels))


def image_config(labels: Mapping[str, str]) -> dict[str, object]:
    """What a committed image says of itself. Docker merges it over the container's: what is left empty here would
    be taken from there. Pure; raises SandboxdError `image_label`."""
    for label in labels:
        if not _LABEL.fullmatch(label) or label.removeprefix("sandboxd.") in _CONTAINER_LABELS:
            raise SandboxdError(
                "image_label", f"not a label for an image: {label[:80]!r}", hint="expected sandboxd.NAME"
            )
    blank = {f"sandboxd.{label}": "" for label in _CONTAINER_LABELS}
    return {
        "Entrypoint": ["/bin/false"],
        "Cmd": [],
        "User": "65534:65534",
        "WorkingDir": "/",
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {**blank, **labels},
    }
