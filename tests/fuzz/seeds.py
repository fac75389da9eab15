"""Writes the corpus anew: `python -m tests.fuzz.seeds`. Inputs that once broke a promise are added by hand beside."""

import ssl
from pathlib import Path

import dns.message

from sandboxd.egress.wire.dns import frame
from tests.kit import client_hellos as hellos

CORPUS = Path(__file__).parent / "corpus"


def client_hellos() -> dict[str, bytes]:
    """Real ones of this Python's OpenSSL, and built ones."""
    valid = hellos.message(hellos.sni(b"example.com") + hellos.alpn(b"h2"))
    return {
        "real": hellos.real(),
        "real-alpn": hellos.real(alpn=["h2", "http/1.1"]),
        "real-tls12": hellos.real(highest=ssl.TLSVersion.TLSv1_2),
        "real-no-name": hellos.real(name=None),
        "real-idn": hellos.real(name="bücher.example"),
        "post-quantum": hellos.post_quantum(),
        "no-extensions": hellos.records(hellos.message(None, version=0x0301)),
        "small-records": hellos.records(valid, 5),
        "ech": hellos.records(hellos.message(hellos.sni(b"a.b") + hellos.extension(0xFE0D, b"x" * 50))),
        "two-names": hellos.records(hellos.message(hellos.sni(b"a.b", b"c.d"))),
        "sni-twice": hellos.records(hellos.message(hellos.sni(b"a.b") * 2)),
        "interleaved": hellos.records(valid[:9]) + hellos.records(b"\x01", kind=20) + hellos.records(valid[9:]),
        "early-data": hellos.records(valid) + hellos.records(b"x" * 20, kind=23),
        "sslv2": b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10",
    }


def dns_messages() -> dict[str, bytes]:
    queries = {
        kind.lower(): dns.message.make_query("api.example.com.", kind, id=1, use_edns=0).to_wire()
        for kind in ("A", "AAAA", "TXT", "HTTPS", "ANY", "NULL")
    }
    plain = dns.message.make_query("eXample.com.", "A", id=1).to_wire()
    return queries | {
        "plain": plain,
        "root": dns.message.make_query(".", "NS", id=1).to_wire(),
        "padded": dns.message.make_query("example.com.", "A", id=1, use_edns=0, pad=128).to_wire(),
        "reply": dns.message.make_response(dns.message.from_wire(plain)).to_wire(),
        "update": plain[:2] + b"\x28" + plain[3:],
        "pointer": plain[:12] + b"\xc0\x0c\x00\x01\x00\x01",
        "two-questions": plain[:5] + b"\x02" + plain[6:] + plain[12:],
        "dot-in-a-label": plain[:12] + b"\x0bexample.com\x00\x00\x01\x00\x01",
        "edns-1": dns.message.make_query("example.com.", "A", id=1, use_edns=1).to_wire(),
    }


def dns_streams() -> dict[str, bytes]:
    messages = list(dns_messages().values())
    return {"three": b"".join(map(frame, messages[:3])), "zero": b"\x00\x00", "cut": frame(messages[0])[:-1]}


_HOST = b"Host: a.example\r\n"


def http_requests() -> dict[str, bytes]:
    get, post = b"GET /%61?b HTTP/1.1\r\n" + _HOST, b"POST / HTTP/1.1\r\n" + _HOST
    chunks = b"5;x=y\r\nhello\r\n0\r\n\r\n"
    return {
        "get": get + b"Accept: */*\r\n\r\n",
        "pipelined": get + b"\r\n" + post + b"Content-Length: 5\r\n\r\nhello" + get + b"\r\n",
        "chunked": post + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + get + b"\r\n",
        "cl-te": post + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "te-te": post + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
        "cl-cl": post + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nhello",
        "te-space": post + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "bare-lf": b"GET / HTTP/1.1\nHost: a.example\n\n",
        "folded": get + b"X: a\r\n b\r\n\r\n",
        "trailers": post + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n",
        "long-chunk": post + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
        "bad-chunk": post + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
        "two-hosts": get + b"Host: b.example\r\n\r\n",
        "absolute": b"GET http://A.example:80/x?y HTTP/1.1\r\n" + _HOST + b"\r\n",
        "absolute-other": b"GET http://b.example/ HTTP/1.1\r\n" + _HOST + b"\r\n",
        "connect": b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\nx",
        "websocket": get + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nframes",
        "connection-names-host": get + b"Connection: close, Host\r\n\r\n",
        "expect": post + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\nhi",
        "http10": b"GET / HTTP/1.0\r\n\r\n",
        "options": b"OPTIONS * HTTP/1.1\r\n" + _HOST + b"\r\n",
        "dots": b"GET /a/%2e%2e/b HTTP/1.1\r\n" + _HOST + b"\r\n",
        "encoded-slash": b"GET /a%2fb HTTP/1.1\r\n" + _HOST + b"\r\n",
        "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "tls": b"\x16\x03\x01\x02\x00\x01\x00",
    }


def http_responses() -> dict[str, bytes]:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nframes"
    asked = http_requests()
    return {
        "length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nhello",
        "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        "until-close": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        "http10": b"HTTP/1.0 200 OK\r\n\r\nhello",
        "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
        "cl-te": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "unasked-switch": switch,
        "spaces-then-nul": b"HTTP/1.1 200 OK\r\na:" + b" " * 2000 + b"\x00\r\n\r\n",
        "switch": asked["websocket"][:-6] + b"\xff\xfe" + switch,
        "connect": asked["connect"][:-1] + b"\xff\xfeHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbytes",
        "head": b"HEAD / HTTP/1.1\r\n" + _HOST + b"\r\n\xff\xfeHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "to-http10": asked["http10"]
        + b"\xff\xfeHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        "early": asked["expect"][:-1] + b"\xff\xfeHTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n",
    }


def ssh_identifications() -> dict[str, bytes]:
    return {
        "openssh": b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u7\r\n" + b"\0\0\x05\xdc\x06\x14",
        "minus": b"SSH-2.0-JSCH-0.1.54\n",
        "go": b"SSH-2.0-Go\r\n",
        "old": b"SSH-1.5-x\r\n",
        "long": b"SSH-2.0-" + b"x" * 260 + b"\r\n",
        "control": b"SSH-2.0-x\x1b[2J\r\n",
        "empty": b"SSH-2.0-\r\n",
        "banner-first": b"Hello\r\nSSH-2.0-x\r\n",
        "http": b"GET / HTTP/1.1\r\n",
    }


def postgres_startups() -> dict[str, bytes]:
    def packet(code: int, body: bytes = b"") -> bytes:
        return (len(body) + 8).to_bytes(4) + code.to_bytes(4) + body

    ssl, gss = packet(80877103), packet(80877104)
    session = packet(0x30000, b"user\0a\0database\0b\0\0")
    return {
        "startup": session,
        "startup-3-2": packet(0x30002, b"user\0a\0\0"),
        "ssl": ssl + b"\x16\x03\x01",
        "gss-ssl": gss + ssl,
        "gss-startup": gss + session,
        "gss-gss": gss + gss,
        "cancel": packet(80877102, b"\0\0\0\x01abcd"),
        "cancel-long": packet(80877102, b"\0\0\0\x01" + b"x" * 256),
        "version-2": packet(0x20000, b"x" * 288),
        "no-user": packet(0x30000, b"database\0b\0\0"),
        "twice": packet(0x30000, b"user\0a\0user\0b\0\0"),
        "unpaired": packet(0x30000, b"user\0\0"),
        "no-end": packet(0x30000, b"user\0a"),
        "too-long": (10_001).to_bytes(4) + (0x30000).to_bytes(4),
        "too-short": (7).to_bytes(4) + (0x30000).to_bytes(4),
        "tls": b"\x16\x03\x01\x02\x00\x01",
    }


def hosts() -> dict[str, bytes]:
    texts = (
        "Example.com.", "*.example.com", "**.example.co.uk", ".example.com", "*-docs.example.com", "bücher.example",
        "1.2.3.4", "0x7f.1", "2130706433", "[::ffff:1.2.3.4]", "[fe80::1%25eth0]", "xn--bcher-kva.example", "*.com",
        "*.github.io", "a\u200db.example", "example.com\x00.evil.example",
    )  # fmt: skip
    return {f"{number:02}": text.encode() for number, text in enumerate(texts)}


def addresses() -> dict[str, bytes]:
    texts = ("7f000001", "a9fea9fe", "08080808", "00" * 10 + "ffff7f000001", "0064ff9b" + "00" * 8 + "0a000001")
    return {f"{number:02}": bytes.fromhex(text) for number, text in enumerate(texts)}


def main() -> None:
    """Writes every seed."""
    corpora = {
        "client_hello": client_hellos(),
        "ssh_identification": ssh_identifications(),
        "postgres_startup": postgres_startups(),
        "dns_message": dns_messages(),
        "dns_stream": dns_streams(),
        "http_request": http_requests(),
        "http_response": http_responses(),
        "host": hosts(),
        "address": addresses(),
    }
    for target, inputs in corpora.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in inputs.items():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
