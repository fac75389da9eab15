"""A sandbox's life over a warden that the test plays: the order of its steps, and that every failure undoes all."""

import socket
import threading
from typing import Any

import pytest

from sandboxd.controller.sandbox import Scope, close_streams, open_sandbox
from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import ContainerSpec, Created, Exited, ProbeResult
from tests.unit.controller.test_registration import FakeGateways

SPEC = ContainerSpec("sb-0123456789abcdef", "run", "mcp:x", "image")


class FakeWorld:
    """Warden, leases and gateways in one; `did` is what was asked, in order. `fail`: the step that fails."""

    def __init__(self, fail: str = "") -> None:
        self.did: list[str] = []
        self.fail = fail
        self.gateways = FakeGateways()
        self.probed: tuple[ProbeResult, ...] = (ProbeResult("canary", True, "it"),)
        self.reports: list[str] = []

    def _do(self, name: str) -> None:
        self.did.append(name)
        if name == self.fail:
            raise SandboxdError("broken", f"{name} is broken")

    def create(self, spec: ContainerSpec) -> Created:
        self._do("create")
        return Created("c0ffee", "sha256:1", 2_000_000_000)

    def start(self, sandbox: str) -> None:
        self._do("start")

    def seal(self, sandbox: str) -> None:
        self._do("seal")

    def probe(self, sandbox: str, canary: str) -> tuple[ProbeResult, ...]:
        self._do("probe")
        return self.probed

    def launch(self, sandbox: str, argv: Any, env: Any, cwd: str = "/") -> tuple[socket.socket, socket.socket]:
        self._do("launch")
        return socket.socketpair()

    def signal(self, sandbox: str, number: int) -> None:
        self._do("signal")

    def stop(self, sandbox: str, grace: float) -> None:
        self._do("stop")

    def remove(self, sandbox: str) -> None:
        self._do("remove")

    def gateway(self) -> socket.socket:
        return self.gateways.connect()

    def begin(self, sandbox: str, agent: str, workload: str, container: str, image: str) -> None:
        self._do("lease")

    def end(self, sandbox: str, *, failed: bool) -> None:
        self._do("lease failed" if failed else "lease ended")

    def open(self) -> Any:
        return open_sandbox(self, SPEC, Scope(), self, self.reports.append)

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        found: list[tuple[str, dict[str, Any]]] = []
        while not self.gateways.seen.empty():
            message = self.gateways.seen.get()
            if hasattr(message, "event"):
                found.append((message.event, message.facts))
        return found


def test_a_life() -> None:
    world = FakeWorld()
    with world.open() as sandbox:
        assert world.did == ["create", "lease", "start", "seal", "probe"]
        streams = sandbox.launch(["python3", "--token=hunter2"], {"T": "hunter2"}, "/")
        sandbox.ended(Exited(3))
        close_streams(streams)
    assert world.did[5:] == ["launch", "remove", "lease ended"]
    (start, facts), (end, how) = world.records()
    assert (start, end) == ("sandbox_start", "sandbox_end")
    assert (facts["command"], facts["image"], facts["uid"]) == ("python3", "image", 2_000_000_000)
    assert how == {"how": "exited", "code": 3, "oom": False}
    assert "hunter2" not in str(facts)
    assert world.reports == []


def test_what_the_trial_of_the_seal_does_is_not_the_workloads() -> None:
    from sandboxd.egress.control import Register

    world = FakeWorld()
    with world.open():
        registered = [m.workload for m in list(world.gateways.seen.queue) if isinstance(m, Register)]
    assert registered == ["probe", SPEC.workload]


@pytest.mark.parametrize("step", ["create", "lease", "start", "seal", "probe"])
def test_a_failure_on_the_way_undoes_all(step: str) -> None:
    world = FakeWorld(fail=step)
    with pytest.raises(SandboxdError, match=step), world.open():
        pytest.fail("it must not open")
    assert world.did[-2:] == ["remove", "lease failed"]
    assert world.records() == []


def test_a_seal_that_does_not_hold_starts_nothing() -> None:
    world = FakeWorld()
    world.probed = (ProbeResult("UDP", False, "answered"), ProbeResult("canary", True, "it"))
    with pytest.raises(SandboxdError, match="UDP: answered"), world.open():
        pytest.fail("it must not open")
    assert "launch" not in world.did
    assert world.did[-2:] == ["remove", "lease failed"]


def test_a_gateway_that_refuses_starts_nothing() -> None:
    from sandboxd.egress.control import Failed

    world = FakeWorld()
    world.gateways.answers = lambda _: Failed("bad_policy", "no")
    with pytest.raises(SandboxdError, match="refused"), world.open():
        pytest.fail("it must not open")
    assert world.did[-2:] == ["remove", "lease failed"]


def test_a_start_that_can_not_be_recorded_launches_nothing() -> None:
    from sandboxd.egress.control import Failed, Ok, RecordSandbox

    world = FakeWorld()
    world.gateways.answers = lambda m: Failed("audit_sink", "full") if isinstance(m, RecordSandbox) else Ok()
    with pytest.raises(SandboxdError, match="full"), world.open() as sandbox:
        sandbox.launch(["x"], {}, "/")
    assert "launch" not in world.did
    assert any("full" in report for report in world.reports)  # the end could not be recorded either


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_happens_inside_all_is_undone(error: type[BaseException]) -> None:
    world = FakeWorld()
    with pytest.raises(error), world.open():
        raise error
    assert world.did[-2:] == ["remove", "lease ended"]
    assert world.records() == [("sandbox_end", {"how": "never launched"})]


def test_undoing_goes_on_past_a_failure() -> None:
    world = FakeWorld(fail="remove")
    with world.open():
        pass
    assert world.did[-2:] == ["remove", "lease ended"]
    assert world.reports == ["while cleaning up: remove is broken"]


@pytest.mark.parametrize("fail", ["", "signal", "stop"])
def test_orders_are_carried_out_in_turn_and_never_raise(fail: str) -> None:
    world = FakeWorld(fail=fail)
    with world.open() as sandbox:
        for ask in (lambda: sandbox.signal(15), sandbox.stop, lambda: sandbox.signal(9)):
            ask()
        sandbox.close()
        sandbox._orders._worker.join(20)
    assert world.did[5:8] == ["signal", "stop", "signal"]


def test_orders_do_not_wait_for_a_busy_warden() -> None:
    world = FakeWorld()
    busy = threading.Event()
    world.signal = lambda sandbox, number: busy.wait(20)  # type: ignore[method-assign, assignment]
    with world.open() as sandbox:
        sandbox.signal(15)
        sandbox.stop()  # returns, though the first order is not done
        assert "stop" not in world.did
        busy.set()
        sandbox.close()
        sandbox._orders._worker.join(20)
    assert "stop" in world.did


def test_a_dead_warden_is_not_told_twice() -> None:
    world = FakeWorld()

    def gone(sandbox: str) -> None:
        raise SandboxdError("warden_gone", "the warden has ended")

    world.remove = gone  # type: ignore[method-assign]
    with world.open():
        pass
    assert world.reports == []
