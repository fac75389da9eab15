"""A guardian, a warden and a gateway of a test's own, with folders of their own and a resolver that tests decide.

The processes are forked from a thread of this process, which stays until they have ended: to the kernel "the parent
died" means the thread that forked. Not here: what a controller does with them (`tests.kit.box`).
"""

import asyncio
import contextlib
import ipaddress
import itertools
import os
import pwd
import select
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sandboxd import channel, ids
from sandboxd.audit.query import AuditLog
from sandboxd.audit.records import Record
from sandboxd.audit.store import open_sink
from sandboxd.clock import SystemClock
from sandboxd.egress import control
from sandboxd.egress.gateway.process import serve
from sandboxd.egress.gateway.resolver import ResolveError, Resolver, ResolverShare
from sandboxd.egress.gateway.sandboxes import Equipment
from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.hosts import load_suffix_list
from sandboxd.settings import Settings
from sandboxd.warden import protocol
from sandboxd.warden.server.guardian import fork_processes


class FixedResolver(Resolver):
    """In the host resolver's place: `hosts` is all there is. Name → address, `A, B` for both in one answer, `A | B`
    for the one and then the other."""

    def __init__(self, hosts: Mapping[str, str]) -> None:
        super().__init__()
        self._hosts = {
            name: itertools.cycle(tuple(packed(address) for address in answer.split(",")) for answer in text.split("|"))
            for name, text in hosts.items()
        }

    def share(self) -> ResolverShare:
        return _FixedShare(self._hosts)


class _FixedShare(ResolverShare):
    def __init__(self, hosts: Mapping[str, Iterator[tuple[bytes, ...]]]) -> None:
        self._hosts = hosts

    async def resolve(self, host: str, *, seconds: float = 0) -> tuple[bytes, ...]:
        if host not in self._hosts:
            raise ResolveError("no such name")
        return next(self._hosts[host])


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address.strip()).packed


def run_with_hosts(link: socket.socket, settings: Settings, hosts: Mapping[str, str]) -> int:
    """The gateway's process, real but for its resolver."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        with open_sink(settings.audit_database, writer=f"gateway-{ids.ulid()}") as sink:
            await serve(link, sink, Equipment(loop, sink, SystemClock(), FixedResolver(hosts)))

    asyncio.run(run())
    return 0


class RefusedError(AssertionError):
    """The warden or the gateway said no."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class World:
    """A client's connections to its own warden and gateway. `processes`: those it began with, by their own names."""

    def __init__(self, settings: Settings, warden: socket.socket) -> None:
        self.settings = settings
        self.warden = warden
        self.processes: dict[str, Relative] = {}
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
    settings = Settings(state_dir=base / "state", run_dir=base / "run")
    make_folders(settings)
    try:
        yield settings
    finally:
        shutil.rmtree(base, ignore_errors=True)


def make_folders(settings: Settings) -> None:
    """The databases' folders, as set-up makes them: each belongs to the process that writes into it."""
    owners = {settings.audit_dir: settings.gateway_user, settings.controller_dir: settings.controller_user}
    for folder, user in owners.items():
        folder.mkdir(parents=True, exist_ok=True)
        owner = pwd.getpwnam(user)
        os.chown(folder, owner.pw_uid, owner.pw_gid)


@contextlib.contextmanager
def open_world(settings: Settings, hosts: Mapping[str, str] | None = None) -> Iterator[World]:
    """The three processes, until the block ends. `hosts`: name → address for the gateway's resolver."""
    load_suffix_list()  # these two: what a child could not load any more once it has given up root
    EgressPolicy.from_wire(EgressPolicy().to_wire())
    gateway = partial(run_with_hosts, settings=settings, hosts=hosts or {})
    before = {relative.pid for relative in descendants()}
    forked: list[Any] = []
    done, over = threading.Event(), threading.Event()

    def fork() -> None:
        try:
            # pytest's own stderr object sits on a descriptor that the children close and use again.
            with open(2, "w", closefd=False) as stderr, contextlib.redirect_stderr(stderr):
                forked.append(fork_processes(settings, lambda: gateway))
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
    family = [relative for relative in descendants() if relative.pid not in before]
    world.processes = {relative.name: relative for relative in family}
    try:
        yield world
    finally:
        world.close()
        for relative in family:
            relative.wait()
        over.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Relative:
    """A process that descends from this one, held so that its number can't become another's."""

    pid: int
    name: str
    held: int

    def wait(self) -> None:
        """Until it has ended; reaps it where it is a child of ours."""
        select.select([self.held], [], [])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def signal(self, number: int) -> None:
        signal.pidfd_send_signal(self.held, number)


def descendants(pid: int = 0) -> list[Relative]:
    """The processes below `pid` (this one) that carry our names (`sandboxd-…`), guardian first."""
    pid = pid or os.getpid()
    found: list[Relative] = []
    with contextlib.suppress(FileNotFoundError):
        for child in Path(f"/proc/{pid}/task").glob("*/children"):
            for one in map(int, child.read_text().split()):
                name = Path(f"/proc/{one}/comm").read_text().strip()
                if name.startswith("sandboxd-"):
                    found += [Relative(one, name, os.pidfd_open(one)), *descendants(one)]
    return found
