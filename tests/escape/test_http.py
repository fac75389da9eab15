"""Plain HTTP: every request of a connection is judged, whatever framing or form it hides in."""

import pytest

from tests.escape.attempt import MARK, Attempt, attempt
from tests.kit.box import Box


def head(host: str = "plain.test", path: str = "/", *extra: str, method: str = "GET") -> str:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *extra, "", ""])


def refused(reason: str, host: str = "plain.test", rule: str = "plain") -> tuple[str, ...]:
    """The connection to the name is allowed, and nothing is dialed; then the request is refused."""
    return (f"decision allow allowed {rule} {host}:80", f"request deny {reason} {rule} {host}:80")


OPEN = "decision allow allowed plain plain.test:80"
PASSED = "request allow allowed plain plain.test:80"
HIDDEN = f"GET /{MARK} HTTP/1.1\r\nHost: plain.test\r\n\r\n"

ATTEMPTS = [
    attempt("allowed", "tcp.fetch", "plain.test", inside="http 200", records=(OPEN, PASSED), reaches=1),
    attempt("other-host", "tcp.fetch", "plain.test", 80, MARK, "elsewhere.example", inside="http 403 host_mismatch",
            records=refused("host_mismatch")),
    attempt("other-allowed-host", "tcp.fetch", "plain.test", 80, MARK, "other.test", inside="http 403 host_mismatch",
            records=refused("host_mismatch")),
    attempt("host-with-other-port", "tcp.fetch", "plain.test", 80, MARK, "plain.test:8080",
            inside="http 403 host_mismatch", records=refused("host_mismatch")),
    attempt("host-with-own-port", "tcp.fetch", "plain.test", 80, "", "plain.test:80", inside="http 200",
            records=(OPEN, PASSED), reaches=1),
    attempt("host-mixed-case", "tcp.fetch", "plain.test", 80, "", "PLAIN.test.", inside="http 200",
            records=(OPEN, PASSED), reaches=1),
    attempt("second-request-other-host", "tcp.requests", "plain.test", 80,
            [head(), head("elsewhere.example", f"/{MARK}")], inside=["http 200", "http 403 host_mismatch"],
            records=(PASSED, *refused("host_mismatch")), reaches=1),
    attempt("pipelined-other-host", "tcp.pipelined", "plain.test", 80,
            head() + head("elsewhere.example", f"/{MARK}"), inside=["http 200", "http 403 host_mismatch"],
            records=(PASSED, *refused("host_mismatch")), reaches=1),
    attempt("absolute-form", "tcp.requests", "plain.test", 80, [head(path="http://plain.test/")],
            inside=["http 200"], records=(OPEN, PASSED), reaches=1),
    attempt("absolute-form-mismatch", "tcp.requests", "plain.test", 80, [head(path=f"http://elsewhere.example/{MARK}")],
            inside=["http 400 host_mismatch"], records=refused("host_mismatch")),
    attempt("absolute-form-https", "tcp.requests", "plain.test", 80, [head(path=f"https://plain.test/{MARK}")],
            inside=["ECONNRESET"], records=refused("proto_mismatch")),
    attempt("absolute-form-userinfo", "tcp.requests", "plain.test", 80,
            [head(path=f"http://plain.test@elsewhere.example/{MARK}")], inside=["http 400 malformed"],
            records=refused("malformed")),
    attempt("no-host", "tcp.send", "plain.test", 80, f"GET /{MARK} HTTP/1.1\r\n\r\n", inside="http 400 malformed",
            records=refused("malformed")),
    attempt("two-hosts", "tcp.requests", "plain.test", 80, [head("plain.test", f"/{MARK}", "Host: elsewhere.example")],
            inside=["http 400 smuggling"], records=refused("smuggling")),
    attempt("host-with-newline", "tcp.requests", "plain.test", 80, [head(f"plain.test\n{MARK}: allow", "/")],
            inside=["http 400 smuggling"], records=refused("smuggling")),
    attempt("host-with-escape", "tcp.requests", "plain.test", 80, [head(f"plain.test\x1b[2K{MARK}", "/")],
            inside=["http 400 malformed"], records=refused("malformed")),
    attempt("length-and-chunked", "tcp.pipelined", "plain.test", 80,
            head("plain.test", f"/{MARK}", "Content-Length: 4", "Transfer-Encoding: chunked", method="POST")
            + "0\r\n\r\n" + HIDDEN, inside=["http 400 smuggling"], records=refused("smuggling")),
    attempt("two-lengths", "tcp.pipelined", "plain.test", 80,
            head("plain.test", f"/{MARK}", "Content-Length: 0", f"Content-Length: {len(HIDDEN)}", method="POST")
            + HIDDEN, inside=["http 400 smuggling"], records=refused("smuggling")),
    attempt("length-with-plus", "tcp.pipelined", "plain.test", 80,
            head("plain.test", f"/{MARK}", "Content-Length: +3", method="POST") + "abc",
            inside=["http 400 smuggling"], records=refused("smuggling")),
    attempt("chunked-spelled-oddly", "tcp.pipelined", "plain.test", 80,
            head("plain.test", f"/{MARK}", "Transfer-Encoding: xchunked", method="POST") + "0\r\n\r\n" + HIDDEN,
            inside=["http 400 smuggling"], records=refused("smuggling")),
    attempt("chunked-not-last", "tcp.pipelined", "plain.test", 80,
            head("plain.test", f"/{MARK}", "Transfer-Encoding: chunked, gzip", method="POST") + "0\r\n\r\n" + HIDDEN,
            inside=["http 400 smuggling"], records=refused("smuggling")),
    attempt("space-before-colon", "tcp.pipelined", "plain.test", 80,
            f"POST /{MARK} HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
            inside=["http 400 malformed"], records=refused("malformed")),
    attempt("folded-header", "tcp.pipelined", "plain.test", 80,
            f"GET /{MARK} HTTP/1.1\r\nHost: plain.test\r\nX-A: 1\r\n  Host: elsewhere.example\r\n\r\n",
            inside=["http 400 smuggling"], records=refused("smuggling")),
    attempt("encoded-slash", "tcp.fetch", "paths.test", 80, f"open%2F..%2F{MARK}", inside="http 400 smuggling",
            records=refused("smuggling", "paths.test", "paths")),
    attempt("dot-segments", "tcp.fetch", "paths.test", 80, f"open/../{MARK}", inside="http 400 smuggling",
            records=refused("smuggling", "paths.test", "paths")),
    attempt("encoded-dots", "tcp.fetch", "paths.test", 80, f"open/%2e%2e/{MARK}", inside="http 400 smuggling",
            records=refused("smuggling", "paths.test", "paths")),
    attempt("backslash", "tcp.fetch", "paths.test", 80, f"open\\..\\{MARK}", inside="http 400 smuggling",
            records=refused("smuggling", "paths.test", "paths")),
    attempt("path-not-open", "tcp.fetch", "paths.test", 80, MARK, inside="http 403 method_path",
            records=refused("method_path", "paths.test", "paths")),
    attempt("method-not-open", "tcp.requests", "paths.test", 80,
            [head("paths.test", f"/open/{MARK}", "Content-Length: 0", method="POST")],
            inside=["http 403 method_path"], records=refused("method_path", "paths.test", "paths")),
    attempt("path-open", "tcp.fetch", "paths.test", 80, "open/a/b", inside="http 200", reaches=1, records=(
        "decision allow allowed paths paths.test:80", "request allow allowed paths paths.test:80",
    )),
    attempt("connect-method", "tcp.requests", "plain.test", 80,
            [f"CONNECT elsewhere.example:443 HTTP/1.1\r\nHost: elsewhere.example:443\r\nX-Mark: {MARK}\r\n\r\n"],
            inside=["http 403 host_mismatch"], records=refused("host_mismatch")),
    attempt("connect-own-name", "tcp.requests", "plain.test", 80,
            [f"CONNECT plain.test:80 HTTP/1.1\r\nHost: plain.test:80\r\nX-Mark: {MARK}\r\n\r\n"],
            inside=["http 403 method_path"], records=refused("method_path")),
    attempt("websocket", "tcp.requests", "plain.test", 80,
            [head("plain.test", f"/{MARK}", "Upgrade: websocket", "Connection: Upgrade")],
            inside=["http 403 websocket"], records=refused("websocket")),
    attempt("upgrade-to-h2c", "tcp.requests", "plain.test", 80,
            [head("plain.test", f"/{MARK}", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings",
                  "HTTP2-Settings: AAMAAABkAAQAAP__")],
            inside=["http 403 websocket"], records=refused("websocket")),
    attempt("h2-preface", "tcp.send", "plain.test", 80, f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{MARK}",
            inside="ECONNRESET", records=refused("proto_mismatch")),
    attempt("http-0.9", "tcp.send", "plain.test", 80, f"GET /{MARK}\r\n", inside="ECONNRESET",
            records=refused("proto_mismatch")),
    attempt("ssh-banner", "tcp.send", "plain.test", 80, f"SSH-2.0-{MARK}\r\n", inside="ECONNRESET",
            records=refused("proto_mismatch")),
    attempt("redirect-to-denied-host", "tcp.fetch", "plain.test", 80, "redirect/http://elsewhere.example/",
            inside="http 302", records=(OPEN, PASSED), reaches=1),
    attempt("redirect-followed", "tcp.fetch", "elsewhere.example", 80, MARK, inside="EAI_AGAIN", records=(
        "dns deny no_match - elsewhere.example",
    )),
]  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda case: case.id)
def test_http(box: Box, case: Attempt) -> None:
    box.check(case)
