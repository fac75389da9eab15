"""Through the name system: nothing of a query leaves, denied names are refused and say so."""

import pytest

from tests.escape.attempt import MARK, Attempt, attempt
from tests.kit.box import Box

REFUSED = {"rcode": 5, "answers": [], "ede": 15}
EMPTY = {"rcode": 0, "answers": [], "ede": None}
FOUND = {"rcode": 0, "answers": ["synthetic"], "ede": None}
OUTSIDE = "203.0.113.77"  # a documentation address: no resolver lives there
FORMERR = {"rcode": 1, "answers": [], "ede": None}
MALFORMED = ("dns deny malformed - -",)

ATTEMPTS = [
    attempt(
        "tunnel", "dns.lookup", f"{MARK}.c2.example", inside=REFUSED,
        records=(f"dns deny no_match - {MARK}.c2.example",),
    ),
    attempt(
        "tunnel-long", "dns.lookup", f"{MARK}{'a' * 40}.{'b' * 63}.{'c' * 63}.example", inside=REFUSED,
        records=(f"dns deny no_match - {MARK}{'a' * 40}.{'b' * 63}.{'c' * 63}.example",),
    ),
    attempt(
        "denied-under-allowed-wildcard", "dns.lookup", f"{MARK}.tunnel.mixed.test", inside=REFUSED,
        records=(f"dns deny deny_rule no-tunnels {MARK}.tunnel.mixed.test",),
    ),
    attempt("allowed", "dns.lookup", "allowed.test", inside=FOUND),
    attempt("mixed-case", "dns.same_address", ["allowed.test", "aLLowed.TEST", "ALLOWED.test."], inside=True),
    attempt(
        "mixed-case-denied", "dns.lookup", f"{MARK.upper()}.EXAMPLE", inside=REFUSED,
        records=(f"dns deny no_match - {MARK}.example",),
    ),
    attempt("trailing-dot", "dns.lookup", "allowed.test.", inside=FOUND),
    *(
        attempt(
            f"lookalike-{number}", "dns.lookup", name, inside=REFUSED, records=(f"dns deny no_match - {name}",)
        )
        for number, name in enumerate(
            (
                f"{MARK}-allowed.test", f"allowed.test.{MARK}.example", f"{MARK}.allowed.test",
                "allowed.tes", f"wild.test.{MARK}", "wild.test", f"a.{MARK}.wild.test",
            )
        )
    ),
    attempt("aaaa", "dns.lookup", "allowed.test", "AAAA", inside=EMPTY),
    *(
        attempt(
            f"type-{qtype.lower()}", "dns.lookup", "allowed.test", qtype, inside=EMPTY,
            records=("dns deny dns_qtype web allowed.test",),
        )
        for qtype in ("TXT", "NULL", "ANY", "SVCB", "HTTPS", "MX", "SRV", "CNAME", "NS")
    ),
    *(
        attempt(
            f"type-{qtype.lower()}-denied", "dns.lookup", f"{MARK}.example", qtype, inside=REFUSED,
            records=(f"dns deny no_match - {MARK}.example",),
        )
        for qtype in ("TXT", "NULL", "HTTPS")
    ),
    attempt(
        "foreign-server-udp", "dns.lookup", f"{MARK}.example", "A", OUTSIDE, inside=REFUSED,
        records=(f"dns deny no_match - {MARK}.example",),
    ),
    attempt(
        "foreign-server-tcp", "dns.lookup", f"{MARK}.example", "A", OUTSIDE, True, inside=REFUSED,
        records=(f"dns deny no_match - {MARK}.example",),
    ),
    attempt("foreign-server-allowed-name", "dns.lookup", "allowed.test", "A", OUTSIDE, True, inside=FOUND),
    attempt("dns-over-tls", "tcp.tls", OUTSIDE, 853, f"{MARK}.example", inside="ECONNRESET", records=(
        f"decision deny floor_documentation - {OUTSIDE}:853",
    )),
    attempt("dns-over-https", "tcp.tls", OUTSIDE, 443, f"{MARK}.example", inside="ECONNRESET", records=(
        f"decision deny floor_documentation - {OUTSIDE}:443",
    )),
    attempt(
        "reverse", "dns.lookup", "9.113.0.203.in-addr.arpa", "PTR", inside=REFUSED,
        records=("dns deny no_match - 9.113.0.203.in-addr.arpa",),
    ),
    attempt("two-questions", "dns.message", 0x0100, 2, inside=FORMERR, records=MALFORMED),
    attempt("update", "dns.message", 0x2900, 1, inside={"rcode": 4, "answers": [], "ede": None}, records=MALFORMED),
    attempt("a-reply-as-query", "dns.message", 0x8180, 1, inside={"error": "timeout"}, records=MALFORMED),
    attempt("pointer-loop", "dns.compressed_loop", inside=FORMERR, records=MALFORMED),
    attempt(
        "label-of-control-bytes", "dns.lookup", f"{MARK}\n\x1b[31m.example", inside=REFUSED,
        records=(f"dns deny invalid_host - hex:{f'{MARK}'.encode().hex()}0a1b5b33316d2e6578616d706c65",),
    ),
    attempt(
        "label-with-nul", "dns.lookup", f"allowed.test\x00.{MARK}", inside=REFUSED,
        records=(f"dns deny invalid_host - hex:616c6c6f7765642e74657374002e{MARK.encode().hex()}",)
    ),
    attempt("resolver-library", "dns.getaddrinfo", f"{MARK}.example", inside="EAI_AGAIN", records=(
        f"dns deny no_match - {MARK}.example",
    )),
    attempt("thousand-labels", "dns.lookups", [f"{MARK}{n}.wild.test" for n in range(1000)], alone=True, inside=[0]),
    attempt("pin-is-no-rule", "dns.lookup", "pinned.test", inside=REFUSED, records=(
        "dns deny no_match - pinned.test",
    )),
    attempt("empty-policy", "dns.lookup", "allowed.test", inside=REFUSED, policy="empty", records=(
        "dns deny no_match - allowed.test",
    )),
]  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda case: case.id)
def test_name_system(box: Box, case: Attempt) -> None:
    box.check(case)
