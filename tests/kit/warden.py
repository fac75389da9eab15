"""Driving a real warden from a test: images made from a few files, the whole way to a launched sandbox."""

import contextlib
import io
import os
import socket
import subprocess
import tarfile
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

from sandboxd.ids import sandbox_id
from sandboxd.settings import Settings
from sandboxd.warden import protocol as p
from sandboxd.warden.client import WardenClient
from sandboxd.warden.server.guardian import fork_processes
from tests.kit.gateway import CANARY, run_refusing_gateway
from tests.kit.processes import children

Gateway = Callable[[socket.socket], int]
KIT = Path(__file__).parent
REPO = KIT.parents[1]
ENV = {"PATH": "/bin"}


def compile_static(source: Path, to: Path) -> Path:
    subprocess.run(["cc", "-O1", "-static", "-o", str(to), str(source)], check=True)
    return to


def import_image(name: str, files: dict[str, bytes], *changes: str) -> None:
    """A test image of a few files, made without any registry."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in ("tmp", "etc", "home", "bin"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    options = [option for change in changes for option in ("--change", change)]
    subprocess.run(["docker", "import", *options, "-", name], input=out.getvalue(), check=True, capture_output=True)


@contextlib.contextmanager
def open_warden(settings: Settings, gateway: Gateway = run_refusing_gateway) -> Generator[WardenClient]:
    """The three processes, and a client of theirs."""
    before = set(children(os.getpid()))
    client = WardenClient(fork_processes(settings, lambda: gateway))
    (guardian,) = set(children(os.getpid())) - before
    try:
        yield client
    finally:
        client.close()
        os.waitpid(guardian, 0)  # by then everything is gone


@dataclass
class Running:
    """A launched sandbox as a test drives it."""

    client: WardenClient
    id: str
    created: p.Created
    stream: socket.socket
    exit: socket.socket
    output: dict[int, bytes] = field(default_factory=lambda: {1: b"", 2: b""})

    def read_all(self) -> bytes:
        """Everything to the end; its stdout."""
        while self.read_frame():
            pass
        return self.output[1]

    def read_until(self, wanted: bytes) -> None:
        while wanted not in self.output[1]:
            assert self.read_frame(), f"ended before {wanted!r}: {self.output}"

    def read_frame(self) -> bool:
        head = self._exactly(8)
        if not head:
            return False
        self.output[head[0]] += self._exactly(int.from_bytes(head[4:]))
        return True

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (chunk := self.stream.recv(count - len(data))):
            data += chunk
        return data


def spec_of(image: str, **more: object) -> p.ContainerSpec:
    return p.ContainerSpec(sandbox_id(), "agent", "mcp:test", image, **more)  # type: ignore[arg-type]


def launch(
    client: WardenClient, spec: p.ContainerSpec, *argv: str, env: dict[str, str] | None = None, cwd: str = "/"
) -> Running:
    """The whole way from Create to Launch."""
    created = client.create(spec)
    client.start(spec.sandbox)
    client.seal(spec.sandbox)
    results = client.probe(spec.sandbox, CANARY)
    assert all(result.ok for result in results), results
    stream, exit_stream = client.launch(spec.sandbox, argv, ENV if env is None else env, cwd)
    return Running(client, spec.sandbox, created, stream, exit_stream)


def run_to_end(client: WardenClient, spec: p.ContainerSpec, *argv: str) -> str:
    """What a workload printed, once it ended and was removed."""
    running = launch(client, spec, *argv)
    out = running.read_all().decode()
    client.remove(spec.sandbox)
    return out
