"""An allowed name's address with other first bytes than its rule says: what the hello names must be what was asked."""

import pytest

from tests.escape.attempt import MARK, Attempt, attempt
from tests.kit.box import Box

DENIED = "alert 49"


def denied(reason: str, host: str = "allowed.test", rule: str = "web", port: int = 443) -> tuple[str, ...]:
    return (f"decision deny {reason} {rule} {host}:{port}",)


PASSED = ("decision allow allowed web allowed.test:443",)
ATTEMPTS = [
    attempt("allowed", "tcp.tls", "allowed.test", inside="http 200", records=PASSED, reaches=1),
    attempt("wildcard", "tcp.tls", "ok.wild.test", inside="http 200", reaches=1, records=(
        "decision allow allowed wild ok.wild.test:443",
    )),
    attempt("foreign-name", "tcp.tls", "allowed.test", 443, f"{MARK}.example", inside="tlsv1_alert_access_denied",
            records=denied("sni_mismatch")),
    attempt("other-allowed-name", "tcp.tls", "allowed.test", 443, "second.test", inside="tlsv1_alert_access_denied",
            records=denied("sni_mismatch")),
    attempt("parent-name", "tcp.hello", "ok.wild.test", ["wild.test"], inside=DENIED,
            records=denied("sni_mismatch", "ok.wild.test", "wild")),
    attempt("no-name", "tcp.hello", "allowed.test", [], inside=DENIED, records=denied("sni_missing")),
    attempt("empty-name", "tcp.hello", "allowed.test", [""], inside=DENIED, records=denied("malformed")),
    attempt("two-names", "tcp.hello", "allowed.test", ["allowed.test", f"{MARK}.example"], inside=DENIED,
            records=denied("malformed")),
    attempt("same-name-twice", "tcp.hello", "allowed.test", ["allowed.test", "allowed.test"], inside=DENIED,
            records=denied("malformed")),
    attempt("name-with-trailing-dot", "tcp.hello", "allowed.test", ["allowed.test."], inside="handshake",
            records=PASSED, reaches=1),
    attempt("name-with-nul", "tcp.hello", "allowed.test", [f"allowed.test\0.{MARK}.example"], inside=DENIED,
            records=denied("invalid_host")),
    attempt("name-with-newline", "tcp.hello", "allowed.test", [f"allowed.test\n{MARK} allow"], inside=DENIED,
            records=denied("invalid_host")),
    attempt("address-as-name", "tcp.hello", "allowed.test", ["203.0.113.77"], inside=DENIED,
            records=denied("sni_mismatch")),
    attempt("mixed-case-name", "tcp.hello", "allowed.test", ["AlloweD.TesT"], inside="handshake", records=PASSED,
            reaches=1),
    attempt("ech", "tcp.hello", "allowed.test", ["allowed.test"], True, inside=DENIED, records=denied("ech")),
    attempt("ech-foreign-outer", "tcp.hello", "allowed.test", [f"{MARK}.example"], True, inside=DENIED,
            records=denied("ech")),
    attempt("post-quantum-size", "tcp.hello", "allowed.test", ["allowed.test"], False, 1700, inside="handshake",
            records=PASSED, reaches=1),
    attempt("post-quantum-size-foreign", "tcp.hello", "allowed.test", [f"{MARK}.example"], False, 1700,
            inside=DENIED, records=denied("sni_mismatch")),
    attempt("beyond-every-size", "tcp.send", "allowed.test", 443,
            "\x16\x03\x01\x40\x00\x01\x01\x00\x00" + "\x03\x03" + "x" * 70000, inside=DENIED,
            records=denied("malformed")),
    attempt("ssh-banner", "tcp.send", "allowed.test", 443, f"SSH-2.0-{MARK}\r\n", inside="ECONNRESET",
            records=denied("proto_mismatch")),
    attempt("http-on-tls", "tcp.fetch", "allowed.test", 443, MARK, inside="ECONNRESET",
            records=denied("proto_mismatch")),
    attempt("tls-1.0-record-of-alert", "tcp.send", "allowed.test", 443, f"\x15\x03\x01\x00\x02\x01\x00{MARK}",
            inside=DENIED, records=denied("malformed")),
    attempt("silent", "tcp.silent", "allowed.test", 443, inside=DENIED, records=denied("peek_timeout")),
    attempt("tls-on-http", "tcp.tls", "plain.test", 80, f"{MARK}.example", inside="ECONNRESET", records=(
        "decision allow allowed plain plain.test:80", "request deny proto_mismatch plain plain.test:80",
    )),
    attempt("cut-everywhere", "tcp.cut_everywhere", "allowed.test", "allowed.test", alone=True, inside=["handshake"],
            records=PASSED, reaches=-1),
    attempt("cut-everywhere-foreign", "tcp.cut_everywhere", "allowed.test", f"{MARK}.example", inside=[DENIED],
            alone=True, records=denied("sni_mismatch")),
    attempt("a-byte-at-a-time", "tcp.dribble", "allowed.test", "allowed.test", inside="handshake", records=PASSED,
            reaches=1),
    attempt("a-byte-at-a-time-foreign", "tcp.dribble", "allowed.test", f"{MARK}.example", inside=DENIED,
            records=denied("sni_mismatch")),
    attempt("every-record-size-foreign", "tcp.records", "allowed.test", f"{MARK}.example", inside=[DENIED],
            alone=True, records=denied("sni_mismatch")),
    *(
        attempt(f"port-{port}", "tcp.send", "allowed.test", port, MARK, inside="ECONNRESET",
                records=(f"decision deny port - allowed.test:{port}",))
        for port in (22, 80, 8443, 9000, 65535)
    ),
    attempt("opaque", "tcp.send", "opaque.test", 9000, "anything", inside="data anything", reaches=1,
            records=("decision allow allowed opaque opaque.test:9000",)),
]  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda case: case.id)
def test_first_bytes(box: Box, case: Attempt) -> None:
    box.check(case)
