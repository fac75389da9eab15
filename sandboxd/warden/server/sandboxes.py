"""A sandbox's one way through life, and the sandboxes of one client.

Create → Start → Seal → Probe → Launch → Remove; an operation out of order is refused, and whatever a client made goes
when it does. Each step is one of this package's modules; here is only their order and what is held between them.
Called by `operations`, one thread a client.
"""

import contextlib
import os
import socket
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast

from sandboxd import limits
from sandboxd.errors import SandboxdError
from sandboxd.settings import Settings
from sandboxd.warden.protocol import ContainerSpec, Created, ProbeResult
from sandboxd.warden.server import admission, build, hardening, scratch, seccomp, uids, workspace
from sandboxd.warden.server.confinement import Confinement
from sandboxd.warden.server.engine import Engine
from sandboxd.warden.server.gateway_link import GatewayLink
from sandboxd.warden.server.hardening import Made, Owner
from sandboxd.warden.server.identity import Identity, identify
from sandboxd.warden.server.namespace import run_inside
from sandboxd.warden.server.orders import encode_orders
from sandboxd.warden.server.probe import probe_namespace
from sandboxd.warden.server.seal import seal_namespace
from sandboxd.warden.server.terminals import bound_terminals
from sandboxd.warden.server.trust import image_roots
from sandboxd.warden.server.workload import Workload, accept_lifeline, kill_process


class Stage(IntEnum):
    """How far a sandbox has come."""

    NEW = 0
    CREATED = 1
    STARTED = 2
    SEALED = 3
    PROBED = 4
    LAUNCHED = 5
    FAILED = 6
    REMOVED = 7


@dataclass(frozen=True, slots=True)
class Host:
    """What all sandboxes of a warden share."""

    settings: Settings
    engine: Engine
    gateway: GatewayLink
    owner: Owner


@dataclass(slots=True)
class Sandbox:
    """One sandbox: all that is held for it is closed by `remove`, in whatever stage it is."""

    host: Host
    spec: ContainerSpec
    stage: Stage = Stage.NEW
    container: str = ""
    uid: int = 0
    files: scratch.Scratch | None = None
    stream: socket.socket | None = None
    identity: Identity | None = None
    lifeline: socket.socket | None = None
    workload: Workload | None = None
    claim: socket.socket | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        return self.spec.sandbox

    def create(self) -> Created:
        """The container with its hardening, its files and its stream; nothing runs."""
        self._enter(Stage.NEW)
        engine = self.host.engine
        image = engine.inspect_image(self.spec.image)
        self.uid, self.claim = uids.claim_uid()
        directory = scratch.warden_directory(self.host.settings.run_dir, self.host.owner)
        self.files = scratch.make_scratch(directory, self.id, self.host.settings.gate, self.uid, trust=self.spec.trust)
        made = self._made(image, self.files)
        body = hardening.create_body(self.spec, made)
        self.container = engine.create(hardening.container_name(self.id), body)
        if self.spec.files:
            engine.put_archive(self.container, build.pack_files(self.spec.files, self.uid))
        self.stream = engine.attach(self.container)
        self.stage = Stage.CREATED
        return Created(self.container, made.image, self.uid)

    def _made(self, image: dict[str, Any], files: scratch.Scratch) -> Made:
        private = self._private_places() if self.spec.mounts else ()
        mounts = tuple(
            workspace.mount_workspace(mount, index, files, self.uid, self.spec.runtime, private)
            for index, mount in enumerate(self.spec.mounts)
        )
        config = cast(dict[str, Any], image.get("Config") or {})
        volumes = tuple(cast(dict[str, Any], config.get("Volumes") or {}))
        if len(volumes) > limits.VOLUMES:
            raise SandboxdError(
                "image_volumes",
                f"the image declares {len(volumes)} volumes; at most {limits.VOLUMES}",
                hint="each becomes a file system of its own in memory",
            )
        profile = seccomp.profile(unix_sockets=self.spec.unix_sockets, runtime=self.spec.runtime)
        run = f"{self.host.owner.pid}-{self.host.owner.start}"
        return Made(self.uid, str(image["Id"]), volumes, str(files.path), mounts, self.host.owner, run, profile)

    def _private_places(self) -> tuple[str, ...]:
        """What is ours and Docker's, wherever the operator has moved it."""
        settings, docker = self.host.settings, self.host.engine.info()["DockerRootDir"]
        return tuple(os.path.realpath(path) for path in (settings.state_dir, settings.run_dir, settings.gate, docker))

    def start(self) -> None:
        """The gate runs and waits; the scratch directory has served."""
        self._enter(Stage.CREATED)
        assert self.files
        self.host.engine.start(self.container)
        self.files.remove()
        self.stage = Stage.STARTED

    def seal(self) -> None:
        """Only what is surely ours is sealed; the gateway gets the listeners."""
        self._enter(Stage.STARTED)
        assert self.files
        self.identity = identify(self.host.engine, self.container, self.files.gate, self.spec.runtime)
        self.identity.cgroup.limit_sockets()
        if self.spec.runtime == "runc":  # gVisor's terminals are its own
            bound_terminals(self.identity, limits.TERMINALS)
        listening = seal_namespace(self.identity.netns)
        self.lifeline = listening.lifeline
        self.host.gateway.add(self.id, listening.capture)
        self.stage = Stage.SEALED

    def trust(self, authority: str, store: str) -> None:
        """Whom its programs trust, from now on."""
        self._need(self.spec.trust and Stage.STARTED <= self.stage <= Stage.LAUNCHED)
        assert self.files
        assert self.files.roots
        self.files.roots.fill(image_roots(self.host.engine.inspect(self.container)), authority, store)

    def probe(self, canary: str) -> tuple[ProbeResult, ...]:
        """The seal as seen from inside; all must hold before anything is launched."""
        self._enter(Stage.SEALED)
        assert self.identity
        results = probe_namespace(self.identity.netns, canary)
        self.stage = Stage.PROBED if all(result.ok for result in results) else Stage.FAILED
        return results

    def launch(self, argv: tuple[str, ...], env: dict[str, str], cwd: str) -> tuple[socket.socket, Workload]:
        """The gate gets its orders. The stream and the workload; both are the caller's to hand over."""
        self._need(self.files is not None and (self.files.roots is None or self.files.roots.filled))
        self._enter(Stage.PROBED)
        assert self.stream
        assert self.identity
        assert self.lifeline
        from_port = self.lifeline.getsockname()[1]
        self.stream.sendall(encode_orders(argv, env, cwd, from_port))
        lifeline = accept_lifeline(self.lifeline, self.identity.pidfd)
        self.workload = Workload(lifeline, self.identity.pidfd, self.identity.cgroup)
        self.stage = Stage.LAUNCHED
        return self.stream, self.workload

    def connect(self, port: int) -> socket.socket:
        """A socket connected to a port inside."""
        self._need(self.stage is Stage.LAUNCHED)
        assert self.identity
        if not 0 < port < 65536:
            raise SandboxdError("bad_port", f"not a port: {port}", hint="expected 1 to 65535")
        return run_inside(self.identity.netns, lambda: _connect(port))

    def signal(self, number: int) -> None:
        """A signal to the workload's process group."""
        self._need(self.stage is Stage.LAUNCHED)
        assert self.workload
        if not 0 < number < 65:
            raise SandboxdError("bad_signal", f"not a signal: {number}", hint="expected 1 to 64")
        self.workload.signal(number)

    def stop(self, grace: float) -> None:
        """TERM, then KILL; nothing runs any more when this returns."""
        if self.workload:
            self.workload.stop(grace)
        elif self.identity:
            kill_process(self.identity.pidfd)
        elif self.container:
            self.host.engine.kill(self.container)

    def commit(self, name: str, labels: dict[str, str]) -> str:
        """The running build as an image; its id."""
        self._need(self.spec.build and self.stage is Stage.LAUNCHED)
        assert self.identity
        build.drop_files(self.identity, self.spec.files)
        return build.commit(self.host.engine, self.container, name, labels)

    def remove(self) -> None:
        """All of it is gone. Idempotent; goes on past what fails, and raises the first failure at the end."""
        self.stage = Stage.REMOVED
        failures: list[BaseException] = []
        for step in (self._end_process, self._end_network, self._end_container, self._end_files):
            try:
                step()
            except (SandboxdError, OSError) as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _end_process(self) -> None:
        if self.workload:
            self.workload.close()
        if self.identity:
            kill_process(self.identity.pidfd)

    def _end_network(self) -> None:
        self.host.gateway.remove(self.id)
        for sock in (self.lifeline, self.stream):
            if sock:
                sock.close()
        if self.identity:
            self.identity.close()
            self.identity = self.workload = None  # which shares the descriptors

    def _end_container(self) -> None:
        if self.container:  # by its id: the name alone could be another client's
            self.host.engine.remove(self.container)

    def _end_files(self) -> None:
        if self.files:
            self.files.close()
            self.files = None
        if self.claim:
            self.claim.close()

    def _enter(self, expected: Stage) -> None:
        """Begin a step: it must be this step's turn, and a step that fails leaves the sandbox fit for Remove only."""
        self._need(self.stage is expected)
        self.stage = Stage.FAILED

    def _need(self, ok: bool) -> None:
        if not ok:
            raise SandboxdError(
                "out_of_order",
                f"sandbox {self.id} is {self.stage.name.lower()}: it can't do that now",
                hint="the order is Create, Start, Seal, Probe, Launch, Stop, Remove",
            )


def _connect(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.settimeout(limits.CONNECT)
    try:
        sock.connect(("127.0.0.1", port))
    except OSError as error:
        sock.close()
        why = error.strerror or "no answer"
        raise SandboxdError("connect_failed", f"port {port} inside: {why}", hint="does the server listen?") from None
    sock.settimeout(None)
    return sock


class ClientSandboxes:
    """What one client made, and nobody else's."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._sandboxes: dict[str, Sandbox] = {}
        self.confinement = Confinement()

    def create(self, spec: ContainerSpec) -> Created:
        """A new sandbox; one that can't be made leaves nothing."""
        admission.check_spec(spec)
        self.confinement.check_mounts(spec)
        if spec.sandbox in self._sandboxes:
            raise SandboxdError("sandbox_exists", f"there is a sandbox {spec.sandbox} already")
        if len(self._sandboxes) >= limits.SANDBOXES:
            raise SandboxdError("too_many_sandboxes", f"{limits.SANDBOXES} sandboxes already; remove some")
        sandbox = Sandbox(self._host, spec)
        self._sandboxes[spec.sandbox] = sandbox
        try:
            return sandbox.create()
        except BaseException:
            self.remove(spec.sandbox)
            raise

    def commit(self, sandbox: str, name: str, labels: dict[str, str]) -> str:
        """A running build as an image; its id."""
        self.confinement.check_commit(name)
        return self.get(sandbox).commit(name, labels)

    def get(self, sandbox: str) -> Sandbox:
        """Raises SandboxdError `no_sandbox`."""
        if sandbox not in self._sandboxes:
            raise SandboxdError("no_sandbox", f"this client has no sandbox {sandbox[:80]!r}")
        return self._sandboxes[sandbox]

    def remove(self, sandbox: str) -> None:
        """Idempotent. One whose removal failed stays known, so that it can be tried again."""
        if sandbox in self._sandboxes:
            self._sandboxes[sandbox].remove()
            del self._sandboxes[sandbox]

    def remove_all(self) -> None:
        """The client is gone."""
        for sandbox in list(self._sandboxes):
            with contextlib.suppress(SandboxdError, OSError):  # the guardian reaps what is left
                self.remove(sandbox)
