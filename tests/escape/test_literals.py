"""Addresses instead of names: under rules for hosts none is open, under any rule the floor stays closed."""

from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.escape.attempt import MARK, Attempt, attempt
from tests.escape.policies import HOSTS_OWN
from tests.kit.box import HOST_ADDRESS, Box

NUMBERED = {
    "floor_documentation": ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
    "floor_private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
}


def class_of(address: str) -> str | None:
    """The floor's word for an address that this machine happens to have."""
    for word, networks in NUMBERED.items():
        if any(ip_address(address) in ip_network(network) for network in networks):
            return word
    return None


METADATA = "169.254.169.254"
# What a program may write and the C library reads as METADATA.
SPELLINGS = ("2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "0xa9.0xfe.0xa9.0xfe")
FOREIGN = "203.0.113.77"
BRIDGE = "172.17.0.1"  # Docker's own, an address of the host
CLOSED = {
    "metadata": (METADATA, "floor_metadata"),
    "azure": ("168.63.129.16", "floor_metadata"),
    "alibaba": ("100.100.100.200", "floor_metadata"),
    "link-local": ("169.254.7.7", "floor_link_local"),
    "documentation-1": ("198.51.100.77", "floor_documentation"),
    "documentation-2": (FOREIGN, "floor_documentation"),
    "benchmark": ("198.19.255.9", "floor_benchmark"),
    "relay-6to4": ("192.88.99.1", "floor_reserved"),
    "protocol-assignments": ("192.0.0.8", "floor_reserved"),
    "class-e": ("240.0.0.1", "floor_reserved"),
    "this-network": ("0.1.2.3", "floor_unspecified"),
    "host": (HOST_ADDRESS, class_of(HOST_ADDRESS) or "floor_host"),
    "docker-bridge": (BRIDGE, "floor_private"),
    "private-ten": ("10.0.0.1", "floor_private"),
    "private-carrier": ("100.64.0.1", "floor_private"),
    "private-one-seven-two": ("172.31.0.1", "floor_private"),
    "private-one-nine-two": ("192.168.0.1", "floor_private"),
}


def reset(address: str, reason: str, port: int = 80, rule: str = "-") -> dict[str, Any]:
    return {"inside": "ECONNRESET", "records": (f"decision deny {reason} {rule} {address}:{port}",)}


ATTEMPTS = [
    *(
        attempt(f"{name}-under-{policy}", "tcp.fetch", address, 80, MARK, policy=policy, **reset(address, reason))
        for policy in ("main", "wide")
        for name, (address, reason) in CLOSED.items()
    ),
    # Open by its very address, and still an address of this host.
    attempt("host-opened-by-address", "tcp.fetch", HOSTS_OWN, 80, MARK, policy="hosts-own",
            **reset(HOSTS_OWN, "floor_host", rule="hosts-own")),
    *(
        attempt(f"spelled-{number}", "tcp.fetch", spelling, 80, MARK, **reset(METADATA, "floor_metadata"))
        for number, spelling in enumerate(SPELLINGS)
    ),
    attempt("mapped", "tcp.mapped", METADATA, 80, MARK, **reset(METADATA, "floor_metadata")),
    attempt("public", "tcp.fetch", "8.8.8.8", 443, MARK, inside="http 403 no_match",
            records=("decision deny no_match - 8.8.8.8:443",)),
    attempt("public-port-not-open", "tcp.fetch", "8.8.8.8", 8443, MARK, policy="wide",
            **reset("8.8.8.8", "port", 8443)),
    attempt("public-dns-port", "dns.lookup", f"{MARK}.example", "TXT", "8.8.8.8", True,
            inside={"rcode": 5, "answers": [], "ede": 15}, records=(f"dns deny no_match - {MARK}.example",)),
    attempt("docker-resolver", "tcp.fetch", "127.0.0.11", 53, MARK, inside="ECONNREFUSED"),
    attempt("own-loopback", "tcp.fetch", "127.0.0.1", 80, MARK, inside="ECONNREFUSED"),
    attempt("zero", "tcp.fetch", "0.0.0.0", 80, MARK, inside="ECONNREFUSED"),
    attempt("own-address", "tcp.fetch", "10.0.0.2", 80, MARK, inside="ECONNREFUSED"),
    attempt("broadcast", "tcp.fetch", "255.255.255.255", 80, MARK, inside="ENETUNREACH"),
    attempt("multicast", "tcp.fetch", "224.0.0.1", 80, MARK, inside="ENETUNREACH"),
    *(
        attempt(f"docker-api-{port}", "tcp.fetch", BRIDGE, port, MARK, **reset(BRIDGE, "floor_private", port))
        for port in (2375, 2376)
    ),
    attempt("unasked-synthetic", "tcp.fetch", "198.18.77.77", 443, MARK,
            **reset("198.18.77.77", "floor_benchmark", 443)),
    attempt("name-server-other-port", "tcp.fetch", "198.18.0.1", 443, MARK,
            **reset("198.18.0.1", "floor_benchmark", 443)),
    attempt("sni-of-allowed-to-foreign", "tcp.tls", FOREIGN, 443, "allowed.test",
            **reset(FOREIGN, "floor_documentation", 443)),
    attempt("host-of-allowed-to-foreign", "tcp.fetch", FOREIGN, 80, MARK, "plain.test",
            **reset(FOREIGN, "floor_documentation")),
    attempt("bound-to-loopback-device", "tcp.bound_to_device", FOREIGN, 80, "lo", MARK,
            **reset(FOREIGN, "floor_documentation")),
    attempt("fast-open", "tcp.fast_open", FOREIGN, 80, MARK, inside="ENOTSUP"),
    attempt("dissolved-and-reconnected", "tcp.reconnected", "opaque.test", FOREIGN, 9000, MARK, inside="ECONNRESET",
            reaches=1, records=("decision allow allowed opaque opaque.test:9000",
                                f"decision deny floor_documentation - {FOREIGN}:9000")),
]  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda case: case.id)
def test_literal_address(box: Box, case: Attempt) -> None:
    box.check(case)
