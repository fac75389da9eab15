"""DNS: one question in, a reply of ours out; anything else is FORMERR, NOTIMP or silence."""

import struct
from collections.abc import Sequence

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.egress.wire.dns import (
    TCP_REPLY,
    BadQuery,
    ExtendedError,
    Query,
    Rcode,
    TcpFrames,
    Type,
    build_reply,
    frame,
    parse_query,
)
from sandboxd.egress.wire.outcome import Refusal
from sandboxd.policy.hosts import InvalidHostError, canonical_host
from sandboxd.reasons import Reason
from tests.kit.bytewise import same_however_cut


def wire(name: str = "example.com.", rdtype: str = "A", **options: object) -> bytes:
    """As another implementation writes it."""
    return dns.message.make_query(name, rdtype, id=0x1234, **options).to_wire()  # type: ignore[arg-type]


def raw(
    name: bytes = b"\x07example\x03com\x00",
    counts: tuple[int, int, int, int] = (1, 0, 0, 0),
    flags: int = 0x0100,
    tail: bytes = b"\x00\x01\x00\x01",
) -> bytes:
    return struct.pack(">HHHHHH", 0x1234, flags, *counts) + name + tail


def query(message: bytes) -> Query:
    found = parse_query(message)
    assert isinstance(found, Query), found
    return found


def bad(message: bytes) -> tuple[BadQuery, int | None]:
    """With the reply's rcode; None where nothing is sent."""
    found = parse_query(message)
    assert isinstance(found, BadQuery), found
    if not found.reply:
        return found, None
    reply = dns.message.from_wire(found.reply)
    assert reply.id == 0x1234
    assert reply.flags & dns.flags.QR
    return found, reply.rcode()


def test_a_plain_query() -> None:
    found = query(wire())
    assert (found.id, found.labels, found.qtype, found.edns) == (0x1234, (b"example", b"com"), Type.A, None)
    assert found.name == b"example.com"
    assert found.udp_limit == 512


@pytest.mark.parametrize(("size", "limit"), [(4096, 1232), (1232, 1232), (800, 800), (512, 512), (100, 512)])
def test_edns_sizes_bound_the_reply(size: int, limit: int) -> None:
    found = query(wire(use_edns=0, payload=size, want_dnssec=True))
    assert found.edns is not None
    assert found.edns.dnssec_ok
    assert found.udp_limit == limit


def test_options_are_skipped() -> None:
    cookie, padding = dns.edns.GenericOption(10, b"12345678"), dns.edns.GenericOption(12, bytes(300))
    assert query(wire(use_edns=0, options=[cookie, padding])).edns is not None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"\x07eXaMpLe\x03COM\x00", b"eXaMpLe.COM"),
        (b"\x00", b"."),
        (b"\x0bexample.com\x00", b"example\\.com"),
        (b"\x03a\\b\x03com\x00", b"a\\\\b.com"),
        (b"\x03a\x00b\x03com\x00", b"a\x00b.com"),
        (b"\x02\xc3\xa4\x03com\x00", b"\xc3\xa4.com"),
    ],
)
def test_names_in_presentation_form(name: bytes, shown: bytes) -> None:
    assert query(raw(name)).name == shown


def test_a_dot_inside_a_label_never_makes_a_canonical_host() -> None:
    with pytest.raises(InvalidHostError):
        canonical_host(query(raw(b"\x0bexample.com\x00")).name)


LONGEST = b"\x3f" + b"a" * 63 + b"\x3f" + b"b" * 63 + b"\x3f" + b"c" * 63 + b"\x3d" + b"d" * 61 + b"\x00"
OPT = b"\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00"


def test_the_longest_name_is_read_and_echoed() -> None:
    assert len(LONGEST) == 255
    found = query(raw(LONGEST))
    assert build_reply(found, Rcode.REFUSED)[12:] == found.question


FORMAT_ERRORS = {
    "no question": raw(counts=(0, 0, 0, 0)),
    "two questions": raw(counts=(2, 0, 0, 0)) + b"\x03foo\x00\x00\x01\x00\x01",
    "65535 questions": raw(counts=(65535, 0, 0, 0)),
    "an answer": raw(counts=(1, 1, 0, 0)),
    "an authority": raw(counts=(1, 0, 1, 0)),
    "two additional": raw(counts=(1, 0, 0, 2)) + OPT + OPT,
    "additional missing": raw(counts=(1, 0, 0, 1)),
    "additional not counted": raw() + OPT,
    "additional is not opt": raw(counts=(1, 0, 0, 1)) + b"\x00\x00\x01" + OPT[3:],
    "opt has a name": raw(counts=(1, 0, 0, 1)) + b"\x01a" + OPT,
    "opt overruns": raw(counts=(1, 0, 0, 1)) + OPT[:-2] + b"\x00\x05x",
    "bytes after opt": raw(counts=(1, 0, 0, 1)) + OPT + b"x",
    "bytes after the question": raw() + b"x",
    "header only": raw()[:12],
    "name cut": raw()[:16],
    "name without end": raw(name=b"\x07example", tail=b""),
    "type cut": raw()[:-3],
    "pointer": raw(name=b"\xc0\x0c"),
    "pointer after a label": raw(name=b"\x01a\xc0\x0c"),
    "label type 01": raw(name=b"\x41" + b"a" * 65 + b"\x00"),
    "label type 10": raw(name=b"\x80\x00"),
    "name of 256 bytes": raw(name=LONGEST[:-1] + b"\x01e\x00"),
    "endless name": raw(name=b"\x01a" * 1000 + b"\x00"),
    "too long": raw(counts=(1, 0, 0, 1)) + OPT[:-2] + struct.pack(">H", limits.DNS_QUERY) + bytes(limits.DNS_QUERY),
}


@pytest.mark.parametrize("which", FORMAT_ERRORS)
def test_format_errors(which: str) -> None:
    found, rcode = bad(FORMAT_ERRORS[which])
    assert rcode == dns.rcode.FORMERR
    assert found.reason is Reason.MALFORMED
    assert len(found.reply) == 12


@pytest.mark.parametrize("opcode", range(1, 16))
def test_other_opcodes_are_not_implemented(opcode: int) -> None:
    reply = parse_query(raw(flags=opcode << 11))
    assert isinstance(reply, BadQuery)
    assert reply.reply[3] & 15 == Rcode.NOTIMP


@pytest.mark.parametrize("message", [b"", b"\x00" * 11, raw(flags=0x8180)])
def test_what_is_no_query_gets_no_reply(message: bytes) -> None:
    assert bad(message)[1] is None


@pytest.mark.parametrize("qclass", [0, 3, 4, 254, 255])
def test_other_classes_are_refused(qclass: int) -> None:
    found, rcode = bad(raw(tail=struct.pack(">HH", 1, qclass)))
    assert rcode == dns.rcode.REFUSED
    assert found.reason is Reason.DNS_QTYPE


def test_other_edns_versions_are_bad() -> None:
    assert bad(wire(use_edns=1))[1] == dns.rcode.BADVERS


@pytest.mark.parametrize("edns", [-1, 0])
def test_replies_are_read_by_another_implementation(edns: int) -> None:
    message = wire("eXample.com.", use_edns=edns)
    reply = build_reply(query(message), Rcode.NOERROR, addresses=[bytes([198, 18, 0, 7])], ttl=30)
    parsed = dns.message.from_wire(reply)
    assert dns.message.from_wire(message).is_response(parsed)
    assert parsed.answer[0].to_text() == "eXample.com. 30 IN A 198.18.0.7"
    assert parsed.edns == edns
    assert parsed.flags & (dns.flags.RD | dns.flags.RA) == dns.flags.RD | dns.flags.RA
    assert not parsed.flags & (dns.flags.AA | dns.flags.TC)


def test_extended_errors_need_edns() -> None:
    error = ExtendedError("no rule allows example.com")
    told = dns.message.from_wire(build_reply(query(wire(use_edns=0)), Rcode.REFUSED, error=error))
    assert told.rcode() == dns.rcode.REFUSED
    (option,) = told.options
    assert isinstance(option, dns.edns.EDEOption)
    assert (option.code, option.text) == (15, error.text)
    assert not dns.message.from_wire(build_reply(query(wire()), Rcode.REFUSED, error=error)).options


def test_text_is_cut_before_answers_are_dropped() -> None:
    question = query(wire(use_edns=0, payload=512))
    reply = build_reply(question, Rcode.NOERROR, addresses=[bytes(4)] * 20, error=ExtendedError("é" * 400))
    parsed = dns.message.from_wire(reply)
    assert len(reply) <= 512
    assert len(parsed.answer[0]) == 1  # the same address twenty times
    assert isinstance(parsed.options[0], dns.edns.EDEOption)
    assert set(parsed.options[0].text or "") == {"é"}


def test_answers_that_do_not_fit_set_the_truncation_bit() -> None:
    question = query(wire(use_edns=0, payload=512))
    addresses = [bytes([198, 18, 0, n]) for n in range(60)]
    short = dns.message.from_wire(build_reply(question, Rcode.NOERROR, addresses=addresses, error=ExtendedError("x")))
    assert short.flags & dns.flags.TC
    assert (short.answer, short.edns) == ([], 0)
    long = dns.message.from_wire(build_reply(question, Rcode.NOERROR, addresses=addresses, limit=TCP_REPLY))
    assert not long.flags & dns.flags.TC
    assert len(long.answer[0]) == 60


def test_only_ipv4_addresses_are_answered() -> None:
    with pytest.raises(ValueError, match="IPv4"):
        build_reply(query(wire()), Rcode.NOERROR, addresses=[bytes(16)])


def split(pieces: Sequence[bytes]) -> list[bytes | Refusal]:
    frames = TcpFrames()
    found = [item for piece in pieces for item in frames.feed(piece)]
    assert len(frames._buffer) <= limits.DNS_QUERY + 2  # pyright: ignore[reportPrivateUsage]
    return found[: next((n for n, item in enumerate(found) if isinstance(item, Refusal)), len(found)) + 1]


def test_tcp_messages_are_told_apart_however_they_are_cut() -> None:
    messages: list[bytes | Refusal] = [wire(), wire("b.example."), wire(use_edns=0)]
    stream = b"".join(frame(m) for m in messages if isinstance(m, bytes))
    assert same_however_cut(split, stream) == messages
    assert same_however_cut(split, stream + b"\x00") == messages


@pytest.mark.parametrize("head", [b"\x00\x00", b"\x00\x0b", b"\x10\x01", b"\xff\xff", b"GET / HTTP"])
def test_frames_of_impossible_length_are_refused(head: bytes) -> None:
    found = same_however_cut(split, frame(wire()) + head + b"trailing")
    assert found[0] == wire()
    assert isinstance(found[1], Refusal)


@given(st.binary(max_size=600))
@example(raw()[:12])
def test_any_message_ends_in_a_query_or_a_refusal(message: bytes) -> None:
    for each in (message, raw()[:12] + message, raw(tail=message), raw(counts=(1, 0, 0, 1)) + message):
        found = parse_query(each)
        if isinstance(found, Query):
            reply = build_reply(found, Rcode.REFUSED, error=ExtendedError("no"))
            assert len(reply) <= found.udp_limit
            assert reply[12 : 12 + len(found.question)] == found.question
        else:
            assert len(found.reply) <= max(len(each), 12)  # nobody is amplified


@given(st.binary(max_size=600))
def test_any_stream_ends_in_frames_or_a_refusal(stream: bytes) -> None:
    same_however_cut(split, stream)


@given(st.lists(st.binary(min_size=1, max_size=63), max_size=3), st.integers(0, 65535))
def test_questions_survive_the_round_trip(labels: list[bytes], qtype: int) -> None:
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\x00"
    found = query(raw(name, tail=struct.pack(">HH", qtype, 1)))
    assert (found.labels, found.qtype) == (tuple(labels), qtype)
