"""What is neither TCP over IPv4 nor DNS has no way at all: UDP, QUIC, IPv6, ICMP, raw and packet sockets, SCTP."""

import socket

import pytest

from tests.escape.attempt import MARK, Attempt, attempt
from tests.kit.box import HOST_ADDRESS, Box

ATTEMPTS = [
    *(
        attempt(f"udp-{name}", "other.datagram", address, port, MARK, inside="EPERM")
        for name, address, port in (
            ("literal", "203.0.113.77", 9999), ("quic", "203.0.113.77", 443), ("ntp", "203.0.113.77", 123),
            ("metadata", "169.254.169.254", 80), ("host", HOST_ADDRESS, 9999), ("bridge", "172.17.0.1", 9999),
            ("name-server", "198.18.0.1", 443),
        )
    ),
    attempt("udp-quic-to-allowed-name", "other.datagram_to_name", "allowed.test", 443, MARK, inside="EPERM"),
    attempt("udp-broadcast", "other.datagram", "255.255.255.255", 9999, MARK, True, inside="EPERM"),
    attempt("udp-multicast", "other.datagram", "239.1.2.3", 9999, MARK, inside="EPERM"),
    attempt("udp-mdns", "other.datagram", "224.0.0.251", 5353, MARK, inside="EPERM"),
    *(
        attempt(f"ipv6-{kind}-{name}", f"other.{call}", address, port, MARK, inside="ENETUNREACH")
        for kind, call in (("tcp", "stream"), ("udp", "datagram"))
        for name, address, port in (
            ("documentation", "2001:db8::77", 443), ("unique-local", "fd00:ec2::254", 80),
            ("public", "2001:4860:4860::8888", 53), ("every-site", "ff05::2", 80),
        )
    ),
    attempt("ipv6-link-local", "other.stream", "fe80::1", 80, MARK, inside="ENETUNREACH"),
    attempt("icmp", "other.ping", "203.0.113.77", inside="EPERM"),
    attempt("raw-ip", "other.opened", socket.AF_INET, socket.SOCK_RAW, 255, inside="EPERM"),
    attempt("raw-icmp", "other.opened", socket.AF_INET, socket.SOCK_RAW, 1, inside="EPERM"),
    attempt("ping-socket", "other.opened", socket.AF_INET, socket.SOCK_DGRAM, 1, inside="EPERM"),
    attempt("raw-six", "other.opened", socket.AF_INET6, socket.SOCK_RAW, 58, inside="EPERM"),
    attempt("packet", "other.opened", socket.AF_PACKET, socket.SOCK_RAW, 0x300, inside="EPERM"),
    attempt("packet-datagram", "other.opened", socket.AF_PACKET, socket.SOCK_DGRAM, 0x300, inside="EPERM"),
    attempt("sctp", "other.opened", socket.AF_INET, socket.SOCK_STREAM, 132, inside="EPERM"),
    attempt("sctp-one-to-many", "other.opened", socket.AF_INET, socket.SOCK_SEQPACKET, 132, inside="EPERM"),
    attempt("dccp", "other.opened", socket.AF_INET, 6, 33, inside="EPERM"),
    attempt("udplite", "other.opened", socket.AF_INET, socket.SOCK_DGRAM, 136, inside="EPERM"),
    attempt("mptcp", "other.opened", socket.AF_INET, socket.SOCK_STREAM, 262, inside="EPERM"),
    attempt("every-family", "other.families", inside={"open": [1, 2, 10]}),
    attempt("every-family-without-unix", "other.families", inside={"open": [2, 10]}, unix_sockets=False),
    attempt("netlink-protocols", "other.netlinks", inside=[]),
    attempt("links", "other.links", inside=["lo"]),
    attempt("add-address", "other.add_address", inside="EPERM"),
    attempt("add-link", "other.add_link", inside="EPERM"),
    attempt("mark-option", "other.option", socket.SOL_SOCKET, 36, 1, inside="EPERM"),
    attempt("transparent-option", "other.option", socket.SOL_IP, 19, 1, inside="EPERM"),
    *(
        attempt(f"listener-{port}-at-{name}", "tcp.send", address, port, MARK, inside="ECONNREFUSED")
        for port in (15001, 15053, 15099)
        for name, address in (("loopback", "127.0.0.1"), ("own-address", "10.0.0.2"))
    ),
    attempt("listener-dns-udp", "dns.lookup", f"{MARK}.example", "A", "127.0.0.1", inside={"error": "ECONNREFUSED"}),
    *(
        attempt(f"take-port-{port}-{kind}", "tcp.bind", "127.0.0.1", port, kind, inside="EADDRINUSE")
        for port, kind in ((15001, "tcp"), (15053, "tcp"), (15053, "udp"))
    ),
    attempt("abstract-unix-of-host", "other.abstract", f"sandboxd-test-{MARK}", inside="ECONNREFUSED"),
    attempt("unix-names", "other.unix_names", inside=[]),
    attempt("docker-socket", "other.unix_path", "/var/run/docker.sock", inside="ENOENT"),
    attempt("docker-socket-run", "other.unix_path", "/run/docker.sock", inside="ENOENT"),
    attempt("too-many-connections", "tcp.flood", "opaque.test", 9000, 400, reaches=-1,
            alone=True, inside={"at_most_256": True, "some": True, "refused": ["ECONNREFUSED"]},
            records=("decision allow allowed opaque opaque.test:9000",)),
]  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda case: case.id)
def test_other_protocol(box: Box, case: Attempt) -> None:
    with socket.socket(socket.AF_UNIX) as on_host:  # what `abstract-unix-of-host` tries to reach
        on_host.bind(f"\0sandboxd-test-{MARK}")
        on_host.listen()
        box.check(case)
