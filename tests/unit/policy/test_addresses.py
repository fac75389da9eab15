"""The address floor: every block's first, last and neighbouring addresses, and every way to embed an IPv4 address."""

import ipaddress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd.policy.addresses import IPV4_BLOCKS, IPV6_BLOCKS, classify, is_floor
from sandboxd.reasons import Reason

PUBLIC, PRIVATE = "public", "private"

# first and last of a block, its class; what lies just before and just after.
EDGES = [
    ("0.0.0.0", "0.255.255.255", Reason.FLOOR_UNSPECIFIED, None, PUBLIC),
    ("10.0.0.0", "10.255.255.255", PRIVATE, PUBLIC, PUBLIC),
    ("100.64.0.0", "100.100.100.199", PRIVATE, PUBLIC, Reason.FLOOR_METADATA),
    ("100.100.100.200", "100.100.100.200", Reason.FLOOR_METADATA, PRIVATE, PRIVATE),
    ("100.100.100.201", "100.127.255.255", PRIVATE, Reason.FLOOR_METADATA, PUBLIC),
    ("127.0.0.0", "127.255.255.255", Reason.FLOOR_LOOPBACK, PUBLIC, PUBLIC),
    ("168.63.129.16", "168.63.129.16", Reason.FLOOR_METADATA, PUBLIC, PUBLIC),
    ("169.254.0.0", "169.254.169.253", Reason.FLOOR_LINK_LOCAL, PUBLIC, Reason.FLOOR_METADATA),
    ("169.254.169.254", "169.254.169.254", Reason.FLOOR_METADATA, Reason.FLOOR_LINK_LOCAL, Reason.FLOOR_LINK_LOCAL),
    ("169.254.170.2", "169.254.170.2", Reason.FLOOR_METADATA, Reason.FLOOR_LINK_LOCAL, Reason.FLOOR_LINK_LOCAL),
    ("169.254.170.23", "169.254.170.23", Reason.FLOOR_METADATA, Reason.FLOOR_LINK_LOCAL, Reason.FLOOR_LINK_LOCAL),
    ("169.254.170.24", "169.254.255.255", Reason.FLOOR_LINK_LOCAL, Reason.FLOOR_METADATA, PUBLIC),
    ("172.16.0.0", "172.31.255.255", PRIVATE, PUBLIC, PUBLIC),
    ("192.0.0.0", "192.0.0.191", Reason.FLOOR_RESERVED, PUBLIC, Reason.FLOOR_METADATA),
    ("192.0.0.192", "192.0.0.192", Reason.FLOOR_METADATA, Reason.FLOOR_RESERVED, Reason.FLOOR_RESERVED),
    ("192.0.0.193", "192.0.0.255", Reason.FLOOR_RESERVED, Reason.FLOOR_METADATA, PUBLIC),
    ("192.0.2.0", "192.0.2.255", Reason.FLOOR_DOCUMENTATION, PUBLIC, PUBLIC),
    ("192.88.99.0", "192.88.99.255", Reason.FLOOR_RESERVED, PUBLIC, PUBLIC),
    ("192.168.0.0", "192.168.255.255", PRIVATE, PUBLIC, PUBLIC),
    ("198.18.0.0", "198.19.255.255", Reason.FLOOR_BENCHMARK, PUBLIC, PUBLIC),
    ("198.51.100.0", "198.51.100.255", Reason.FLOOR_DOCUMENTATION, PUBLIC, PUBLIC),
    ("203.0.113.0", "203.0.113.255", Reason.FLOOR_DOCUMENTATION, PUBLIC, PUBLIC),
    ("224.0.0.0", "239.255.255.255", Reason.FLOOR_MULTICAST, PUBLIC, Reason.FLOOR_RESERVED),
    ("240.0.0.0", "255.255.255.255", Reason.FLOOR_RESERVED, Reason.FLOOR_MULTICAST, None),
    ("::", "::", Reason.FLOOR_UNSPECIFIED, None, Reason.FLOOR_LOOPBACK),
    ("::1", "::1", Reason.FLOOR_LOOPBACK, Reason.FLOOR_UNSPECIFIED, Reason.FLOOR_UNSPECIFIED),
    ("100::", "100::ffff:ffff:ffff:ffff", Reason.FLOOR_RESERVED, Reason.FLOOR_RESERVED, Reason.FLOOR_RESERVED),
    ("4000::", "fbff:" + ":".join(["ffff"] * 7), Reason.FLOOR_RESERVED, PUBLIC, PRIVATE),
    ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", Reason.FLOOR_BENCHMARK, PUBLIC, PUBLIC),
    ("2001:10::", "2001:1f:" + ":".join(["ffff"] * 6), Reason.FLOOR_RESERVED, PUBLIC, Reason.FLOOR_RESERVED),
    ("2001:20::", "2001:2f:" + ":".join(["ffff"] * 6), Reason.FLOOR_RESERVED, Reason.FLOOR_RESERVED, PUBLIC),
    ("2001:db8::", "2001:db8:" + ":".join(["ffff"] * 6), Reason.FLOOR_DOCUMENTATION, PUBLIC, PUBLIC),
    ("3fff::", "3fff:fff:" + ":".join(["ffff"] * 6), Reason.FLOOR_DOCUMENTATION, PUBLIC, PUBLIC),
    ("fc00::", "fd00:ec2::253", PRIVATE, Reason.FLOOR_RESERVED, Reason.FLOOR_METADATA),
    ("fd00:ec2::254", "fd00:ec2::254", Reason.FLOOR_METADATA, PRIVATE, PRIVATE),
    ("fd20:ce::254", "fd20:ce::254", Reason.FLOOR_METADATA, PRIVATE, PRIVATE),
    ("fd20:ce::255", "fdff:" + ":".join(["ffff"] * 7), PRIVATE, Reason.FLOOR_METADATA, Reason.FLOOR_RESERVED),
    ("fe80::", "febf:" + ":".join(["ffff"] * 7), Reason.FLOOR_LINK_LOCAL, Reason.FLOOR_RESERVED, Reason.FLOOR_RESERVED),
    (
        "fec0::",
        "feff:" + ":".join(["ffff"] * 7),
        Reason.FLOOR_RESERVED,
        Reason.FLOOR_LINK_LOCAL,
        Reason.FLOOR_MULTICAST,
    ),
    ("ff00::", ":".join(["ffff"] * 8), Reason.FLOOR_MULTICAST, Reason.FLOOR_RESERVED, None),
]


def name(packed: bytes) -> str:
    found = classify(packed)
    return found.floor or (PRIVATE if found.private else PUBLIC)


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def shifted(text: str, by: int) -> bytes:
    address = ipaddress.ip_address(text)
    return (int(address) + by).to_bytes(len(address.packed))


@pytest.mark.parametrize(("first", "last", "inside", "before", "after"), EDGES)
def test_edges_of_every_block(first: str, last: str, inside: str, before: str | None, after: str | None) -> None:
    assert name(packed(first)) == inside
    assert name(packed(last)) == inside
    if before:
        assert name(shifted(first, -1)) == before
    if after:
        assert name(shifted(last, +1)) == after


def test_every_block_has_a_row() -> None:
    rows = {first for first, *_ in EDGES}
    missing = [b.network for b in (*IPV4_BLOCKS, *IPV6_BLOCKS) if b.network.partition("/")[0] not in rows]
    assert missing == ["8000::/1"]  # the row of 4000::/2 ends in it


IPV4_SAMPLES = [
    ("8.8.8.8", PUBLIC),
    ("10.1.2.3", PRIVATE),
    ("100.64.0.1", PRIVATE),
    ("127.0.0.1", Reason.FLOOR_LOOPBACK),
    ("169.254.169.254", Reason.FLOOR_METADATA),
    ("224.0.0.1", Reason.FLOOR_MULTICAST),
    ("198.18.0.1", Reason.FLOOR_BENCHMARK),
]


def embeddings(v4: bytes) -> dict[str, bytes]:
    inverted = bytes(b ^ 0xFF for b in v4)
    public = bytes([8, 8, 8, 8])
    local = bytes.fromhex("0064ff9b0001")
    return {
        "mapped": bytes(10) + b"\xff\xff" + v4,
        "nat64": bytes.fromhex("0064ff9b") + bytes(8) + v4,
        "local nat64 /48": local + v4[:2] + b"\0" + v4[2:] + bytes(5),
        "local nat64 /56": local + b"\0" + v4[:1] + b"\0" + v4[1:] + bytes(4),
        "local nat64 /64": local + bytes(3) + v4 + bytes(3),
        "local nat64 /96": local + bytes(6) + v4,
        "6to4": b"\x20\x02" + v4 + bytes(10),
        "teredo client": bytes.fromhex("20010000") + public + bytes(4) + inverted,
    }


@pytest.mark.parametrize(("text", "expected"), IPV4_SAMPLES)
@pytest.mark.parametrize("form", list(embeddings(bytes(4))))
def test_an_embedded_address_is_what_counts(text: str, expected: str, form: str) -> None:
    address = embeddings(packed(text))[form]
    assert name(address) == expected
    assert classify(address).address == packed(text)


def test_a_teredo_server_counts_too() -> None:
    inverted = bytes(b ^ 0xFF for b in packed("8.8.8.8"))
    assert name(bytes.fromhex("20010000") + packed("10.0.0.1") + bytes(4) + inverted) == PRIVATE
    assert name(bytes.fromhex("20010000") + packed("127.0.0.1") + bytes(4) + inverted) == Reason.FLOOR_LOOPBACK


def test_the_strictest_reading_of_a_local_translation_counts() -> None:
    """169.254.169.254 for a /48 translator, 8.8.8.8 for a /96 one."""
    address = bytes.fromhex("0064ff9b0001") + b"\xa9\xfe\x00\xa9\xfe\x00" + packed("8.8.8.8")
    assert name(address) == Reason.FLOOR_METADATA
    assert name(bytes.fromhex("0064ff9b0001") + bytes(10)) == Reason.FLOOR_UNSPECIFIED


@pytest.mark.parametrize(("text", "expected"), IPV4_SAMPLES)
def test_compatible_addresses_are_floor_whatever_they_embed(text: str, expected: str) -> None:
    found = classify(bytes(12) + packed(text))
    assert found.floor == (expected if expected not in (PUBLIC, PRIVATE) else Reason.FLOOR_RESERVED)
    assert found.address == packed(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2606:4700::1111", PUBLIC),
        ("2a00:1450:4001::1", PUBLIC),
        ("2001:200::1", PUBLIC),
        ("::ffff:0:8.8.8.8", Reason.FLOOR_RESERVED),  # IPv4-translated, RFC 2765
        ("5f00::1", Reason.FLOOR_RESERVED),
        ("64:ff9a::1", Reason.FLOOR_RESERVED),
        ("64:ff9b:0:0:1::", Reason.FLOOR_RESERVED),
        ("64:ff9b:2::", Reason.FLOOR_RESERVED),
    ],
)
def test_ipv6_samples(text: str, expected: str) -> None:
    assert name(packed(text)) == expected


@pytest.mark.parametrize("length", [0, 3, 5, 15, 17])
def test_other_lengths_are_an_error(length: int) -> None:
    with pytest.raises(ValueError, match="4 or 16"):
        classify(bytes(length))


@given(st.binary(min_size=4, max_size=4))
def test_what_python_calls_not_global_is_never_public(address: bytes) -> None:
    if not ipaddress.IPv4Address(address).is_global:
        assert name(address) != PUBLIC


@given(st.binary(min_size=16, max_size=16))
@example(packed("2002:808:808::"))
def test_every_ipv6_address_has_one_class(address: bytes) -> None:
    found = classify(address)
    assert not (found.floor and found.private)
    assert len(found.address) in (4, 16)
    if address[0] >> 5 != 1 and not address.startswith(bytes.fromhex("0064ff9b")) and address[:10] != bytes(10):
        assert found.floor or found.private


@pytest.mark.parametrize(
    ("block", "floor"),
    [
        ("127.0.0.0/8", True), ("127.1.2.3/32", True), ("224.0.0.0/3", True), ("0.0.0.0/0", False),
        ("10.0.0.0/8", False), ("100.64.0.0/10", False), ("100.100.100.200/32", True), ("8.8.8.0/24", False),
        ("169.254.0.0/16", True), ("fd12:3456::/48", False), ("fd00:ec2::254/128", True), ("fe80::/64", True),
        ("::/0", False), ("::ffff:10.0.0.0/104", True), ("2000::/3", False), ("8000::/1", False), ("ff00::/8", True),
    ],
)  # fmt: skip
def test_whether_all_of_a_block_is_floor(block, floor):
    assert is_floor(ipaddress.ip_network(block)) is floor
