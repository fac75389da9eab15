"""A Docker daemon of the tests' own, with gVisor registered: the host's is left as it is."""

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from pathlib import Path

RUNSC_ARGUMENTS = ("--platform=ptrace", "--network=host", "--oci-seccomp")


@contextlib.contextmanager
def open_dockerd(runsc_arguments: Sequence[str] = RUNSC_ARGUMENTS) -> Generator[Path]:
    """The path of its socket, once it answers; it is ended and its data removed."""
    runsc = shutil.which("runsc")
    assert runsc, "gVisor is not installed: apt install runsc"
    # Not in pytest's folder: the path of a Unix socket is short.
    folder = Path(tempfile.mkdtemp(prefix="sandboxd-dockerd-"))
    path = folder / "docker.sock"
    runtimes = {"runsc": {"path": runsc, "runtimeArgs": list(runsc_arguments)}}
    (folder / "daemon.json").write_text(json.dumps({"runtimes": runtimes}))
    options = {"config-file": "daemon.json", "data-root": "data", "exec-root": "exec", "pidfile": "pid"}
    # In a network namespace of its own: a daemon without a bridge takes the host's docker0 away.
    command = [
        "unshare",
        "--net",
        "dockerd",
        "-H",
        f"unix://{path}",
        "--bridge=none",
        "--iptables=false",
        "--ip-forward=false",
    ]
    command += [f"--{name}={folder / value}" for name, value in options.items()]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as daemon:
        try:
            _wait_until_it_answers(path, daemon)
            yield path
        finally:
            daemon.terminate()
    shutil.rmtree(folder, ignore_errors=True)


def _wait_until_it_answers(path: Path, daemon: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert daemon.poll() is None, (path.parent / "log").read_text()[-2000:]
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
            sock.connect(str(path))
            return
        time.sleep(0.05)
    raise AssertionError((path.parent / "log").read_text()[-2000:])


def copy_images(path: Path, *names: str) -> None:
    """From the host's daemon to this one."""
    with subprocess.Popen(["docker", "save", *names], stdout=subprocess.PIPE) as save:
        load = ["docker", "-H", f"unix://{path}", "load", "-q"]
        subprocess.run(load, stdin=save.stdout, check=True, capture_output=True)
    assert save.returncode == 0
