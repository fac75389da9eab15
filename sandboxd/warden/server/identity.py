"""Is this the container we made, is only the gate in it, is this its own namespace: asked before anything is sealed.

Each refusal has a stable code. Without these checks the host's own namespace could be sealed, or by pid reuse a
stranger's (sealing.md). `check_inspection` is pure. Called by `sandboxes`.
"""

import os
import select
from dataclasses import dataclass
from typing import Any, cast

from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import Runtime
from sandboxd.warden.server.cgroups import Cgroup, cgroup_of
from sandboxd.warden.server.engine import Engine, Json
from sandboxd.warden.server.first_process import check_gate, check_runsc, same_file
from sandboxd.warden.server.hardening import GATE

HOST_NETNS = "/proc/self/ns/net"


@dataclass(frozen=True, slots=True)
class Identity:
    """What was checked, held by descriptors, which no later process or namespace can take over."""

    pid: int
    pidfd: int
    netns: int
    cgroup: Cgroup

    def close(self) -> None:
        """Let go of process and namespace."""
        os.close(self.pidfd)
        os.close(self.netns)


def identify(engine: Engine, container: str, gate: int, runtime: Runtime, host_netns: str = HOST_NETNS) -> Identity:
    """The container's identity, or SandboxdError whose code says what is wrong. `gate`: a descriptor of the
    sandbox's own copy of the gate."""
    first = engine.inspect(container)
    check_inspection(first, container)
    pid = int(first["State"]["Pid"])
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        raise SandboxdError("process_gone", "the container's first process ended before the seal") from None
    try:
        cgroup = _check_process(engine, pid, pidfd, container, gate, runtime)
        netns = _open_netns(pid, pidfd, str(first["NetworkSettings"]["SandboxKey"]), host_netns)
    except OSError as error:
        os.close(pidfd)
        raise SandboxdError("process_gone", f"the container ended before the seal: {error.strerror}") from None
    except BaseException:
        os.close(pidfd)
        raise
    identity = Identity(pid, pidfd, netns, cgroup)
    try:
        _check_unchanged(first, engine.inspect(container))
    except BaseException:
        identity.close()
        raise
    return identity


def check_inspection(found: Json, container: str) -> None:
    """What Docker tells of the container. Pure; raises SandboxdError."""
    host = cast(Json, found["HostConfig"])
    state = cast(Json, found["State"])
    need(found["Id"] == container, "container_id", f"expected container {container}, got {found['Id']}")
    need(host["NetworkMode"] == "none", "network_mode", f"the container's network mode is {host['NetworkMode']}")
    need(not host.get("PidMode"), "pid_mode", f"the container's pid mode is {host.get('PidMode')}")
    need(not host.get("Privileged"), "privileged", "the container is privileged")
    need(not host.get("CapAdd"), "cap_add", f"the container has added capabilities {host.get('CapAdd')}")
    need(_all_dropped(host.get("CapDrop")), "cap_drop", "the container keeps capabilities")
    need(not host.get("Sysctls"), "sysctls", "the container sets sysctls")
    kinds = {mount["Type"] for mount in cast(list[Json], found.get("Mounts") or [])}
    need("volume" not in kinds, "volumes", "the container writes to a volume of Docker's, which has no bound")
    need(not host.get("Devices"), "devices", "the container has devices")
    policy = cast(Json, host.get("RestartPolicy") or {}).get("Name", "")
    need(policy in ("", "no"), "restart_policy", f"the container's restart policy is {policy}")
    test = cast(Json, found["Config"].get("Healthcheck") or {}).get("Test")
    need(test == ["NONE"], "health_check", "the container has a health check, which runs before the seal")
    started = [found.get("Path"), *cast(list[str], found.get("Args") or [])]
    need(started == [GATE], "entrypoint", "the container starts something other than the gate")
    running = state["Running"] and not state["Paused"] and not state["Restarting"] and int(state["Pid"]) > 0
    need(running, "not_running", f"the container is {state.get('Status', 'not running')}")
    fresh = str(state["FinishedAt"]).startswith("0001-") and not found["RestartCount"]
    need(fresh, "ran_before", "the container ran before: its namespace is a new, unsealed one")


def _all_dropped(dropped: Any) -> bool:
    return [str(name).upper() for name in dropped or ()] == ["ALL"]


def _check_process(engine: Engine, pid: int, pidfd: int, container: str, gate: int, runtime: Runtime) -> Cgroup:
    """The first process is in the container's group, is what it must be, and alone."""
    cgroup = cgroup_of(pid)
    need(container in str(cgroup.processes), "cgroup", "the process is not in the container's control group")
    if runtime == "runsc":
        runtimes = cast(Json, engine.info()["Runtimes"])
        check_runsc(pid, container, str(runtimes["runsc"]["path"]), cgroup)
    else:
        check_gate(pid, pidfd, gate, cgroup)
    return cgroup


def _open_netns(pid: int, pidfd: int, key: str, host_netns: str) -> int:
    """The namespace, held; it is the container's because the process still lives after the opening."""
    netns = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        ended = select.select([pidfd], [], [], 0)[0]
        need(not ended, "process_gone", "the container's first process ended before the seal")
        opened = os.fstat(netns)
        need(not same_file(opened, os.stat(host_netns)), "host_namespace", "the container is in the host's namespace")
        need(key, "not_dockers_namespace", "Docker names no namespace of the container")
        need(
            same_file(opened, os.stat(key)),
            "not_dockers_namespace",
            f"it is not the namespace that Docker made ({key})",
        )
    except BaseException:
        os.close(netns)
        raise
    return netns


def _check_unchanged(first: Json, second: Json) -> None:
    """After everything is held: still the same run."""
    for name in ("Pid", "StartedAt"):
        need(first["State"][name] == second["State"][name], "restarted", "the container was restarted meanwhile")


def need(ok: object, code: str, message: str) -> None:
    """Refuse with `code` unless `ok`."""
    if not ok:
        raise SandboxdError(code, message, hint="the sandbox is not started; `sandboxd doctor` checks the host")
