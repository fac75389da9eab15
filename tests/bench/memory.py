"""What processes and containers take: proportional set sizes, so that shared pages are counted once."""

from pathlib import Path

from tests.bench.ways import IMAGE
from tests.kit.command import Command
from tests.kit.left import engine, parent_of, pids


def tree_of(pid: int) -> list[int]:
    """The process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for each in pids():
        parent = parent_of(each)
        parents.setdefault(parent, []).append(each)
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        found.append(one)
        todo += parents.get(one, [])
    return found


def proportional_bytes(processes: list[int]) -> int:
    """The sum of their proportional set sizes."""
    total = 0
    for pid in processes:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def containers_of(way: str, command: Command) -> list[tuple[int, str]]:
    """The engine's helper process and the id of each container that was started that way."""
    found: list[tuple[int, str]] = []
    for entry in engine("GET", "/containers/json"):
        ours = any(mount.get("Source", "").startswith(f"{command.scope.run_dir}/") for mount in entry["Mounts"])
        if ours if way == "run" else not entry["Mounts"] and entry["Image"].split(":")[0] == IMAGE:
            inspected = engine("GET", f"/containers/{entry['Id']}/json")
            found.append((parent_of(inspected["State"]["Pid"]), entry["Id"]))
    return found


def container_bytes(identity: str) -> int:
    """What the container's cgroup is charged, anonymous and file pages."""
    for place in (f"/sys/fs/cgroup/memory/docker/{identity}/memory.usage_in_bytes",
                  f"/sys/fs/cgroup/system.slice/docker-{identity}.scope/memory.current",
                  f"/sys/fs/cgroup/docker/{identity}/memory.current"):  # fmt: skip
        if Path(place).exists():
            return int(Path(place).read_text())
    raise FileNotFoundError(f"no memory cgroup of container {identity}")
