"""`deploy/bench [--quick]`: latency of a call, start to first `tools/list`, launch of a gated container, memory, audit.

Prints each figure beside its alternative's and the goal. Rounds of the ways alternate, so that a machine that slows
down slows down all of them.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.bench.audit import audit
from tests.bench.memory import container_bytes, containers_of, proportional_bytes, tree_of
from tests.bench.ways import open_client
from tests.kit.command import Command, open_command
from tests.kit.left import wait_until_nothing
from tests.kit.site import open_site
from tests.kit.world import open_folders, open_world

WAYS = ("bare", "docker", "run")
US, MS, MIB = 1e6, 1e3, 1 << 20


def quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def verdict(ok: bool) -> str:
    return "met" if ok else "NOT met"


def latency(command: Command, calls: int) -> None:
    """Round trips of one small message, the ways in turns of 50."""
    seen: dict[str, list[float]] = {way: [] for way in WAYS}
    with ExitStack() as stack:
        clients = {way: stack.enter_context(open_client(way, command)) for way in WAYS}
        for client in clients.values():
            client.request("initialize")
        for _ in range(calls // 50):
            for way, client in clients.items():
                seen[way] += [client.request("tools/call") for _ in range(50)]
    median = {way: statistics.median(values) * US for way, values in seen.items()}
    tail = {way: quantile(values, 0.99) * US for way, values in seen.items()}
    print(f"latency of a call, µs ({calls} calls each)")
    for way in WAYS:
        added = f"added {median[way] - median['bare']:+7.0f} {tail[way] - tail['bare']:+7.0f}" if way != "bare" else ""
        print(f"  {way:7} median {median[way]:7.0f}  p99 {tail[way]:7.0f}  {added}")
    added, by_docker = median["run"] - median["bare"], median["docker"] - median["bare"]
    print(f"  goal: run adds ≤ 100 median: {verdict(added <= 100)}; "
          f"≤ 200 p99: {verdict(tail['run'] - tail['bare'] <= 200)}; "
          f"≤ docker + 30: {verdict(added <= by_docker + 30)}")  # fmt: skip


def start(command: Command, rounds: int) -> None:
    """From starting the command to the first `tools/list`'s answer."""
    seen: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            begin = time.perf_counter()
            with open_client(way, command) as client:
                client.request("initialize")
                client.request("tools/list")
                seen[way].append(time.perf_counter() - begin)
    median = {way: statistics.median(values) * MS for way, values in seen.items()}
    print(f"start to first tools/list, ms (median of {rounds})")
    for way in WAYS:
        print(f"  {way:7} {median[way]:7.0f}")
    ratio = median["run"] / median["docker"]
    print(f"  run over docker run -i: {ratio:.2f}x; goal ≤ 1.3x: {verdict(ratio <= 1.3)}")


def launch(rounds: int) -> None:
    """From orders to the first byte of a container that waits, gated, sealed and probed."""
    from tests.kit.box import Box
    from tests.kit.capture import Capture

    seen: list[float] = []
    with open_folders() as settings, open_site(["a.test"]) as site, open_world(settings) as world:
        box = Box(world, site, Capture(b"", ()))
        for _ in range(rounds):
            with box.sandbox("empty") as sandbox:
                begin = time.perf_counter()
                process = sandbox.launch(["/bin/echo", "x"])
                process.frame()
                seen.append(time.perf_counter() - begin)
                process.close()
    median = statistics.median(seen) * MS
    print(f"gated container to first byte, ms (median of {rounds}): {median:.1f}; goal ≤ 5: {verdict(median <= 5)}")


def fairness(rounds: int, half_open: int) -> None:
    """One exchange through the gateway, alone and while another sandbox begins connections and says nothing."""
    from tests.kit.box import Box
    from tests.kit.capture import Capture

    with open_folders() as settings, open_site(["plain.test", "opaque.test"]) as site, open_world(settings) as world:
        box = Box(world, site, Capture(b"", ()))
        with box.sandbox() as modest, box.sandbox() as greedy:
            asking, taking = modest.agent(), greedy.agent()
            alone = [asking.run("tcp.timed", "plain.test", 80) for _ in range(rounds)]
            taking.begin("tcp.half_open", "plain.test", 80, half_open, 250)
            beside = [asking.run("tcp.timed", "plain.test", 80) for _ in range(rounds)]
            stood = taking.end("tcp.half_open")
    one, other = statistics.median(alone) * MS, statistics.median(beside) * MS
    print(f"an exchange beside {half_open} half-open connections of another sandbox ({stood} stood), ms")
    print(f"  alone {one:.2f}, beside {other:.2f}: {other / one:.2f}x; goal ≤ 1.2x: {verdict(other / one <= 1.2)}")


def memory(command: Command, count: int) -> None:
    """What one more sandbox costs: our processes, the engine's, the container."""
    print(f"memory per sandbox, MiB ({count} of each)")
    for way in ("docker", "run"):
        with ExitStack() as stack:
            clients = [stack.enter_context(open_client(way, command)) for _ in range(count)]
            for client in clients:
                client.request("initialize")
            ours = sum(proportional_bytes(tree_of(client.process.pid)) for client in clients)
            containers = containers_of(way, command)
            shims = sum(proportional_bytes([pid]) for pid, _ in containers)
            inside = sum(container_bytes(identity) for _, identity in containers)
        parts = [part / count / MIB for part in (ours, shims, inside)]
        print(f"  {way:7} command {parts[0]:6.1f}  containerd's shim {parts[1]:6.1f}  in the container {parts[2]:6.1f}"
              f"  sum {sum(parts):6.1f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="deploy/bench")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("only", nargs="*", help="latency start launch fairness memory audit; default: all")
    options = parser.parse_args()
    quick: bool = options.quick
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/var/tmp") as folder:
        command = open_command(Path(folder))
        parts: dict[str, Callable[[], None]] = {
            "latency": lambda: latency(command, 1000 if quick else 5000),
            "start": lambda: start(command, 5 if quick else 20),
            "launch": lambda: launch(5 if quick else 30),
            "fairness": lambda: fairness(100 if quick else 500, 1000 if quick else 10_000),
            "memory": lambda: memory(command, 2 if quick else 8),
            "audit": lambda: audit(10_000 if quick else 50_000),
        }
        for name, part in parts.items():
            if not options.only or name in options.only:
                part()
        left = wait_until_nothing(command.scope, 10)
        assert not left, left


if __name__ == "__main__":
    main()
