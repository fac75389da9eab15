"""The policies that attempts run under, and the names they use. `.test` names exist nowhere (RFC 6761)."""

import ipaddress
import os

# Lead to the site by an operator's pin: name → which of its ports.
PINNED = {
    "allowed.test": "https",
    "second.test": "https",
    "plain.test": "http",
    "other.test": "http",
    "opaque.test": "tcp",
    "ok.wild.test": "https",
    "paths.test": "http",
    # Names that no rule allows: a pin alone must not open them.
    "pinned.test": "https",
}
# What the host's own resolver says, in a hosts file that only the gateway under test sees.
RESOLVED = {
    "to-loopback.test": "127.0.0.1",
    "to-private.test": "10.77.0.9",
    "to-metadata.test": "169.254.169.254",
    "to-azure.test": "168.63.129.16",
    "to-shared.test": "100.100.100.200",
    "to-zero.test": "0.0.0.0",
    "to-benchmark.test": "198.18.0.9",
    "to-documentation.test": "203.0.113.77",
    "to-multicast.test": "239.1.2.3",
    "to-six-loopback.test": "::1",
    "to-six-mapped.test": "::ffff:127.0.0.1",
    "to-six-nat64.test": "64:ff9b::7f00:1",
    "to-six-link.test": "fe80::1",
    "to-six-unique.test": "fd00:77::9",
}

# A machine of our own at the end of a wire (tests/kit/elsewhere.py), private, opened by `allow_private`.
# Numbered by this process: two sessions at once must not take each other's away.
_BLOCK = ipaddress.ip_network("10.97.0.0/16").network_address + os.getpid() % 0x4000 * 4
ELSEWHERE = str(_BLOCK + 2)
FLIPPING = {
    "lan.test": ELSEWHERE,
    "flip.test": f"{ELSEWHERE} | 127.0.0.1",
    "flip-back.test": f"169.254.169.254 | {ELSEWHERE}",
    "both.test": f"127.0.0.1, {ELSEWHERE}",
    "outside-the-block.test": "10.96.9.9",
}
LAN = (
    """
rules:
  - id: lan
    action: allow
    to: {hosts: ["""
    + ", ".join(FLIPPING)
    + """], ports: [80]}
    proto: tcp
    allow_private: ["""
    + f"{_BLOCK}/30"
    + """]
"""
)

MAIN = """
rules:
  - {id: web, action: allow, to: {hosts: [allowed.test, second.test], ports: [443]}, proto: tls}
  - {id: plain, action: allow, to: {hosts: [plain.test, other.test], ports: [80]}, proto: http}
  - {id: opaque, action: allow, to: {hosts: [opaque.test], ports: [9000]}, proto: tcp}
  - {id: wild, action: allow, to: {hosts: ["*.wild.test"], ports: [443]}, proto: tls}
  - {id: mixed, action: allow, to: {hosts: ["**.mixed.test"], ports: [443]}, proto: tls}
  - {id: no-tunnels, action: deny, to: {hosts: ["**.tunnel.mixed.test"]}}
  - id: paths
    action: allow
    to: {hosts: [paths.test], ports: [80]}
    proto: http
    http: [{methods: [GET], paths: ["/open/**"]}]
"""
# As wide as a policy can be: everything that is still refused is refused by the floor.
WIDE = """
rules:
  - {id: any4, action: allow, to: {cidrs: [0.0.0.0/0], ports: [22, 53, 80, 443, 2375, 8080]}, proto: tcp}
  - {id: any6, action: allow, to: {cidrs: ["::/0"], ports: [53, 80, 443]}, proto: tcp}
"""
RESOLVING = (
    """
rules:
  - id: resolving
    action: allow
    to: {hosts: ["""
    + ", ".join(RESOLVED)
    + """], ports: [80]}
    proto: http
"""
)
# Given to the host's loopback for as long as the attempts last: private, so that a rule can open it.
HOSTS_OWN = str(_BLOCK + 0x10000)  # in 10.98.0.0/16
OWN = f"""
rules:
  - {{id: hosts-own, action: allow, to: {{cidrs: [{HOSTS_OWN}/32], ports: [80]}}, proto: tcp}}
"""
EMPTY = "rules: []\n"

POLICIES = {"main": MAIN, "wide": WIDE, "resolving": RESOLVING, "empty": EMPTY, "hosts-own": OWN, "lan": LAN}
