"""A guardian, a warden and a gateway of a test's own, with folders of their own and a resolver that tests decide.

The processes are forked from a thread that has a mount namespace of its own, in which another file lies over
/etc/hosts: what an allowed name "really" resolves to is a test's choice, and the machine's file is never touched.
"""

import contextlib
import ctypes
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sandboxd import channel
from sandboxd.audit.query import AuditLog
from sandboxd.audit.records import Record
from sandboxd.egress import control
from sandboxd.settings import Settings
from sandboxd.warden import protocol
from sandboxd.warden.server.guardian import fork_processes

CLONE_NEWNS = 0x20000
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
_libc = ctypes.CDLL(None, use_errno=True)


class RefusedError(AssertionError):
    """The warden or the gateway said no."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class World:
    """A client's connections to its own warden and gateway."""

    def __init__(self, settings: Settings, warden: socket.socket) -> None:
        self.settings = settings
        self.warden = warden
        self.ask(protocol.Hello())
        self.gateway = self.open_gateway()

    def ask(self, request: Any) -> Any:
        """One operation of the warden. Raises RefusedError."""
        return self.ask_for(request)[0]

    def ask_for(self, request: Any) -> tuple[Any, list[int]]:
        """One operation whose answer brings descriptors. Raises RefusedError."""
        channel.send(self.warden, request)
        answer = channel.receive(self.warden, protocol.REPLIES)
        assert answer is not None, "the warden is gone"
        if isinstance(answer[0], protocol.Refused):
            raise RefusedError(answer[0].code, answer[0].message)
        return answer

    def open_gateway(self) -> socket.socket:
        """A stream to the gateway that lives now; waits while a restarted one comes up."""
        _, (fd,) = self.ask_for(protocol.Gateway())
        return socket.socket(fileno=fd)

    def tell(self, request: Any) -> None:
        """One message to the gateway. Raises RefusedError."""
        channel.send(self.gateway, request)
        answer = channel.receive(self.gateway, control.REPLIES)
        assert answer is not None, "the gateway is gone"
        if isinstance(answer[0], control.Failed):
            raise RefusedError(answer[0].code, answer[0].message)

    def position(self) -> int:
        """Where the audit log ends now."""
        self.tell(control.Flush())
        with AuditLog(self.settings.audit_database) as log:
            return log.position()

    def records(self, sandbox: str, after: int = 0) -> list[Record]:
        """What was recorded of a sandbox behind `after`."""
        self.tell(control.Flush())
        with AuditLog(self.settings.audit_database) as log:
            return log.find(sandbox=sandbox, after=after)

    def close(self) -> None:
        """Everything it made goes with it."""
        self.gateway.close()
        self.warden.close()


@contextlib.contextmanager
def open_folders() -> Iterator[Settings]:
    """Settings with folders of their own, which other users may pass through; gone at the end."""
    base = Path(tempfile.mkdtemp(prefix="sandboxd-test-", dir="/var/tmp"))
    base.chmod(0o755)
    try:
        yield Settings(state_dir=base / "state", run_dir=base / "run")
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def open_world(settings: Settings, hosts: Mapping[str, str] | None = None) -> Iterator[World]:
    """The three processes, until the block ends. `hosts`: name → address for the gateway's resolver."""
    forked: list[Any] = []
    done, over = threading.Event(), threading.Event()

    def fork() -> None:
        # This thread outlives the processes: "parent died" means the thread that forked, not the process.
        try:
            _own_hosts(hosts or {})
            forked.append(fork_processes(settings))
        except BaseException as error:
            forked.append(error)
        done.set()
        over.wait()

    thread = threading.Thread(target=fork, daemon=True)
    thread.start()
    done.wait()
    if isinstance(forked[0], BaseException):
        raise forked[0]
    world = World(settings, forked[0])
    try:
        yield world
    finally:
        world.close()
        _wait_for_end(settings)
        over.set()
        thread.join()


def _own_hosts(hosts: Mapping[str, str]) -> None:
    """Leave this thread in a mount namespace where /etc/hosts says `hosts`; mounts of the machine still arrive."""
    _must(_libc.unshare(CLONE_NEWNS), "unshare")
    _must(_libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None), "make mounts one-way")
    with tempfile.NamedTemporaryFile("w", prefix="hosts-", delete=False) as file:
        file.write("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in hosts.items()))
    os.chmod(file.name, 0o644)
    _must(_libc.mount(file.name.encode(), b"/etc/hosts", None, MS_BIND, None), "bind hosts")
    os.unlink(file.name)


def _must(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), what)


def _wait_for_end(settings: Settings) -> None:
    """Until the guardian, a child of this process, is reaped by whoever forked it."""
    del settings
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
