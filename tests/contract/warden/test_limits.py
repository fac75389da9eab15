"""What holds around a workload: limits, user, files, an image's health check and volumes, the end of everything."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd import limits
from sandboxd.errors import SandboxdError
from sandboxd.warden import protocol as p
from sandboxd.warden.client import WardenClient, read_exit
from sandboxd.warden.server.cgroups import cgroup_of
from sandboxd.warden.server.engine import Engine
from tests.kit.gateway import CANARY
from tests.kit.warden import Running, import_image, launch, run_to_end, spec_of

pytestmark = pytest.mark.docker


def pid_of(engine: Engine, running: Running) -> int:
    return int(engine.inspect(running.created.container)["State"]["Pid"])


def test_nothing_to_gain(client: WardenClient, image: str, engine: Engine) -> None:
    running = launch(client, spec_of(image), "workload", "linger")
    running.read_until(b"ready")
    pids = cgroup_of(pid_of(engine, running)).pids()
    assert len(pids) == 3  # the gate, the workload and its child
    for pid in pids:
        lines = (line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        status = {name: value.split() for name, value in lines}
        assert status["Uid"] == status["Gid"] == [str(running.created.uid)] * 4
        assert {status[f"Cap{kind}"][0] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
        assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])
        limit_lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
        found = {line[:25].strip(): line[25:].split()[:2] for line in limit_lines}
        assert found["Max open files"] == ["4096", "4096"]
        assert found["Max core file size"] == ["0", "0"]


def test_limits_of_the_group(client: WardenClient, image: str, engine: Engine) -> None:
    resources = p.Resources(memory=64 << 20, cpus=0.5, pids=16)
    running = launch(client, spec_of(image, resources=resources), "workload", "echo")
    group = cgroup_of(pid_of(engine, running))
    assert group.sockets_charged()
    host = engine.inspect(running.created.container)["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (64 << 20, 64 << 20, 5e8, 16)
    assert (group.processes / "pids.max").read_text().strip() == "16"
    if not group.unified:
        written = (group.memory / "memory.kmem.tcp.limit_in_bytes").read_text()
        assert int(written) == limits.SOCKET_MEMORY


def test_sockets_take_no_memory_of_the_host(client: WardenClient, image: str, engine: Engine) -> None:
    """A thousand full connections to itself: past the limit each still gets one segment, and no more."""
    running = launch(client, spec_of(image), "workload", "pin", "1000")
    running.read_until(b"ready")
    group = cgroup_of(pid_of(engine, running))
    pinned = int(running.output[1].split()[1])
    if group.unified:
        assert (group.memory / "memory.stat").read_text().count("sock ") == 1
    else:
        used = int((group.memory / "memory.kmem.tcp.usage_in_bytes").read_text())
        assert used <= limits.SOCKET_MEMORY + 1000 * 96 * 1024
    assert pinned < 128 << 20


def test_terminals_are_left_for_others(client: WardenClient, image: str) -> None:
    assert run_to_end(client, spec_of(image), "workload", "terminals") == f"{limits.TERMINALS} ENOSPC\n"


def test_terminals_that_an_image_covers(client: WardenClient, built: Path) -> None:
    name = f"sandboxd-test/covered:{os.getpid()}"
    import_image(name, {"bin/workload": (built / "workload").read_bytes()}, 'VOLUME ["/dev/pts"]')
    try:
        assert run_to_end(client, spec_of(name), "workload", "terminals") == "0 ENOENT\n"
    finally:
        subprocess.run(["docker", "image", "rm", "-f", name], check=True, capture_output=True)


def test_an_image_of_too_many_volumes(client: WardenClient, built: Path) -> None:
    name = f"sandboxd-test/volumes:{os.getpid()}"
    volumes = json.dumps([f"/v{number}" for number in range(limits.VOLUMES + 1)])
    import_image(name, {"bin/workload": (built / "workload").read_bytes()}, f"VOLUME {volumes}")
    try:
        with pytest.raises(SandboxdError, match="volumes") as refused:
            client.create(spec_of(name))
        assert refused.value.code == "image_volumes"
    finally:
        subprocess.run(["docker", "image", "rm", "-f", name], check=True, capture_output=True)


def test_too_much_memory(client: WardenClient, image: str) -> None:
    running = launch(client, spec_of(image, resources=p.Resources(memory=32 << 20)), "workload", "hog", "256")
    assert read_exit(running.exit) == p.Exited(137, oom=True)


def test_inside_only_its_own(client: WardenClient, image: str) -> None:
    paths = ("/proc/1/environ", "/etc/passwd", "/etc/resolv.conf", "/home/sandbox", "/tmp", "/.sandboxd/gate")
    running = launch(client, spec_of(image), "workload", "show", *paths)
    shown = dict(line.split(" ", 1) for line in running.read_all().decode().splitlines() if line.startswith("/"))
    uid = running.created.uid
    assert shown["/proc/1/environ"].startswith("0:0 ")  # undumpable: root's, and nothing was read
    assert shown["/proc/1/environ"].split() == ["0:0", "400"]
    assert shown["/home/sandbox"].startswith(f"{uid}:{uid} ")
    assert shown["/tmp"].startswith(f"{uid}:{uid} ")
    assert shown["/.sandboxd/gate"].startswith("0:0 555 ")
    assert "nameserver 198.18.0.1" in shown["/etc/resolv.conf"]


def test_the_root_is_read_only(client: WardenClient, image: str) -> None:
    for path, result in (("/etc/x", "EROFS"), ("/bin/x", "EROFS"), ("/etc/hosts", "EEXIST"), ("/tmp/x", "ok")):
        assert run_to_end(client, spec_of(image), "workload", "write", path, "x") == f"{path} {result}\n"
    for path in ("/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/core_pattern"):
        assert run_to_end(client, spec_of(image), "workload", "chmod", path, "666") in ("EPERM\n", "EROFS\n")


@pytest.fixture(scope="module")
def hostile_image(built: Path) -> Iterator[str]:
    """An image with a health check, a volume, an entrypoint, a user and a working directory of its own."""
    name = f"sandboxd-test/hostile:{os.getpid()}"
    changes = (
        'HEALTHCHECK --interval=1s CMD ["/bin/workload", "linger"]',
        'VOLUME ["/data", "/more/data/", "//slashes"]',
        'ENTRYPOINT ["/bin/workload", "linger"]',
        "USER 0",
        "WORKDIR /data",
        "ENV FROM_IMAGE=1 LD_PRELOAD=/data/evil.so",
        "LABEL sandboxd.uid=0 sandboxd.owner=1",
    )
    import_image(name, {"bin/workload": (built / "workload").read_bytes()}, *changes)
    yield name
    subprocess.run(["docker", "image", "rm", "-f", name], check=True, capture_output=True)


def test_an_images_own_wishes(client: WardenClient, hostile_image: str, engine: Engine) -> None:
    plain = engine.create(f"sandboxd-test-plain-{os.getpid()}", {"Image": hostile_image, "HostConfig": {}})
    assert engine.inspect(plain)["Config"]["Healthcheck"]["Test"][0] == "CMD"  # it would have one
    engine.remove(plain)
    running = launch(client, spec_of(hostile_image), "workload", "env")
    found = engine.inspect(running.created.container)
    assert found["Config"]["Healthcheck"]["Test"] == ["NONE"]
    assert "Health" not in found["State"]
    assert found["Config"]["Labels"]["sandboxd.owner"] != "1"
    assert [mount["Type"] for mount in found["Mounts"] if mount["Type"] == "volume"] == []
    assert running.read_all() == b"PATH=/bin\n"
    for path in ("/data/x", "/more/data/x"):
        assert run_to_end(client, spec_of(hostile_image), "workload", "write", path, "x") == f"{path} ok\n"


def test_connect_inside(client: WardenClient, image: str) -> None:
    running = launch(client, spec_of(image), "workload", "serve", "8080")
    running.read_until(b"ready")
    with client.connect(running.id, 8080) as sock:
        sock.sendall(b"hello")
        assert sock.recv(16) == b"hello"
    assert read_exit(running.exit).code == 0
    with pytest.raises(SandboxdError) as refused:
        client.connect(running.id, 70000)
    assert refused.value.code == "bad_port"


def test_connect_to_nothing(client: WardenClient, image: str) -> None:
    running = launch(client, spec_of(image), "workload", "linger")
    with pytest.raises(SandboxdError) as refused:
        client.connect(running.id, 8080)
    assert refused.value.code == "connect_failed"


def test_signals_and_a_deaf_workload(client: WardenClient, image: str, engine: Engine) -> None:
    running = launch(client, spec_of(image), "workload", "linger")
    running.read_until(b"ready")
    client.signal(running.id, signal.SIGUSR1)
    assert read_exit(running.exit).code == 128 + signal.SIGUSR1
    with pytest.raises(SandboxdError) as refused:
        client.signal(running.id, 65)
    assert refused.value.code == "bad_signal"
    deaf = launch(client, spec_of(image), "workload", "deaf")
    deaf.read_until(b"ready")
    group = cgroup_of(pid_of(engine, deaf))
    client.stop(deaf.id, 0.2)
    assert read_exit(deaf.exit).code == 137
    client.remove(deaf.id)
    assert not group.processes.exists() or group.pids() == ()


def test_stop_before_launch(client: WardenClient, image: str, engine: Engine) -> None:
    for steps in (0, 1, 2):
        spec = spec_of(image)
        container = client.create(spec).container
        for step in (client.start, client.seal)[:steps]:
            step(spec.sandbox)
        client.stop(spec.sandbox, 1.0)
        client.remove(spec.sandbox)
        assert engine.inspect_or_none(container) is None


def test_nothing_listens_on_the_lifelines_port_after_launch(client: WardenClient, image: str) -> None:
    assert run_to_end(client, spec_of(image), "workload", "dial", "127.0.0.1", "15099") == "connect ECONNREFUSED\n"


def test_the_gateways_refusals(client: WardenClient, image: str) -> None:
    assert run_to_end(client, spec_of(image), "workload", "dial", "192.0.2.1", "443") == "read ECONNRESET\n"
    canary = run_to_end(client, spec_of(image), "workload", "dial", p.CANARY_ADDRESS, "1")
    assert canary == f"{CANARY}.\n"


def test_a_wrong_canary_is_no_start(client: WardenClient, image: str) -> None:
    spec = spec_of(image)
    client.create(spec)
    client.start(spec.sandbox)
    client.seal(spec.sandbox)
    results = client.probe(spec.sandbox, "another")
    assert [result.name for result in results if not result.ok] == ["the canary answers"]
    with pytest.raises(SandboxdError) as refused:
        client.launch(spec.sandbox, ["workload", "env"], {})
    assert refused.value.code == "out_of_order"


def test_missing_things_are_named(client: WardenClient, image: str) -> None:
    with pytest.raises(SandboxdError) as refused:
        client.create(spec_of("sandboxd-test/none:1"))
    assert refused.value.code == "image_missing"
    assert "image ls" in refused.value.hint
    with pytest.raises(SandboxdError) as refused:
        client.start("sb-0000000000000000")
    assert refused.value.code == "no_sandbox"


def test_the_same_name_twice(client: WardenClient, image: str, settings: object) -> None:
    running = launch(client, spec_of(image), "workload", "echo")
    with pytest.raises(SandboxdError) as refused:
        client.create(p.ContainerSpec(running.id, "agent", "mcp:test", image))
    assert refused.value.code == "sandbox_exists"
    running.stream.sendall(b"still here")
    running.read_until(b"still here")
    running.stream.shutdown(socket.SHUT_WR)
    assert read_exit(running.exit).code == 0
