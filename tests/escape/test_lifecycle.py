"""What dies, restarts or changes under a living sandbox never opens it; what is out of order never starts it."""

import json
import select
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd import ids
from sandboxd.egress import control
from sandboxd.policy.egress import EgressPolicy
from sandboxd.reasons import Reason
from sandboxd.warden import protocol
from tests.escape.attempt import MARK
from tests.escape.policies import EMPTY, MAIN
from tests.kit.box import IMAGE, Agent, Box, Sandbox
from tests.kit.capture import open_capture
from tests.kit.left import engine, pids_of_container
from tests.kit.site import open_site
from tests.kit.world import RefusedError, open_folders, open_world

pytestmark = pytest.mark.docker
OPAQUE = ("opaque.test", 9000)


@contextmanager
def own_box() -> Iterator[tuple[Box, Callable[[str, int], None]]]:
    """A box whose processes may be killed; and how to signal one by the name it gave itself."""
    with open_folders() as settings, open_world(settings) as world, open_capture(MARK, ()) as capture:
        with open_site([OPAQUE[0]]) as site:
            yield Box(world, site, capture), lambda name, number: world.processes[name].signal(number)
        assert capture.sightings == []


def wait_for(condition: Callable[[], bool]) -> None:
    """Until it is so; the caller's test fails by its own time-outs otherwise."""
    for _ in range(1000):
        if condition():
            return
        select.select([], [], [], 0.02)
    raise AssertionError("it never came to that")


def connections(box: Box) -> int:
    return sum(1 for arrival in box.site.since(0) if arrival.kind == "connection")


def arrived(box: Box, text: str) -> bool:
    return any(arrival.detail == text for arrival in box.site.since(0))


def test_gateway_killed_under_a_connection() -> None:
    with own_box() as (box, send), box.sandbox() as sandbox:
        agent = sandbox.agent()
        agent.begin("tcp.held", *OPAQUE, OPAQUE[0], 5)
        wait_for(lambda: arrived(box, "held"))
        send("sandboxd-gate-w", signal.SIGKILL)
        # No name can be asked for: nobody has told the next gateway what this sandbox may do.
        assert agent.end("tcp.held")[0] in ("ECONNRESET", "eof")
        assert connections(box) == 1
        box.world.gateway.close()
        box.world.gateway = box.world.open_gateway()
        assert agent.run("tcp.short", *OPAQUE, 5.0) in ("EAI_AGAIN", "ECONNRESET", "EAI_NONAME")
        box.world.tell(box.registration(sandbox.name, MAIN, ids.ulid()))
        assert agent.run("tcp.short", *OPAQUE, 5.0) == "data short"


def test_literals_are_reset_while_no_gateway_lives() -> None:
    with own_box() as (box, send), box.sandbox() as sandbox:
        agent = sandbox.agent()
        send("sandboxd-gate-w", signal.SIGKILL)
        for _ in range(20):
            assert agent.run("tcp.fetch", "203.0.113.77", 80, MARK) == "ECONNRESET"
        assert connections(box) == 0


def test_gateway_stopped() -> None:
    with own_box() as (box, send), box.sandbox() as sandbox:
        agent = sandbox.agent()
        assert agent.run("tcp.short", *OPAQUE, 5.0) == "data short"
        before = connections(box)
        send("sandboxd-gate-w", signal.SIGSTOP)
        try:
            assert agent.run("tcp.short", "203.0.113.77", 9000, 2.0) == "timeout"
            assert agent.run("dns.getaddrinfo", OPAQUE[0]) == "EAI_AGAIN"
            assert connections(box) == before
        finally:
            send("sandboxd-gate-w", signal.SIGCONT)
        assert agent.run("tcp.short", *OPAQUE, 5.0) == "data short"


def test_warden_killed_ends_the_workload() -> None:
    with own_box() as (box, send):
        sandbox = started(box)
        container = sandbox.created.container
        agent = sandbox.agent()
        agent.begin("tcp.held", *OPAQUE, OPAQUE[0], 0)
        wait_for(lambda: arrived(box, "held"))
        send("sandboxd-warden", signal.SIGKILL)
        ended(agent)
        wait_for(lambda: not pids_of_container(container))
        wait_for(lambda: container not in {entry["Id"] for entry in engine("GET", "/containers/json?all=true")})


def test_guardian_killed_ends_the_workload() -> None:
    with own_box() as (box, send):
        sandbox = started(box)
        agent = sandbox.agent()
        agent.begin("tcp.held", *OPAQUE, OPAQUE[0], 0)
        wait_for(lambda: arrived(box, "held"))
        send("sandboxd-guard", signal.SIGKILL)
        ended(agent)
        wait_for(lambda: not pids_of_container(sandbox.created.container))


def ended(agent: Agent) -> None:
    """The workload is over. Its connection may have been reset a moment earlier: then it says so, and no more."""
    last = agent.process.line()
    if last:
        assert json.loads(last) == {"inside": ["ECONNRESET"], "errors": ""}
        assert agent.process.line() == ""


def started(box: Box) -> Sandbox:
    """A sandbox that nobody removes: its warden is about to die."""
    name, canary = ids.sandbox_id(), ids.ulid()
    created = box.world.ask(protocol.Create(protocol.ContainerSpec(name, "escape", "mcp:attempt", IMAGE)))
    box.world.ask(protocol.Start(name))
    box.world.ask(protocol.Seal(name))
    box.world.tell(box.registration(name, MAIN, canary))
    probed = box.world.ask(protocol.Probe(name, canary)).results
    from contextlib import ExitStack

    return Sandbox(name, created, box.world, probed, 0, ExitStack())


def test_policy_tightened_under_a_connection(box: Box) -> None:
    with box.sandbox() as sandbox:
        mark = box.site.mark()
        agent = sandbox.agent()
        agent.begin("tcp.held", *OPAQUE, OPAQUE[0], 1)
        wait_for(lambda: any(a.detail == "held" for a in box.site.since(mark)))
        box.world.tell(box.registration(sandbox.name, EMPTY, ids.ulid(), revision=2))
        assert agent.end("tcp.held") == ["ECONNRESET", "EAI_AGAIN"]
        closed = [r for r in sandbox.records() if r.event.reason is Reason.POLICY_REVOKED]
        assert {record.event.event for record in closed} == {"close"}
        assert not any(a.detail == "again" for a in box.site.since(mark))


def test_nothing_launches_before_seal_and_probe(box: Box) -> None:
    name = ids.sandbox_id()
    launch = protocol.Launch(name, ("true",), {})
    box.world.ask(protocol.Create(protocol.ContainerSpec(name, "escape", "mcp:attempt", IMAGE)))
    try:
        for step in (protocol.Start(name), protocol.Seal(name)):
            with pytest.raises(RefusedError):
                box.world.ask_for(launch)
            box.world.ask(step)
        with pytest.raises(RefusedError):
            box.world.ask_for(launch)
    finally:
        box.world.ask(protocol.Remove(name))


def test_a_probe_that_fails_is_the_end(box: Box) -> None:
    """Nobody registered the sandbox, so its canary stays silent: it does not start."""
    name = ids.sandbox_id()
    box.world.ask(protocol.Create(protocol.ContainerSpec(name, "escape", "mcp:attempt", IMAGE)))
    try:
        box.world.ask(protocol.Start(name))
        box.world.ask(protocol.Seal(name))
        results = box.world.ask(protocol.Probe(name, "no such canary")).results
        assert [result.name for result in results if not result.ok]
        with pytest.raises(RefusedError):
            box.world.ask_for(protocol.Launch(name, ("true",), {}))
    finally:
        box.world.ask(protocol.Remove(name))


def test_every_sandbox_was_probed(box: Box) -> None:
    with box.sandbox() as sandbox:
        assert len(sandbox.probed) >= 8
        assert all(result.ok for result in sandbox.probed)


@pytest.mark.parametrize(
    "policy",
    [
        {"rules": [], "alow": []},
        {"rules": [{"id": "a", "action": "allow", "to": {"hosts": []}, "proto": "tls"}]},
        {"rules": [{"id": "a", "action": "permit", "to": {"hosts": ["a.test"], "ports": [443]}, "proto": "tls"}]},
        {"mode": "relaxed"},
        {"rules": "all"},
    ],
    ids=["unknown-key", "empty-hosts", "unknown-action", "unknown-mode", "rules-not-a-list"],
)
def test_rules_that_fail_to_load_change_nothing(box: Box, policy: dict[str, object]) -> None:
    with box.sandbox("empty") as sandbox:
        message = box.registration(sandbox.name, EMPTY, ids.ulid(), revision=2)
        broken = control.Register(**{**_fields(message), "policies": (policy,)})
        with pytest.raises(RefusedError):
            box.world.tell(broken)
        agent = sandbox.agent()
        assert agent.run("dns.lookup", "allowed.test")["rcode"] == 5


def _fields(message: control.Register) -> dict[str, object]:
    return {name: getattr(message, name) for name in message.__dataclass_fields__}


def test_no_scope_at_all_denies_everything(box: Box) -> None:
    with box.sandbox() as sandbox:
        message = box.registration(sandbox.name, MAIN, ids.ulid(), revision=2)
        box.world.tell(control.Register(**{**_fields(message), "policies": ()}))
        assert sandbox.agent().run("dns.lookup", "allowed.test")["rcode"] == 5


def test_a_narrower_scope_narrows(box: Box) -> None:
    with box.sandbox() as sandbox:
        message = box.registration(sandbox.name, MAIN, ids.ulid(), revision=2)
        narrow = EgressPolicy.from_wire({"rules": [
            {"id": "one", "action": "allow", "to": {"hosts": ["second.test"], "ports": [443]}, "proto": "tls"},
        ]}).to_wire()  # fmt: skip
        box.world.tell(control.Register(**{**_fields(message), "policies": (*message.policies, narrow)}))
        agent = sandbox.agent()
        assert agent.run("dns.lookup", "allowed.test")["rcode"] == 5
        assert agent.run("tcp.tls", "second.test") == "http 200"


def test_neighbours_do_not_see_each_other(box: Box) -> None:
    with box.sandbox() as first, box.sandbox() as second:
        listening, trying = first.agent(), second.agent()
        listening.begin("tcp.listen", "0.0.0.0", 7777, f"n{MARK}")
        assert listening.process.line() == "listening"
        assert trying.run("tcp.send", "10.0.0.2", 7777, MARK) == "ECONNREFUSED"
        assert trying.run("tcp.send", "127.0.0.1", 7777, MARK) == "ECONNREFUSED"
        assert trying.run("other.abstract", f"n{MARK}") == "ECONNREFUSED"
        assert trying.run("other.unix_names") == []
        assert listening.end("tcp.listen") == "nobody"
        assert first.created.uid != second.created.uid


def test_a_neighbours_synthetic_address_is_nobodys(box: Box) -> None:
    with box.sandbox() as first, box.sandbox() as second:
        (address,) = first.agent().run("wire.ask", "allowed.test")["answers"]
        assert second.agent().run("tcp.tls", address, 443, "allowed.test") == "ECONNRESET"


def test_one_that_takes_all_it_can_holds_up_nobody(box: Box) -> None:
    with box.sandbox() as greedy, box.sandbox() as modest:
        taking = greedy.agent()
        asking = modest.agent()
        before = connections(box)
        taking.begin("tcp.held_many", *OPAQUE, 300, 3.0)
        wait_for(lambda: connections(box) - before > 200)
        assert asking.run("tcp.fetch", "plain.test") == "http 200"
        assert asking.run("tcp.tls", "allowed.test") == "http 200"
        assert 200 < taking.end("tcp.held_many") <= 256


def test_quota_of_names(box: Box) -> None:
    with box.sandbox() as sandbox:
        names = [f"{MARK}{number}.wild.test" for number in range(5000)]
        counts = sandbox.agent().run("dns.many_at_once", names)
        assert counts == {"found": 4096, "rcode 5": 904}
        # A query is asked again where the rate limit cut its connection before the answer: more than 904 records.
        refused = {r.event.destination.host for r in sandbox.records() if r.event.reason is Reason.QUOTA_NAMES}
        assert refused == set(names[4096:])


def test_secrets_are_not_in_what_the_engine_shows(box: Box) -> None:
    secret = f"secret-{MARK}"
    with box.sandbox() as sandbox:
        process = sandbox.launch(["python3", "-c", "import os; print(os.environ['TOKEN'], flush=True); input()"],
                                 {"PATH": "/usr/bin:/bin", "TOKEN": secret})  # fmt: skip
        assert process.line() == secret
        container = sandbox.created.container
        shown = str(engine("GET", f"/containers/{container}/json")) + str(engine("GET", f"/containers/{container}/top"))
        assert secret not in shown
        for pid in pids_of_container(container):
            assert secret not in Path(f"/proc/{pid}/cmdline").read_text()
        left = b"".join(path.read_bytes() for path in box.world.settings.state_dir.rglob("*") if path.is_file())
        assert secret.encode() not in left


def test_a_socket_that_appears_in_a_workspace_can_not_be_reached(box: Box) -> None:
    """None is there at the start; the default for what mounts a writable directory is no Unix sockets at all."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, socket.socket(socket.AF_UNIX) as late:
        Path(folder).chmod(0o777)
        mount = protocol.Mount(folder, "/workspace", read_only=False)
        with box.sandbox(mounts=(mount,), unix_sockets=False) as sandbox:
            agent = sandbox.agent()
            late.bind(f"{folder}/late.sock")
            Path(folder, "late.sock").chmod(0o777)
            late.listen()
            assert agent.run("kernel.tree", ["/workspace"]) == {"/workspace": ["late.sock"]}
            assert agent.run("other.unix_path", "/workspace/late.sock") == "EPERM"


def test_no_name_moves_the_terminal_of_who_reads_the_log(box: Box) -> None:
    """What a query, a ClientHello or a Host says is shown as letters and digits only."""
    with box.sandbox() as sandbox:
        agent = sandbox.agent()
        agent.run("dns.lookup", "\x1b[2J\x1b]0;owned\x07\nallow\xe2\x80\xae.example")
        agent.run("tcp.hello", "allowed.test", ["\x1b[2J\nallow"])
        agent.run("tcp.fetch", "plain.test", 80, "", "\x9b2Jplain.test")
        shown = str([record.event for record in sandbox.records()])
    assert all(32 <= ord(character) < 127 for character in shown)
    assert "\\x1b" not in shown
    assert "\\n" not in shown


def test_a_refusal_names_its_record(box: Box) -> None:
    with box.sandbox() as sandbox:
        answer = sandbox.agent().run("tcp.body", "paths.test", 80, f"/{MARK}")
        refusal = json.loads(answer)
        (record,) = [r for r in sandbox.records() if r.event.id == refusal["id"]]
    assert (refusal["rule"], refusal["reason"], refusal["retry"]) == ("paths", "method_path", False)
    assert record.event.event == "request"


def test_the_capture_sees_what_it_must(box: Box) -> None:
    """The capture that finds nothing can find something: an allowed connection that carries its mark."""
    with open_capture(seen := f"w{MARK}", ["127.0.0.1/32"]) as capture, box.sandbox() as sandbox:
        assert sandbox.agent().run("tcp.send", *OPAQUE, seen) == f"data {seen}"[:45]
        wait_for(lambda: any("mark" in sighting.why for sighting in capture.sightings))
    box.capture.sightings.clear()  # this mark contains the one that the session looks for
