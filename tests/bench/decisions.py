"""How long a policy of 10,000 rules takes to load and compile, and a decision under it beside one under ten rules.

Run with `python -m tests.bench.decisions`; prints medians and 99th percentiles in microseconds.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

from sandboxd.policy.decide import decide, judge_address
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.loading import parse_policy
from sandboxd.policy.matching import CompiledEgress, compile_egress
from sandboxd.policy.requests import ConnectRequest, DnsRequest, HttpRequest, Target, TlsRequest
from sandboxd.policy.wire import read_wire

SIZES = (10, 100, 1_000, 10_000)
ROUNDS = 2_000


def policy_text(rules: int) -> str:
    """A quarter each: exact hosts, wildcards, address blocks, denials; and the rules that the requests below meet."""
    lines = ["egress:", "  rules:"]
    for number in range(rules - 3):
        where = (
            f"hosts: [h{number}.example.com]",
            f'hosts: ["**.w{number}.example.com"]',
            f"cidrs: [11.{number >> 8 & 255}.{number & 255}.0/24]",
            f"hosts: [d{number}.example.com]",
        )[number % 4]
        what = "action: deny" if number % 4 == 3 else "action: allow, proto: tls"
        lines.append(f"    - {{id: r{number}, {what}, to: {{{where}, ports: [443]}}}}")
    lines += [
        "    - {id: met, action: allow, proto: tls, to: {hosts: [api.example.org], ports: [443]}}",
        '    - {id: wild, action: allow, proto: tls, to: {hosts: ["**.example.net"], ports: [443]}}',
        "    - {id: plain, action: allow, proto: http, to: {hosts: [api.example.org], ports: [80]}}",
    ]
    return "\n".join(lines) + "\n"


def requests() -> dict[str, Callable[[CompiledEgress], object]]:
    """One of each kind, on a name under an exact rule but where the name says otherwise."""
    met, plain = (Target(canonical_host("api.example.org"), None, port) for port in (443, 80))
    wild = Target(canonical_host("a.b.c.example.net"), None, 443)
    foreign = Target(canonical_host("a.b.c.d.example.com"), None, 443)
    address = bytes([93, 184, 216, 34])
    return {
        "dns": lambda policy: decide(policy, DnsRequest(canonical_host("api.example.org"))),
        "connect, exact": lambda policy: decide(policy, ConnectRequest(met)),
        "connect, wildcard": lambda policy: decide(policy, ConnectRequest(wild)),
        "connect, no rule": lambda policy: decide(policy, ConnectRequest(foreign)),
        "connect, literal": lambda policy: decide(policy, ConnectRequest(Target(None, address, 443))),
        "first bytes, tls": lambda policy: decide(policy, TlsRequest(met, (b"api.example.org",), False)),
        "http request": lambda policy: decide(policy, HttpRequest(plain, "GET", b"api.example.org", "/a/b")),
        "resolved address": lambda policy: judge_address(
            policy, decide(policy, ConnectRequest(met)), met, address, is_host=False
        ),
    }


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def main() -> None:
    compiled: dict[int, CompiledEgress] = {}
    for size in SIZES:
        text = policy_text(size)
        started = time.process_time()
        document = parse_policy(text, "bench")
        loaded = time.process_time()
        policies = [read_wire(scope.to_wire()) for scope in document.scopes()]
        travelled = time.process_time()
        compiled[size] = compile_egress(policies, workload="mcp:a", pins=())
        parts = {"load": loaded - started, "wire": travelled - loaded, "compile": time.process_time() - travelled}
        print(f"{size:>6} rules, CPU seconds: " + ", ".join(f"{name} {part:.3f}" for name, part in parts.items()))
    print(f"\n{'µs, median / p99':<20}" + "".join(f"{size:>16}" for size in SIZES))
    for name, request in requests().items():
        cells: list[str] = []
        for size in SIZES:
            times = sorted(timed(partial(request, compiled[size])) * 1e6 for _ in range(ROUNDS))
            cells.append(f"{statistics.median(times):7.1f} / {times[len(times) * 99 // 100]:6.1f}")
        print(f"{name:<20}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
