"""From a ContainerSpec to the body of Docker's create call: the hardening of every sandbox, in one place. Pure.

A spec chooses image, limits and mounts; everything that isolates is fixed here. Called by `sandboxes`, and tested
against golden files.
"""

import posixpath
from dataclasses import dataclass
from typing import Any

from sandboxd.warden.protocol import JAVA_ROOTS, ROOTS, ContainerSpec, Mount

GATE = "/.sandboxd/gate"
HOME = "/home/sandbox"
# Files of the scratch directory that cover the image's (sealing.md: the resolver is ours alone).
COVERED = {"gate": GATE, "resolv.conf": "/etc/resolv.conf", "hosts": "/etc/hosts", "passwd": "/etc/passwd"} | {
    "group": "/etc/group"
}
# The same where the sandbox trusts an authority of its own. Programs that heed no variable look into the second place.
TRUSTED = {"roots.pem": (ROOTS, "/etc/ssl/certs/ca-certificates.crt"), "roots.p12": (JAVA_ROOTS,)}


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose container it is: the warden's pid and its start time in clock ticks since boot (/proc/PID/stat)."""

    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Made:
    """What the warden made and found out for one sandbox. `scratch`: host directory of the covering files;
    `mounts`: the spec's, each with the source to bind; `volumes`: places that the image declares as volumes."""

    uid: int
    image: str
    volumes: tuple[str, ...]
    scratch: str
    mounts: tuple[Mount, ...]
    owner: Owner
    run: str
    seccomp: str


def container_name(sandbox: str) -> str:
    """The container's name: labels can come from an image, a name can't."""
    return f"sandboxd-{sandbox}"


def create_body(spec: ContainerSpec, made: Made) -> dict[str, Any]:
    """What Docker is asked for."""
    user = f"{made.uid}:{made.uid}"
    return {
        "Image": made.image,
        "Entrypoint": [GATE],
        "Cmd": [],
        "Env": [],
        "User": user,
        "WorkingDir": "/",  # the image's could be a link into a mount; the gate changes directory itself
        "Hostname": "sandbox",
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Healthcheck": {"Test": ["NONE"]},  # an image's would run before the seal
        "Labels": labels(spec, made),
        "HostConfig": _host_config(spec, made),
    }


def labels(spec: ContainerSpec, made: Made) -> dict[str, str]:
    """By these a sandbox is found, adopted or reaped."""
    return {
        "sandboxd.sandbox": spec.sandbox,
        "sandboxd.agent": spec.agent,
        "sandboxd.workload": spec.workload,
        "sandboxd.run": made.run,
        "sandboxd.owner": str(made.owner.pid),
        "sandboxd.owner-start": str(made.owner.start),
        "sandboxd.uid": str(made.uid),
    }


def _host_config(spec: ContainerSpec, made: Made) -> dict[str, Any]:
    r = spec.resources
    return {
        "NetworkMode": "none",
        "Runtime": spec.runtime,
        "AutoRemove": True,
        "Init": False,  # the gate is init
        "Privileged": False,
        "ReadonlyRootfs": not spec.build,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true", f"seccomp={made.seccomp}"],
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},  # a restarted container would be a new, unsealed namespace
        "Memory": r.memory,
        "MemorySwap": r.memory,  # memory and swap together: no swap
        "NanoCpus": round(r.cpus * 1e9),
        "PidsLimit": r.pids,
        "Ulimits": [_ulimit("core", 0), _ulimit("nofile", r.nofile)],
        "ShmSize": r.tmp,
        "Tmpfs": _tmpfs(spec, made),
        "Mounts": [*_covering(spec, made), *(_bind(m.source, m.target, m.read_only) for m in made.mounts)],
    }


def _tmpfs(spec: ContainerSpec, made: Made) -> dict[str, str]:
    """An image's volumes would stay writable on the host's disk: each is covered. All belong to the sandbox's user:
    runc gives a tmpfs the mode of the image's directory, whatever is asked for."""
    options = f"rw,exec,nosuid,nodev,size={spec.resources.tmp},uid={made.uid},gid={made.uid}"
    mounted = {_plain(mount.target) for mount in made.mounts}
    places = {"/tmp": "1777"} | {_plain(v): "1777" for v in made.volumes} | {HOME: "0700"}  # noqa: S108
    return {path: f"{options},mode={mode}" for path, mode in places.items() if path not in mounted}


def _plain(path: str) -> str:
    """As Docker cleans it; normpath keeps two slashes in front."""
    return "/" + posixpath.normpath(path).lstrip("/")


def _covering(spec: ContainerSpec, made: Made) -> list[dict[str, Any]]:
    places = list(COVERED.items())
    if spec.trust:
        places += [(name, target) for name, targets in TRUSTED.items() for target in targets]
    return [_bind(f"{made.scratch}/{name}", target, True) for name, target in places]


def _bind(source: str, target: str, read_only: bool) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Soft": value, "Hard": value}
