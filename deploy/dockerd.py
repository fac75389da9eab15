"""Docker's daemon: the gVisor runtime in its configuration, starting it where no service manager does, stopping that.

Called by `deploy/setup`. A daemon that isn't ours is never restarted, nor one with running containers.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy.console import SetupError, run, say

CONFIGURATION = Path("/etc/docker/daemon.json")
# --network=host is the sandbox's own (sealed) namespace to runsc: its own stack would not be caught by the seal.
# --oci-seccomp: otherwise our list of system calls would not hold inside it. The warden refuses it without either.
RUNSC_ARGUMENTS = ["--platform=ptrace", "--network=host", "--oci-seccomp"]
LOG = Path("/var/log/sandboxd-dockerd.log")
# The daemon that we started: its pid and start time, so that never another process is stopped.
OURS = Path("/run/sandboxd-dockerd")
START_WAIT = 60.0
# Where a daemon and its containerd note their pids: what was killed leaves them behind.
PID_FILES = {Path("/run/docker.pid"): "dockerd", Path("/run/docker/containerd/containerd.pid"): "containerd"}


def answers() -> bool:
    """Whether a daemon is there."""
    if not shutil.which("docker"):
        return False
    return subprocess.run(["docker", "version", "--format", "{{.Server.Version}}"], capture_output=True).returncode == 0


def register_runsc() -> bool:
    """Adds runsc to daemon.json while no daemon runs. True if there is nothing left to do."""
    runsc = shutil.which("runsc")
    if not runsc:
        say("no gVisor (runsc) on this host or in its apt: --runtime runsc will be refused")
        return True
    if _has_runsc():
        return True
    if answers():
        return False
    _add_runsc(runsc)
    return True


def register_runsc_later() -> None:
    """As `register_runsc`, for a daemon that runs: restarted if it is ours and idle, else it is said what to do."""
    process = _ours()
    if process is None or _busy():
        why = "containers run" if process else "it isn't ours"
        say(f"dockerd runs and is left alone ({why}); for gVisor put this into {CONFIGURATION} and restart dockerd:")
        say(f"  {json.dumps(with_runsc({}, shutil.which('runsc') or 'runsc'))}")
        return
    _add_runsc(shutil.which("runsc") or "runsc")
    stop()
    start()


def _busy() -> bool:
    return bool(subprocess.run(["docker", "ps", "-q"], capture_output=True, text=True).stdout.strip())


def _has_runsc() -> bool:
    return "runsc" in _configuration().get("runtimes", {})


def _configuration() -> dict[str, Any]:
    try:
        found = json.loads(CONFIGURATION.read_text() or "{}") if CONFIGURATION.exists() else {}
    except ValueError as error:
        raise SetupError(f"{CONFIGURATION} is not JSON: {error}", "correct it, or move it away") from None
    if not isinstance(found, dict) or not isinstance(found.get("runtimes", {}), dict):
        raise SetupError(f"{CONFIGURATION} is not what dockerd reads", "expected an object, and `runtimes` one in it")
    return found


def with_runsc(configuration: dict[str, Any], runsc: str) -> dict[str, Any]:
    """`configuration` and the runtime, unless it has one of that name already."""
    entry = {"path": runsc, "runtimeArgs": RUNSC_ARGUMENTS}
    return {**configuration, "runtimes": {"runsc": entry, **configuration.get("runtimes", {})}}


def _add_runsc(runsc: str) -> None:
    say(f"runtime runsc into {CONFIGURATION}")
    CONFIGURATION.parent.mkdir(parents=True, exist_ok=True)
    new = CONFIGURATION.with_suffix(".new")
    new.write_text(json.dumps(with_runsc(_configuration(), runsc), indent=2) + "\n")
    new.replace(CONFIGURATION)


def start() -> None:
    """A daemon that answers; by the service manager where there is one, else started here. Raises SetupError."""
    if answers():
        return
    if Path("/run/systemd/system").is_dir():
        say("systemctl enable --now docker")
        run(["systemctl", "enable", "--now", "docker"], "see `journalctl -u docker`")
    else:
        _start_here()
    if not answers():
        raise SetupError("dockerd does not answer", f"see {LOG}, or `journalctl -u docker`")


def _start_here() -> None:
    _mount_cgroups()
    forget_dead()
    if any(path.exists() for path, name in PID_FILES.items() if name == "dockerd"):
        say("waiting for the dockerd that is starting")
        _wait_until_it_answers(lambda: False)
        return
    say(f"starting dockerd, log in {LOG}")
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            ["dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    OURS.write_text(f"{process.pid} {_started(process.pid)}")
    _wait_until_it_answers(lambda: process.poll() is not None)


def forget_dead() -> None:
    """Removes pid files whose process is gone: the next process with that number would pass for a living daemon."""
    for path, name in PID_FILES.items():
        try:
            pid = int(path.read_text())
            alive = Path(f"/proc/{pid}/comm").read_text().strip() == name
        except (OSError, ValueError):
            alive = False
        if not alive:
            path.unlink(missing_ok=True)


def _wait_until_it_answers(ended: Callable[[], bool]) -> None:
    end = time.monotonic() + START_WAIT
    while not answers():
        if ended() or time.monotonic() > end:
            lines = LOG.read_text(errors="replace").splitlines() if LOG.exists() else []
            tail = "\n  ".join(line[:300] for line in lines[-8:])
            raise SetupError(f"dockerd did not come up; it says\n  {tail}", f"all of it is in {LOG}")
        time.sleep(0.1)  # its socket is there before it answers: there is no event to wait for


def _mount_cgroups() -> None:
    """Where no service manager mounted them (a bare container or virtual machine)."""
    point = Path("/sys/fs/cgroup")
    if point.is_dir() and not any(point.iterdir()):
        run(["mount", "-t", "cgroup2", "cgroup2", point], "mount cgroups by hand; Docker needs them")


def stop() -> None:
    """Stops the daemon that an earlier run started, and waits for its end. Does nothing to any other."""
    process = _ours()
    if process is None:
        say("no dockerd of ours runs")
        return
    say(f"stopping dockerd (pid {process})")
    handle = os.pidfd_open(process)
    signal.pidfd_send_signal(handle, signal.SIGTERM)
    _wait_for_end(handle)
    OURS.unlink(missing_ok=True)


def _wait_for_end(handle: int) -> None:
    ended, _, _ = select.select([handle], [], [], START_WAIT)
    os.close(handle)
    if not ended:
        raise SetupError(f"dockerd did not end within {START_WAIT:.0f} s", f"see {LOG}")


def _ours() -> int | None:
    """The pid of the daemon that we started, if it still lives."""
    try:
        pid, started = OURS.read_text().split()
        return int(pid) if _started(int(pid)) == started else None
    except (OSError, ValueError):
        return None


def _started(pid: int) -> str:
    """A process's start time, in clock ticks since boot (proc(5), field 22)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
