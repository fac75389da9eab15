"""The warden as its clients call it: one method an operation, a refusal raised as SandboxdError.

Blocking; a lock keeps one request and its answer together. Not here: any policy. Called by the controller and by
commands that manage images.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from sandboxd import channel
from sandboxd.errors import ExitCode, SandboxdError
from sandboxd.warden import protocol as p

_T = TypeVar("_T")

# What the person at the command line asked for and can't have: exit 2 and not 125.
_CALLERS_FAULT = ("bad_resources", "mount_source", "mount_target")


class WardenClient:
    """`sock`: a connection to the warden; when it closes, all that was made over it is removed.

    Every method raises SandboxdError with the warden's code, or `warden_gone`.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._owed = 0  # answers that nobody waited for

    def close(self) -> None:
        """Remove everything made over this connection; ends a request that another thread waits for, too."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def hello(self) -> p.HelloReply:
        """Versions and runtimes."""
        return self._reply(p.Hello(), p.HelloReply)

    def confine(self, *, directories: Iterable[str] = (), images: Iterable[str] = ()) -> None:
        """Give up everything but these host directories and these images to be made. Does not wait, for a warden
        that is still starting: a refusal is raised by the next call."""
        with self._lock, contextlib.suppress(OSError):  # gone: the next call says so
            channel.send(self._sock, p.Confine(tuple(directories), tuple(images)))
            self._owed += 1

    def create(self, spec: p.ContainerSpec) -> p.Created:
        """Make the container; nothing runs."""
        return self._reply(p.Create(spec), p.Created)

    def start(self, sandbox: str) -> None:
        """The gate runs and waits."""
        self._reply(p.Start(sandbox), p.Done)

    def seal(self, sandbox: str) -> None:
        """Identity checks, wire, rules; listeners to the gateway."""
        self._reply(p.Seal(sandbox), p.Done)

    def trust(self, sandbox: str, authority: str, store: str = "") -> None:
        """Its programs trust this authority."""
        self._reply(p.Trust(sandbox, authority, store), p.Done)

    def probe(self, sandbox: str, canary: str) -> tuple[p.ProbeResult, ...]:
        """The cheap part of the probe."""
        return self._reply(p.Probe(sandbox, canary), p.Probed).results

    def launch(
        self, sandbox: str, argv: Sequence[str], env: Mapping[str, str], cwd: str = "/"
    ) -> tuple[socket.socket, socket.socket]:
        """The raw attach stream and the exit stream, on which one `Exited` arrives (`read_exit`)."""
        _, fds = self._ask(p.Launch(sandbox, tuple(argv), dict(env), cwd), p.Launched, 2)
        return socket.socket(fileno=fds[0]), socket.socket(fileno=fds[1])

    def connect(self, sandbox: str, port: int) -> socket.socket:
        """A socket connected to 127.0.0.1:`port` inside."""
        _, fds = self._ask(p.Connect(sandbox, port), p.Done, 1)
        return socket.socket(fileno=fds[0])

    def signal(self, sandbox: str, number: int) -> None:
        """To the workload's process group."""
        self._reply(p.Signal(sandbox, number), p.Done)

    def stop(self, sandbox: str, grace: float) -> None:
        """TERM, after `grace` seconds KILL; returns once it is gone."""
        self._reply(p.Stop(sandbox, grace), p.Done)

    def remove(self, sandbox: str) -> None:
        """Nothing of it is left. Idempotent."""
        self._reply(p.Remove(sandbox), p.Done)

    def commit(self, sandbox: str, name: str, labels: Mapping[str, str]) -> str:
        """A running build becomes image `name`; its id."""
        return self._reply(p.Commit(sandbox, name, dict(labels)), p.Committed).image

    def list_containers(self) -> tuple[p.ContainerInfo, ...]:
        """Every container of ours on the host."""
        return self._reply(p.List(), p.Listing).containers

    def images(self, name: str = "") -> tuple[p.ImageInfo, ...]:
        """Our images, or exactly `name`."""
        return self._reply(p.Images(name), p.ImageListing).images

    def remove_image(self, name: str) -> None:
        """Only one of ours."""
        self._reply(p.RemoveImage(name), p.Done)

    def gateway(self) -> socket.socket:
        """A stream to the gateway's control; waits while a restarted one comes up."""
        _, fds = self._ask(p.Gateway(), p.Done, 1)
        return socket.socket(fileno=fds[0])

    def _reply(self, request: Any, expected: type[_T]) -> _T:
        return self._ask(request, expected, 0)[0]

    def _ask(self, request: Any, expected: type[_T], descriptors: int) -> tuple[_T, list[int]]:
        with self._lock:
            while self._owed:
                self._owed -= 1
                self._receive(p.Confine(), p.Done, 0)
            with contextlib.suppress(OSError):  # gone: nothing is received
                channel.send(self._sock, request)
            return self._receive(request, expected, descriptors)

    def _receive(self, request: Any, expected: type[_T], descriptors: int) -> tuple[_T, list[int]]:
        try:
            received = channel.receive(self._sock, p.REPLIES)
        except OSError:
            received = None
        if received is None:
            raise SandboxdError(
                "warden_gone", "the warden has ended", hint="its messages on stderr say why; start again"
            )
        reply, fds = received
        if isinstance(reply, expected) and len(fds) == descriptors:
            return reply, fds
        for fd in fds:
            os.close(fd)
        if isinstance(reply, p.Refused):
            code = ExitCode.USAGE if reply.code in _CALLERS_FAULT else ExitCode.SANDBOX
            raise SandboxdError(reply.code, reply.message, hint=reply.hint, exit_code=code)
        raise SandboxdError("channel", f"the warden answered {type(reply).__name__} to {type(request).__name__}")


def read_exit(stream: socket.socket) -> p.Exited:
    """Wait for the workload's end. Where the warden ended first, so did the workload: killed."""
    try:
        received = channel.receive(stream, p.REPLIES)
    except (OSError, channel.ChannelError):
        received = None
    return cast(p.Exited, received[0]) if received else p.Exited(137)
