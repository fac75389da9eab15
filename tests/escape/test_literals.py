"""Addresses instead of names: under rules for hosts none is open, under any rule the floor stays closed."""

import pytest

from tests.escape.attempt import MARK, Attempt, attempt
from tests.kit.box import HOST_ADDRESS, Box

METADATA = "169.254.169.254"
# What a program may write and the C library reads as METADATA.
SPELLINGS = ("2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "0xa9.0xfe.0xa9.0xfe")
CLOSED = {
    "metadata": (METADATA, "floor_metadata"),
    "azure": ("168.63.129.16", "floor_metadata"),
    "alibaba": ("100.100.100.200", "floor_metadata"),
    "link-local": ("169.254.7.7", "floor_link_local"),
    "documentation-1": ("198.51.100.77", "floor_documentation"),
    "documentation-2": ("203.0.113.77", "floor_documentation"),
    "benchmark": ("198.19.255.9", "floor_benchmark"),
    "relay-6to4": ("192.88.99.1", "floor_reserved"),
    "protocol-assignments": ("192.0.0.8", "floor_reserved"),
    "class-e": ("240.0.0.1", "floor_reserved"),
    "this-network": ("0.1.2.3", "floor_unspecified"),
    "host": (HOST_ADDRESS, "floor_host"),
    "docker-bridge": ("172.17.0.1", "floor_host"),
}
PRIVATE = {"ten": "10.0.0.1", "carrier": "100.64.0.1", "one-seven-two": "172.31.0.1", "one-nine-two": "192.168.0.1"}

ATTEMPTS = [
    *(
        attempt(
            f"{name}-with-host-rules", "tcp.fetch", address, 80, MARK, inside="ECONNRESET",
            records=(f"decision deny no_match - {address}:80",),
        )
        for name, (address, _) in CLOSED.items()
    ),
    *(
        attempt(
            f"{name}-with-everything-open", "tcp.fetch", address, 80, MARK, inside="ECONNRESET", policy="wide",
            records=(f"decision deny {reason} any4 {address}:80",),
        )
        for name, (address, reason) in CLOSED.items()
    ),
    *(
        attempt(
            f"private-{name}-with-everything-open", "tcp.fetch", address, 80, MARK, inside="ECONNRESET", policy="wide",
            records=(f"decision deny floor_private any4 {address}:80",),
        )
        for name, address in PRIVATE.items()
    ),
    *(
        attempt(
            f"spelled-{number}", "tcp.fetch", spelling, 80, MARK, inside="ECONNRESET",
            records=(f"decision deny no_match - {METADATA}:80",),
        )
        for number, spelling in enumerate(SPELLINGS)
    ),
    attempt("mapped", "tcp.mapped", METADATA, 80, MARK, inside="ECONNRESET", records=(
        f"decision deny no_match - {METADATA}:80",
    )),
    attempt("public", "tcp.fetch", "8.8.8.8", 443, MARK, inside="ECONNRESET", records=(
        "decision deny no_match - 8.8.8.8:443",
    )),
    attempt("public-dns-port", "dns.lookup", f"{MARK}.example", "TXT", "8.8.8.8", True,
            inside={"rcode": 5, "answers": [], "ede": 15}, records=(f"dns deny no_match - {MARK}.example",)),
    attempt("docker-resolver", "tcp.fetch", "127.0.0.11", 53, MARK, inside="ECONNREFUSED"),
    attempt("own-loopback", "tcp.fetch", "127.0.0.1", 80, MARK, inside="ECONNREFUSED"),
    attempt("zero", "tcp.fetch", "0.0.0.0", 80, MARK, inside="ECONNREFUSED"),
    attempt("own-address", "tcp.fetch", "10.0.0.2", 80, MARK, inside="ECONNREFUSED"),
    attempt("broadcast", "tcp.fetch", "255.255.255.255", 80, MARK, inside="ENETUNREACH"),
    attempt("multicast", "tcp.fetch", "224.0.0.1", 80, MARK, inside="ENETUNREACH"),
    *(
        attempt(f"docker-api-{port}", "tcp.fetch", "172.17.0.1", port, MARK, inside="ECONNRESET",
                records=(f"decision deny no_match - 172.17.0.1:{port}",))
        for port in (2375, 2376)
    ),
    attempt("host-ssh", "tcp.connect", HOST_ADDRESS, 22, inside="connected", records=(
        f"decision deny no_match - {HOST_ADDRESS}:22",
    )),
    attempt("unasked-synthetic", "tcp.fetch", "198.18.77.77", 443, MARK, inside="ECONNRESET", records=(
        "decision deny no_match - 198.18.77.77:443",
    )),
    attempt("name-server-other-port", "tcp.fetch", "198.18.0.1", 443, MARK, inside="ECONNRESET", records=(
        "decision deny no_match - 198.18.0.1:443",
    )),
    attempt("sni-of-allowed-to-foreign", "tcp.tls", "203.0.113.77", 443, "allowed.test", inside="ECONNRESET",
            records=("decision deny no_match - 203.0.113.77:443",)),
    attempt("host-of-allowed-to-foreign", "tcp.fetch", "203.0.113.77", 80, MARK, "plain.test", inside="ECONNRESET",
            records=("decision deny no_match - 203.0.113.77:80",)),
    attempt("bound-to-loopback-device", "tcp.bound_to_device", "203.0.113.77", 80, "lo", MARK, inside="ECONNRESET",
            records=("decision deny no_match - 203.0.113.77:80",)),
    attempt("fast-open", "tcp.fast_open", "203.0.113.77", 80, MARK, inside="ECONNRESET",
            records=("decision deny no_match - 203.0.113.77:80",)),
    attempt("dissolved-and-reconnected", "tcp.reconnected", "opaque.test", "203.0.113.77", 9000, MARK,
            inside="ECONNRESET", records=("decision deny no_match - 203.0.113.77:9000",)),
]  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda case: case.id)
def test_literal_address(box: Box, case: Attempt) -> None:
    box.check(case)
