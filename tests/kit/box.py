"""Runs attempts: a sandbox each, a call inside, and everything that it caused outside.

Speaks the warden's and the gateway's own protocols (`tests.kit.world`), as any controller does.
"""

import base64
import contextlib
import json
import os
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandboxd import channel, ids
from sandboxd.audit.records import Record
from sandboxd.egress import control
from sandboxd.policy.models import EgressPolicy
from sandboxd.reasons import Verdict
from sandboxd.settings import Pin
from sandboxd.warden import protocol
from tests.escape.attempt import Attempt
from tests.escape.policies import PINNED, POLICIES
from tests.kit.capture import Capture
from tests.kit.site import Site
from tests.kit.world import World

IMAGE = "sandboxd/python"
INSIDE = Path(__file__).parent.parent / "escape" / "inside"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/sandbox", "LANG": "C.UTF-8"}
BOOT = """
import base64, json, os, sys, traceback
for name, text in json.loads(sys.stdin.readline()).items():
    path = os.path.join("/tmp/attempt", name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(base64.b64decode(text))
    os.chmod(path, 0o755)
sys.path.insert(0, "/tmp/attempt")
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if not pid:
        answer = {"inside": None, "errors": ""}
        try:
            module, function = job["call"].split(".")
            module = __import__("inside." + module, fromlist=[function])
            answer["inside"] = getattr(module, function)(*job["args"])
        except BaseException:
            answer["errors"] = traceback.format_exc()
        print(json.dumps(answer), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def host_address() -> str:
    """An address of this host that is not loopback. No packet is sent: a UDP socket is only asked for its end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("203.0.113.77", 9))
        except OSError:
            return "172.17.0.1"
        return sock.getsockname()[0]


HOST_ADDRESS = host_address()


@dataclass
class Process:
    """A workload's attached stream and its exit."""

    stream: socket.socket
    exit: socket.socket
    _pending: bytes = b""

    def send(self, data: bytes) -> None:
        self.stream.sendall(data)

    def end_input(self) -> None:
        self.stream.shutdown(socket.SHUT_WR)

    def read(self) -> tuple[bytes, bytes]:
        """Everything until the end: standard output, standard error."""
        out = {1: b"", 2: b""}
        while frame := self.frame():
            out[frame[0]] += frame[1]
        return out[1], out[2]

    def line(self) -> str:
        """The next line of standard output; empty at the end."""
        while b"\n" not in self._pending:
            frame = self.frame()
            if frame is None:
                break
            self._pending += frame[1] if frame[0] == 1 else b""
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def frame(self) -> tuple[int, bytes] | None:
        """One of Docker's frames: which stream, what."""
        head = self._exactly(8)
        if len(head) < 8:
            return None
        kind, length = struct.unpack(">BxxxI", head)
        return kind, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = b""
        with contextlib.suppress(ConnectionError):
            while len(data) < count and (chunk := self.stream.recv(count - len(data))):
                data += chunk
        return data

    def exited(self) -> int:
        """How it ended."""
        answer = channel.receive(self.exit, protocol.REPLIES)
        assert answer is not None, "no exit was told"
        return answer[0].code

    def close(self) -> None:
        self.stream.close()
        self.exit.close()


class Agent:
    """A process inside that makes attempts as it is told, each in a child of its own."""

    def __init__(self, process: Process) -> None:
        self.process = process
        files = {f"inside/{path.name}": _encoded(path.read_bytes()) for path in INSIDE.glob("*.py")}
        self._tell(files | {"detours": _encoded(detours())})

    def run(self, call: str, *args: Any) -> Any:
        """A function of `tests/escape/inside` with plain arguments; what it returned."""
        self.begin(call, *args)
        return self.end(call)

    def begin(self, call: str, *args: Any) -> None:
        """Have it made; what it returned is told by `end`."""
        self._tell({"call": call, "args": args})

    def end(self, call: str) -> Any:
        line = self.process.line()
        assert line, f"the agent inside ended during {call}"
        answer = json.loads(line)
        assert not answer["errors"], answer["errors"]
        return answer["inside"]

    def _tell(self, what: dict[str, Any]) -> None:
        self.process.send(json.dumps(what).encode() + b"\n")


@dataclass
class Sandbox:
    """A sealed sandbox whose gate waits for its one launch."""

    name: str
    created: protocol.Created
    world: World
    probed: tuple[protocol.ProbeResult, ...]
    start: int
    stack: contextlib.ExitStack

    def launch(self, argv: Sequence[str], env: Mapping[str, str] = ENVIRONMENT, cwd: str = "/") -> Process:
        launch = protocol.Launch(self.name, tuple(argv), dict(env), cwd)
        _, (stream, ending) = self.world.ask_for(launch)
        process = Process(socket.socket(fileno=stream), socket.socket(fileno=ending))
        self.stack.callback(process.close)
        return process

    def agent(self, env: Mapping[str, str] = ENVIRONMENT) -> Agent:
        """Launch what makes attempts."""
        return Agent(self.launch(["python3", "-c", BOOT], env))

    def records(self) -> list[Record]:
        """What it caused since its probe."""
        return self.world.records(self.name, self.start)


class Box:
    """One world, one site, one capture for a session of attempts."""

    def __init__(self, world: World, site: Site, capture: Capture) -> None:
        self.world = world
        self.site = site
        self.capture = capture
        self._standing: dict[tuple[str, bool], tuple[Sandbox, Agent]] = {}
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        """Remove what stands."""
        self._stack.close()

    def _get(self, case: Attempt, stack: contextlib.ExitStack) -> tuple[Sandbox, Agent]:
        """A sandbox of its own, or the one that stands for attempts of its kind."""
        key = (case.policy, case.unix_sockets)
        if not case.alone and key in self._standing:
            return self._standing[key]
        sandbox = stack.enter_context(self.sandbox(case.policy, unix_sockets=case.unix_sockets))
        found = sandbox, sandbox.agent()
        if not case.alone:
            self._standing[key] = found
        return found

    @contextlib.contextmanager
    def sandbox(self, policy: str = "main", **spec: Any) -> Iterator[Sandbox]:
        """A sealed, probed sandbox under a policy of `tests/escape/policies.py`, removed at the end."""
        world, name = self.world, ids.sandbox_id()
        wanted = protocol.ContainerSpec(name, "escape", "mcp:attempt", **({"image": IMAGE} | spec))
        created = world.ask(protocol.Create(wanted))
        try:
            world.ask(protocol.Start(name))
            world.ask(protocol.Seal(name))
            canary = ids.ulid()
            world.tell(self.registration(name, POLICIES[policy], canary))
            probed = world.ask(protocol.Probe(name, canary)).results
            with contextlib.ExitStack() as stack:
                yield Sandbox(name, created, world, probed, world.position(), stack)
        finally:
            world.ask(protocol.Remove(name))

    def registration(self, sandbox: str, policy: str, canary: str, revision: int = 1) -> control.Register:
        """What a controller tells the gateway: the policy, and the site under its pinned names."""
        wire = EgressPolicy.from_wire(yaml.safe_load(policy)).to_wire()
        pins = tuple(Pin(name, "127.0.0.1", self.site.port(where)) for name, where in PINNED.items())
        return control.Register(sandbox, "default", "escape", "mcp:attempt", (wire,), pins, canary, revision)

    def check(self, case: Attempt) -> None:
        """Make the attempt; compare what was seen inside, in the audit log, at the site and on the wire."""
        mark, sightings = self.site.mark(), len(self.capture.sightings)
        with contextlib.ExitStack() as own:
            sandbox, agent = self._get(case, own if case.alone else self._stack)
            before = self.world.position()
            inside = agent.run(case.call, *case.args)
            records = lines(self.world.records(sandbox.name, before))
        reached = sum(1 for arrival in self.site.since(mark) if arrival.kind == "connection")
        seen = (inside, sorted(records), reached if case.reaches >= 0 else -bool(reached))
        wanted = (case.inside, sorted(case.records), case.reaches)
        assert seen == wanted, f"\n  seen   {seen}\n  wanted {wanted}"
        assert self.capture.sightings[sightings:] == []


def lines(records: Sequence[Record]) -> set[str]:
    """The records that `Attempt.records` lists, as it writes them."""
    return {record_line(r) for r in records if r.event.verdict is not None and _listed(r)}


def _listed(record: Record) -> bool:
    event = record.event
    return event.event in ("decision", "request") or (event.event == "dns" and event.verdict is not Verdict.ALLOW)


def record_line(record: Record) -> str:
    """`EVENT VERDICT REASON RULE WHAT`: one record, without what differs from run to run."""
    event = record.event
    where = event.destination
    what = event.detail.get("qname") or "-" if event.event == "dns" else f"{where.host or where.ip}:{where.port}"
    return f"{event.event} {event.verdict} {event.reason} {event.rule or '-'} {what}"


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def detours() -> bytes:
    """`inside/detours.c`, compiled once a session so that it needs nothing of the image."""
    if not _compiled:
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "detours")
            command = ["gcc", "-Os", "-static", "-s", "-Wall", "-Wextra", "-Werror", "-o", target]
            subprocess.run([*command, str(INSIDE / "detours.c")], check=True)
            _compiled.append(Path(target).read_bytes())
    return _compiled[0]


_compiled: list[bytes] = []
