"""The address floor (egress.md 5): which class an address belongs to, judged by what it really reaches.

One table per family, first match wins. Addresses that embed an IPv4 one are judged by it. Not here: pins, cidrs and
the host's own addresses (`policy.decide`), resolving. `ipaddress.is_global` is not used: it lets NAT64, 6to4 and
cloud metadata through.
"""

import ipaddress
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sandboxd.reasons import Reason


@dataclass(frozen=True, slots=True)
class AddressClass:
    """`floor`: denied whatever a rule says, and why. `private`: opened only by `cidrs` or `allow_private`. Neither:
    public. `address`: packed, the embedded IPv4 address where there is one; `cidrs` are compared with this."""

    floor: Reason | None
    private: bool
    address: bytes


class Block(NamedTuple):
    """A network and its class; `floor` None means private."""

    network: str
    floor: Reason | None


IPV4_BLOCKS = (
    # Metadata services (AWS, GCP, Azure, Oracle, ECS, EKS, Alibaba) inside wider blocks come first.
    Block("169.254.169.254/32", Reason.FLOOR_METADATA),
    Block("169.254.170.2/32", Reason.FLOOR_METADATA),
    Block("169.254.170.23/32", Reason.FLOOR_METADATA),
    Block("168.63.129.16/32", Reason.FLOOR_METADATA),
    Block("100.100.100.200/32", Reason.FLOOR_METADATA),
    Block("192.0.0.192/32", Reason.FLOOR_METADATA),
    Block("0.0.0.0/8", Reason.FLOOR_UNSPECIFIED),
    Block("127.0.0.0/8", Reason.FLOOR_LOOPBACK),
    Block("169.254.0.0/16", Reason.FLOOR_LINK_LOCAL),
    Block("192.0.0.0/24", Reason.FLOOR_RESERVED),
    Block("192.0.2.0/24", Reason.FLOOR_DOCUMENTATION),
    Block("192.88.99.0/24", Reason.FLOOR_RESERVED),
    Block("198.18.0.0/15", Reason.FLOOR_BENCHMARK),
    Block("198.51.100.0/24", Reason.FLOOR_DOCUMENTATION),
    Block("203.0.113.0/24", Reason.FLOOR_DOCUMENTATION),
    Block("224.0.0.0/4", Reason.FLOOR_MULTICAST),
    Block("240.0.0.0/4", Reason.FLOOR_RESERVED),
    Block("10.0.0.0/8", None),
    Block("100.64.0.0/10", None),
    Block("172.16.0.0/12", None),
    Block("192.168.0.0/16", None),
)

IPV6_BLOCKS = (
    Block("::/128", Reason.FLOOR_UNSPECIFIED),
    Block("::1/128", Reason.FLOOR_LOOPBACK),
    Block("fd00:ec2::254/128", Reason.FLOOR_METADATA),
    Block("fd20:ce::254/128", Reason.FLOOR_METADATA),
    Block("fe80::/10", Reason.FLOOR_LINK_LOCAL),
    Block("fec0::/10", Reason.FLOOR_RESERVED),
    Block("ff00::/8", Reason.FLOOR_MULTICAST),
    Block("100::/64", Reason.FLOOR_RESERVED),
    Block("2001:2::/48", Reason.FLOOR_BENCHMARK),
    Block("2001:10::/28", Reason.FLOOR_RESERVED),
    Block("2001:20::/28", Reason.FLOOR_RESERVED),
    Block("2001:db8::/32", Reason.FLOOR_DOCUMENTATION),
    Block("3fff::/20", Reason.FLOOR_DOCUMENTATION),
    Block("fc00::/7", None),
    # Whatever IANA has not handed out for use on the Internet: only 2000::/3 has been.
    Block("::/3", Reason.FLOOR_RESERVED),
    Block("4000::/2", Reason.FLOOR_RESERVED),
    Block("8000::/1", Reason.FLOOR_RESERVED),
)

MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")  # RFC 4291 2.5.5.2
COMPATIBLE = ipaddress.IPv6Network("::/96")  # RFC 4291 2.5.5.1, deprecated: floor whatever it embeds
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052 2.1
NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215
SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")  # RFC 3056 2
TEREDO = ipaddress.IPv6Network("2001::/32")  # RFC 4380 4


@dataclass(frozen=True, slots=True)
class _Table:
    """A family's addresses cut into pieces of one class: where each begins, and its class. First block wins."""

    starts: tuple[int, ...]
    classes: tuple[tuple[Reason | None, bool], ...]  # floor, private

    def at(self, number: int) -> tuple[Reason | None, bool]:
        return self.classes[bisect_right(self.starts, number) - 1]

    def between(self, first: int, last: int) -> tuple[tuple[Reason | None, bool], ...]:
        return self.classes[bisect_right(self.starts, first) - 1 : bisect_right(self.starts, last)]


def _table(blocks: tuple[Block, ...]) -> _Table:
    rows = [(ipaddress.ip_network(block.network), block.floor) for block in blocks]
    edges = {edge for network, _ in rows for edge in _edges(network)}
    starts = tuple(sorted({0, *edges}))
    return _Table(starts, tuple(_class_at(start, rows) for start in starts))


def _edges(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> tuple[int, int]:
    return int(network.network_address), int(network.broadcast_address) + 1


def _class_at(
    number: int, rows: Sequence[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, Reason | None]]
) -> tuple[Reason | None, bool]:
    for network, floor in rows:
        first, after = _edges(network)
        if first <= number < after:
            return floor, floor is None
    return None, False


_IPV4_TABLE = _table(IPV4_BLOCKS)
_IPV6_TABLE = _table(IPV6_BLOCKS)


def classify(address: bytes) -> AddressClass:
    """The class of a packed address (4 or 16 bytes, network order). Raises ValueError on any other length."""
    if len(address) == 4:
        return _look_up(address, _IPV4_TABLE)
    if len(address) != 16:
        raise ValueError(f"expected a packed address of 4 or 16 bytes, got {len(address)}")
    embedded = _embedded(address)
    if embedded:
        return _strictest([_look_up(each, _IPV4_TABLE) for each in embedded])
    if address.startswith(COMPATIBLE.network_address.packed[:12]) and address[12:] > b"\x00\x00\x00\x01":
        inner = _look_up(address[12:], _IPV4_TABLE)
        return AddressClass(inner.floor or Reason.FLOOR_RESERVED, False, inner.address)
    return _look_up(address, _IPV6_TABLE)


def is_floor(block: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    """Whether no address of `block` can be opened by a rule."""
    table = _IPV4_TABLE if block.version == 4 else _IPV6_TABLE
    return all(floor for floor, _ in table.between(int(block.network_address), int(block.broadcast_address)))


def _look_up(address: bytes, table: _Table) -> AddressClass:
    floor, private = table.at(int.from_bytes(address))
    return AddressClass(floor, private, address)


def _embedded(address: bytes) -> list[bytes]:
    """The IPv4 addresses that traffic to this IPv6 address may reach, the likeliest first."""
    head = address[:12]
    if head in (MAPPED.network_address.packed[:12], NAT64.network_address.packed[:12]):
        return [address[12:]]
    if address.startswith(SIX_TO_FOUR.network_address.packed[:2]):
        return [address[2:6]]
    if address.startswith(TEREDO.network_address.packed[:4]):  # the client, its bits inverted, and the server
        return [bytes(byte ^ 0xFF for byte in address[12:]), address[4:8]]
    if address.startswith(NAT64_LOCAL.network_address.packed[:6]):
        return _local_nat64(address)
    return []


def _local_nat64(address: bytes) -> list[bytes]:
    """Every reading by the prefix lengths of RFC 6052 2.2 that fit: only the translator knows which it uses.

    Readings in 0.0.0.0/8 reach nothing and are the padding of the other forms.
    """
    forms = (
        address[6:8] + address[9:11],
        address[7:8] + address[9:12],
        address[9:13],
        address[12:16],
    )
    return [form for form in forms if form[0]] or [address[12:16]]


def _strictest(classes: list[AddressClass]) -> AddressClass:
    """Floor before private before public; among equals the first."""
    return max(classes, key=lambda c: (c.floor is not None, c.private))
