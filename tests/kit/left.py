"""What a run may leave behind, as a set of names, and the wait until nothing of it is left.

A run is told from everything else on the machine by its settings file: each test gives it folders of its own, and the
processes of `sandboxd run` carry the file's path in their environment. What is counted: containers and the processes
in their cgroups, network namespaces, our own processes, mounts, scratch files, claimed user ids.
"""

import contextlib
import http.client
import json
import os
import re
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Names that our processes give themselves, as /proc shows them: 15 bytes.
ROLES = {"sandboxd-guard": "guardian", "sandboxd-warden": "warden", "sandboxd-gate-w": "gateway"}
_ENDED = (FileNotFoundError, ProcessLookupError, PermissionError, NotADirectoryError)


class _Engine(http.client.HTTPConnection):
    """Docker's API over its socket; a test must not depend on the code it tests."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/var/run/docker.sock")


def engine(method: str, path: str, body: Any = None) -> Any:
    """One request to Docker; its JSON answer, None where there is no body. Raises AssertionError on an error."""
    connection = _Engine("docker")
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 400, f"{method} {path}: {answer.status} {text[:300]!r}"
        return json.loads(text) if text else None
    finally:
        connection.close()


@dataclass
class Scope:
    """One test's sandboxes: `settings` is the path its processes carry, `run_dir` and `state_dir` are its own.

    `seen` remembers every container, so that what outlives its container is still found.
    """

    settings: Path
    run_dir: Path
    seen: dict[str, "Seen"] = field(default_factory=dict)

    def look(self) -> set[str]:
        """Everything of this scope that exists now, each as a readable name."""
        containers = self._containers()
        found = {f"container {identity[:12]} ({state})" for identity, state in containers.items()}
        found |= {f"process {pid} {words}" for pid, words in self._processes()}
        found |= {f"scratch {path}" for path in self._scratch()}
        found |= {f"mount {point}" for point in mounts() if point.startswith(f"{self.run_dir}/")}
        names = unix_names()
        for seen in self.seen.values():
            found |= {f"user id {seen.uid} claimed"} if any(f"sandboxd/uid/{seen.uid}" in n for n in names) else set()
            found |= {f"workload {pid}" for pid in pids_of_container(seen.container)}
            held = holders(seen.namespace, seen.noted)
            found |= {f"namespace {seen.namespace} held by {pid}" for pid in held}
        return found

    def roles(self, client: int) -> dict[str, int]:
        """The pids of a run that lives, by role; `client`: the process that started it."""
        found = {"client": client}
        for pid, words in self._processes():
            if parent_of(pid) == client:
                found["controller"] = pid
            for name, role in ROLES.items():
                if words.startswith(name):
                    found[role] = pid
        return found

    def _containers(self) -> dict[str, str]:
        """Ours by the folder their gate is mounted from, whatever their labels say."""
        found: dict[str, str] = {}
        for entry in engine("GET", "/containers/json?all=true"):
            sources = [mount.get("Source", "") for mount in entry.get("Mounts", [])]
            if any(source.startswith(f"{self.run_dir}/") for source in sources):
                found[entry["Id"]] = entry["State"]
                if entry["Id"] not in self.seen or not self.seen[entry["Id"]].namespace:
                    self.seen[entry["Id"]] = _see(entry)
        return found

    def _processes(self) -> Iterator[tuple[int, str]]:
        wanted = f"SANDBOXD_SETTINGS={self.settings}".encode()
        for pid in pids():
            with contextlib.suppress(*_ENDED):
                if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    yield pid, Path(f"/proc/{pid}/comm").read_text().strip()

    def _scratch(self) -> list[Path]:
        return sorted(self.run_dir.rglob("*")) if self.run_dir.exists() else []


@dataclass(frozen=True, slots=True)
class Seen:
    """A container that existed: its id, its network namespace's inode (0: it did not run), its user id, and when that
    was noted, in clock ticks since the machine started."""

    container: str
    namespace: int
    uid: str
    noted: float


def _see(entry: dict[str, Any]) -> Seen:
    namespace = 0
    running = pids_of_container(entry["Id"])
    with contextlib.suppress(OSError, IndexError):
        found = os.stat(f"/proc/{running[0]}/ns/net").st_ino
        # While runc makes the container, its process is in the container's cgroup and still in the host's namespace.
        namespace = found if found != os.stat("/proc/self/ns/net").st_ino else 0
    return Seen(entry["Id"], namespace, entry["Labels"].get("sandboxd.uid", "none"), ticks())


def parent_of(pid: int) -> int:
    """0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except _ENDED:
        return 0


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def pids_of_container(identity: str) -> list[int]:
    """Every process in the container's cgroup."""
    found: list[int] = []
    for pid in pids():
        with contextlib.suppress(*_ENDED):
            if identity in Path(f"/proc/{pid}/cgroup").read_text():
                found.append(pid)
    return found


def holders(namespace: int, noted: float) -> list[int]:
    """Processes in that network namespace, or with a descriptor of it, that began before it was `noted`: a number is
    given again once its namespace is gone, and what began later is in that other one."""
    found: list[int] = []
    for pid in pids() if namespace else []:
        with contextlib.suppress(*_ENDED):
            links = [f"/proc/{pid}/ns/net", *(f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))]
            if began(pid) <= noted and any(_inode(link) == namespace for link in links):
                found.append(pid)
    return found


def ticks() -> float:
    """Now, as `began` counts."""
    return float(Path("/proc/uptime").read_text().split()[0]) * os.sysconf("SC_CLK_TCK")


def began(pid: int) -> float:
    """When a process started, in clock ticks since the machine did."""
    return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def _inode(link: str) -> int:
    try:
        match = re.fullmatch(r"net:\[(\d+)\]", os.readlink(link))
    except OSError:
        return 0
    return int(match[1]) if match else 0


def mounts() -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def unix_names() -> list[str]:
    rows = Path("/proc/net/unix").read_text().splitlines()[1:]
    return [row.split()[-1] for row in rows if len(row.split()) > 7]


def wait_until_nothing(scope: Scope, seconds: float) -> set[str]:
    """Look until nothing is left or the time is over; what was left. A wait, not a measurement."""
    end = time.monotonic() + seconds
    left = scope.look()
    while left and time.monotonic() < end:
        select.select([], [], [], 0.1)  # nothing announces that a thing is gone
        left = scope.look()
    return left
