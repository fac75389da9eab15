"""What no living warden owns any more is removed: containers, mounts, scratch directories.

A container is ours when its name and its label say the same (labels alone can come from an image), and ownerless when
no process of that pid and start time lives. The same function serves a warden's start and the guardian after its
warden's death. Nothing else is ever touched.
"""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

from sandboxd import pids
from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import ContainerInfo
from sandboxd.warden.server.engine import Engine, Json
from sandboxd.warden.server.hardening import Owner, container_name
from sandboxd.warden.server.scratch import remove_directory

_SANDBOX_LABEL = "sandboxd.sandbox"
_DIRECTORY = re.compile(r"(\d+)-(\d+)")


def lives(owner: Owner) -> bool:
    """Whether that very process still runs."""
    return pids.lives(owner.pid, owner.start)


def reap(engine: Engine, run_dir: Path, alive: Callable[[Owner], bool] = lives) -> int:
    """Remove what is ownerless; how many containers and directories went. Raises SandboxdError where Docker can't be
    asked; the directories are gone by then."""
    gone = reap_directories(run_dir, alive)
    for found in engine.containers(_SANDBOX_LABEL):
        owner = owner_of(found)
        if owner and not alive(owner):
            with contextlib.suppress(SandboxdError):  # the next start tries again
                engine.remove(str(found["Id"]))
                gone += 1
    return gone


def reap_directories(run_dir: Path, alive: Callable[[Owner], bool] = lives) -> int:
    """Dead wardens' scratch directories with what is mounted in them; how many went."""
    gone = 0
    for directory in run_dir.glob("*-*"):
        match = _DIRECTORY.fullmatch(directory.name)
        if not match or alive(Owner(int(match[1]), int(match[2]))):
            continue
        with contextlib.suppress(OSError):  # another reaper was faster: the rest must go all the same
            for scratch in directory.iterdir():
                remove_directory(scratch)  # the last one takes the directory along
            directory.rmdir()
        gone += not directory.exists()
    return gone


def owner_of(found: Json) -> Owner | None:
    """The warden that made a container of Docker's listing; None where it is not surely ours. Pure."""
    labels = cast(dict[str, str], found.get("Labels") or {})
    sandbox = labels.get(_SANDBOX_LABEL, "")
    named = f"/{container_name(sandbox)}" in (found.get("Names") or [])
    try:
        owner = Owner(int(labels["sandboxd.owner"]), int(labels["sandboxd.owner-start"]))
    except (KeyError, ValueError):
        return None
    return owner if sandbox and named else None


def list_containers(engine: Engine) -> tuple[ContainerInfo, ...]:
    """Every container of ours, whoever made it."""
    return tuple(
        container_info(found, owner) for found in engine.containers(_SANDBOX_LABEL) if (owner := owner_of(found))
    )


def container_info(found: Json, owner: Owner) -> ContainerInfo:
    """One entry of Docker's listing as ours."""
    labels = found["Labels"]
    return ContainerInfo(
        sandbox=labels[_SANDBOX_LABEL],
        container=str(found["Id"]),
        agent=labels.get("sandboxd.agent", ""),
        workload=labels.get("sandboxd.workload", ""),
        image=str(found["Image"]),
        state=str(found["State"]),
        owner=owner.pid,
        alive=lives(owner),
    )
