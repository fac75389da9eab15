"""A package build over a warden that the test plays: what is asked for, committed, said, and undone."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sandboxd import channel, limits
from sandboxd.controller import builds, indexes, install
from sandboxd.controller.indexes import Configuration, Index
from sandboxd.controller.packages import Package, Recipe, labels, unpack_lock
from sandboxd.egress.control import Register
from sandboxd.errors import SandboxdError
from sandboxd.settings import Pin
from sandboxd.warden.protocol import ContainerSpec, Created, Exited, ImageInfo
from tests.kit.attach import frame
from tests.unit.controller.test_sandbox import FakeWorld

PYPI = Recipe(Package("pypi", "demo", "1.0"), ("mcp<2",))
NPM = Recipe(Package("npm", "demo", "1.0.0"))
LOCK = [{"name": "demo", "version": "1.0", "hash": "sha256:0"}]
RESULT = {"lock": LOCK, "programs": {"demo": "/opt/server/bin/demo"}}
GOOD = install.MARK + json.dumps(RESULT).encode() + b"\n"
INDEX = Index(
    ("tls://index.example:443",),
    (Pin("index.example", "192.0.2.1", 443),),
    {"PIP_CERT": "/x"},
    {"/opt/build/ca.pem": "C"},
)
CONFIGURATION = Configuration("https://index.example/simple", "C")


def image(name: str, **of: str) -> ImageInfo:
    return ImageInfo(f"sha256:{name}", (name,), {f"sandboxd.{key}": value for key, value in of.items()}, 1, 1.0, (), ())


class World(FakeWorld):
    """`play` is the installer: it gets its ends of the attach stream and the exit stream."""

    def __init__(self, play: Callable[[socket.socket, socket.socket], None], *there: ImageInfo) -> None:
        super().__init__()
        self.play = play
        self.there = {name: info for info in (image("sandboxd/python:latest"), *there) for name in info.names}
        self.there.setdefault("sandboxd/node:latest", image("sandboxd/node:latest"))
        self.spec: ContainerSpec | None = None
        self.launched: list[tuple[Any, Any]] = []
        self.committed: dict[str, dict[str, str]] = {}
        self.progress: list[str] = []

    def create(self, spec: ContainerSpec) -> Created:
        self.spec = spec
        return super().create(spec)

    def launch(self, sandbox: str, argv: Any, env: Any, cwd: str = "/") -> tuple[socket.socket, socket.socket]:
        self.launched.append((argv, env))
        attach, workload = socket.socketpair()
        exit_, report = socket.socketpair()
        threading.Thread(target=self.play, args=(workload, report), daemon=True).start()
        return attach, exit_

    def images(self, name: str = "") -> tuple[ImageInfo, ...]:
        if name and name not in self.there:
            raise SandboxdError("image_missing", f"no image {name}")
        return (self.there[name],) if name else tuple(self.there.values())

    def commit(self, sandbox: str, name: str, labels: Any) -> str:
        self._do("commit")
        self.committed[name] = labels
        self.there[name] = ImageInfo("sha256:new", (name,), labels, 1, 2.0, (), ())
        return "sha256:new"

    def remove_image(self, name: str) -> None:
        self._do(f"remove image {name}")

    def build(self, order: builds.Order, *pins: Pin) -> ImageInfo:
        return builds.build(self, self, order, pins, self.reports.append, self.progress.append)


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "read_configuration", lambda _: CONFIGURATION)
    monkeypatch.setattr(indexes, "find_index", lambda *_: INDEX)


def installer(*output: bytes, code: int = 0, oom: bool = False, waits: bool = True) -> Callable[..., None]:
    """Writes, waits for the end of its stdin if it is a good one, and ends."""

    def play(workload: socket.socket, report: socket.socket) -> None:
        with workload, report:
            for piece in output:
                workload.sendall(piece)
            if waits:
                assert workload.recv(1) == b""
            with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                channel.send(report, Exited(code, oom))

    return play


def test_a_package_is_installed_committed_and_let_go():
    said = frame(2, b"Collecting demo\n\n") + frame(1, b"noise\n") + frame(1, GOOD[:20]) + frame(1, GOOD[20:])
    world = World(installer(said[:11], said[11:]))
    order = builds.order_image(world, PYPI)
    made = world.build(order)
    assert made.id == "sha256:new"
    assert world.did == ["create", "lease", "start", "seal", "probe", "commit", "remove", "lease ended"]
    assert world.progress == ["Collecting demo", "noise"]
    assert world.spec
    found = world.committed[order.name]
    assert found["sandboxd.package"] == "pypi:demo==1.0"
    assert found["sandboxd.build"] == world.spec.sandbox
    assert unpack_lock(found["sandboxd.lock"]) == LOCK
    assert [event for event, _ in world.records()] == ["sandbox_start", "sandbox_end"]
    assert any("may reach tls://index.example:443" in line for line in world.reports)


def test_the_container_may_reach_the_index_only_and_is_a_build():
    world = World(installer(frame(1, GOOD)))
    world.build(builds.order_image(world, PYPI), Pin("index.example", "192.0.2.9"))
    assert world.spec
    assert world.spec.build
    assert world.spec.image == "sha256:sandboxd/python:latest"
    assert world.spec.mounts == ()
    assert world.spec.files == {"/opt/build/ca.pem": "C", install.CONSTRAINTS: "mcp<2\n"}
    registered = [m for m in iter_seen(world) if isinstance(m, Register)]
    (policy,) = registered[0].policies
    (rule,) = policy["rules"]
    assert (rule["to"]["hosts"], rule["to"]["ports"], rule["proto"]) == (["index.example"], [443], "tls")
    assert registered[0].pins == (Pin("index.example", "192.0.2.9"),)  # the operator's stands
    ((argv, env),) = world.launched
    assert argv[4:6] == ["demo==1.0", "demo"]
    assert argv[-4:] == ["-c", install.CONSTRAINTS, "--only-binary", ":all:"]
    assert env["PIP_CERT"] == "/x"


def iter_seen(world: World) -> list[Any]:
    return [world.gateways.seen.get() for _ in range(world.gateways.seen.qsize())]


@pytest.mark.parametrize(
    ("play", "code", "says"),
    [
        (installer(frame(2, b"no such version\n"), code=1, waits=False), "install_failed", "ended with 1"),
        (installer(code=137, oom=True, waits=False), "install_failed", "more memory"),
        (installer(frame(1, install.MARK + b"{}\n"), waits=False), "package_result", "can't be read"),
        (installer(b"HTTP/1.1 500 \r\n\r\n", waits=False), "attach_stream", "broken"),
    ],
)
def test_what_goes_wrong_commits_nothing(play: Callable[..., None], code: str, says: str):
    world = World(play)
    with pytest.raises(SandboxdError, match=says) as refusal:
        world.build(builds.order_image(world, NPM))
    assert refusal.value.code == code
    assert world.committed == {}
    assert world.did[-2:] == ["remove", "lease ended"]


def test_an_endless_line_is_bounded_and_the_result_still_found():
    flood = [frame(1, b"x" * 60_000) for _ in range(2 + limits.PACKAGE_RESULT // 60_000)]
    world = World(installer(*flood, frame(1, b"\n"), frame(1, GOOD)))
    assert world.build(builds.order_image(world, NPM)).id == "sha256:new"


def test_a_silent_installer_is_said_to_be_at_it_and_ends_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "PACKAGE_QUIET", 0.01)
    monkeypatch.setattr(limits, "PACKAGE_BUILD", 0.05)
    released = threading.Event()
    world = World(lambda workload, report: bool(released.wait(20)) and None)
    with pytest.raises(SandboxdError) as refusal:
        world.build(builds.order_image(world, NPM))
    released.set()
    assert refusal.value.code == "timeout"
    assert world.progress[0].startswith("… ")
    assert world.committed == {}


def test_an_image_that_is_there_is_taken_unless_wanted_again():
    there = image(PYPI.image_name("sha256:sandboxd/python:latest"))
    world = World(installer(frame(1, GOOD)), there)
    order = builds.order_image(world, PYPI)
    assert world.build(order) == there
    assert world.did == []
    again = builds.order_image(world, PYPI, again=True)
    assert world.did == [f"remove image {order.name}"]
    assert world.build(again).id == "sha256:new"


def test_a_run_takes_what_an_operator_built_of_the_package_if_it_says_no_more():
    base = "sha256:sandboxd/python:latest"
    constrained = image("sandboxd/pkg/pypi-demo:1.0-x", package="pypi:demo==1.0", base=base)
    stale = image("sandboxd/pkg/pypi-demo:1.0-y", package="pypi:demo==1.0", base="sha256:older")
    world = World(installer(), stale, constrained)
    assert builds.order_package(world, Recipe(PYPI.package)).built == constrained
    assert builds.order_package(world, Recipe(PYPI.package, ("mcp<1",))).built is None
    assert builds.order_package(World(installer(), stale), Recipe(PYPI.package)).built is None
    other = image("sandboxd/pkg/pypi-demo:1.0-z", package="pypi:demo==1.0", base="sha256:mine")
    assert builds.order_package(World(installer(), other), Recipe(PYPI.package)).built is None
    assert builds.order_package(World(installer(), other, image("mine")), Recipe(PYPI.package)).built == other


def test_a_host_without_npm_takes_the_default_of_the_images_npm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(indexes, "read_configuration", lambda _: Configuration(None, "C"))
    asked: list[str | None] = []
    monkeypatch.setattr(indexes, "find_index", lambda _, found: asked.append(found.url) or INDEX)
    plays = [installer(frame(1, b"https://default.example/\n")), installer(frame(1, GOOD))]
    world = World(lambda *ends: plays.pop(0)(*ends))
    world.build(builds.order_image(world, NPM))
    assert asked == ["https://default.example/"]
    assert world.launched[0][0] == ("npm", "config", "get", "registry")


def test_an_error_of_docker_is_not_taken_for_a_missing_image():
    class Broken(World):
        def images(self, name: str = "") -> tuple[ImageInfo, ...]:
            if name.startswith("sandboxd/pkg/"):
                raise SandboxdError("engine", "Docker does not answer")
            return super().images(name)

    with pytest.raises(SandboxdError, match="does not answer"):
        builds.order_image(Broken(installer()), NPM)


def test_labels_never_hold_settings_of_the_index():
    from sandboxd.controller.packages import parse_result

    found = labels(PYPI, "sha256:b", "sb-1", parse_result(json.dumps(RESULT).encode()))
    assert "index.example" not in str(found)
