"""ClientHello: any cut gives the same answer, whatever could be read in two ways is refused, bounds hold."""

import ssl
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.egress.wire import tls
from sandboxd.egress.wire.outcome import NEED_MORE, NeedMore, Refusal
from sandboxd.reasons import Reason
from tests.kit import client_hellos as hellos
from tests.kit.bytewise import same_however_cut

Answer = NeedMore | tls.ClientHello | Refusal


def feed(pieces: Sequence[bytes]) -> Answer:
    reader = tls.ClientHelloReader()
    answer: Answer = NEED_MORE
    for piece in pieces:
        answer = reader.feed(piece)
    return answer


def read(pieces: Sequence[bytes]) -> Answer:
    """As `feed`, without what depends on the cut."""
    answer = feed(pieces)
    return replace(answer, raw=b"", trailing=b"") if isinstance(answer, tls.ClientHello) else answer


def hello(data: bytes) -> tls.ClientHello:
    answer = same_however_cut(read, data)
    assert isinstance(answer, tls.ClientHello), answer
    whole = feed([data])
    assert isinstance(whole, tls.ClientHello)
    assert whole.raw == data
    for tail in (b"\x17\x03\x03\x00\x01x", b"anything"):
        followed = feed([data + tail])
        assert followed == replace(whole, raw=data + tail, trailing=tail)
    return whole


def refusal(data: bytes) -> Refusal:
    answer = same_however_cut(read, data)
    assert isinstance(answer, Refusal), answer
    assert same_however_cut(read, data + b"trailing") == answer
    return answer


REAL = {
    "plain": (hellos.real(), (b"example.com",), ()),
    "alpn": (hellos.real(alpn=["h2", "http/1.1"]), (b"example.com",), (b"h2", b"http/1.1")),
    "tls 1.2": (hellos.real(highest=ssl.TLSVersion.TLSv1_2), (b"example.com",), ()),
    "no name": (hellos.real(name=None), (), ()),
    "address": (hellos.real(name="10.0.0.1"), (), ()),
    "idn": (hellos.real(name="bücher.example"), (b"xn--bcher-kva.example",), ()),
    "few ciphers": (hellos.real(ciphers="ECDHE-RSA-AES128-GCM-SHA256"), (b"example.com",), ()),
    "post-quantum": (hellos.post_quantum(), (b"example.com",), ()),
    "no extensions": (hellos.records(hellos.message(None, version=0x0301)), (), ()),
    "empty extensions": (hellos.records(hellos.message(b"", version=0x0300)), (), ()),
}


@pytest.mark.parametrize("which", REAL)
@pytest.mark.parametrize("cut", [1 << 14, 100, 7, 1])
def test_real_hellos_in_records_of_any_size(which: str, cut: int) -> None:
    data, names, alpn = REAL[which]
    payload = data[5:] if cut == 1 << 14 else data[5 : 5 + int.from_bytes(data[3:5])]
    found = hello(hellos.records(payload, cut))
    assert (found.names, found.alpn, found.ech) == (names, alpn, False)


def test_the_legacy_version_is_told() -> None:
    assert hello(REAL["plain"][0]).version == 0x0303
    assert hello(REAL["no extensions"][0]).version == 0x0301


@pytest.mark.parametrize("kind", [0xFE0D, 0xFE08, 0xFFCE])
def test_encrypted_names_are_noticed(kind: int) -> None:
    assert hello(hellos.records(hellos.message(hellos.sni(b"a.b") + hellos.extension(kind, b"x")))).ech


def test_names_are_raw() -> None:
    name = b"EXAMPLE.com\x00\xff\n"
    assert hello(hellos.records(hellos.message(hellos.sni(name)))).names == (name,)


def body(extensions: bytes) -> bytes:
    return hellos.records(hellos.message(extensions))


VALID = hellos.message(hellos.sni(b"example.com"))
MALFORMED = {
    "another record type in between": hellos.records(VALID[:20]) + hellos.records(b"\x01\x00", kind=21),
    "ccs in between": hellos.records(VALID[:20]) + hellos.records(b"\x01", kind=20) + hellos.records(VALID[20:]),
    "alert first": hellos.records(b"\x02\x28", kind=21),
    "application data first": hellos.records(b"x", kind=23),
    "record version": hellos.records(VALID, version=0x0401),
    "empty record": b"\x16\x03\x01\x00\x00" + hellos.records(VALID),
    "long record": b"\x16\x03\x01\x40\x01",
    "not a hello": hellos.records(b"\x02" + VALID[1:]),
    "more in the record": hellos.records(VALID + VALID),
    "one byte more in the record": hellos.records(VALID + b"\x00"),
    "too big": hellos.records(b"\x01\x01\x00\x00"),
    "hello version": hellos.records(hellos.message(version=0x0403)),
    "long session id": hellos.records(hellos.message(session=bytes(33))),
    "no suites": hellos.records(hellos.message(suites=b"")),
    "odd suites": hellos.records(hellos.message(suites=b"\x13\x01\x13")),
    "no compression": hellos.records(hellos.message(compression=b"")),
    "too short": hellos.records(b"\x01\x00\x00\x02\x03\x03"),
    "half an extension": body(b"\x00"),
    "extension overruns": body(b"\x00\x05\x00\x09x"),
    "block longer than it says": hellos.records(b"\x01" + (len(VALID) - 3).to_bytes(3) + VALID[4:] + b"\x00"),
    "extension twice": body(hellos.sni(b"a.b") + hellos.sni(b"a.b")),
    "unknown extension twice": body(hellos.extension(9999, b"") * 2),
    "two names": body(hellos.sni(b"a.b", b"c.d")),
    "same name twice": body(hellos.sni(b"a.b", b"a.b")),
    "empty name": body(hellos.sni(b"")),
    "no name in the list": body(hellos.sni()),
    "empty sni": body(hellos.extension(0, b"")),
    "another kind of name": body(hellos.sni(b"a.b", kind=1)),
    "sni list too short": body(hellos.extension(0, b"\x00\x02\x00\x00" + b"\x00\x03a.b")),
    "sni list too long": body(hellos.extension(0, b"\x00\x09\x00\x00\x03a.b")),
    "sni name too long": body(hellos.extension(0, hellos.vector(b"\x00\x00\x09a.b"))),
    "empty alpn": body(hellos.alpn()),
    "empty alpn name": body(hellos.alpn(b"h2", b"")),
    "alpn overruns": body(hellos.extension(16, hellos.vector(b"\x05h2"))),
}


@pytest.mark.parametrize("which", MALFORMED)
def test_malformed_hellos_are_refused(which: str) -> None:
    assert refusal(MALFORMED[which]).reason is Reason.MALFORMED


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x2e\x01\x03\x01",
        b"\x00",
        b"\x19",
        b"PRI * HTTP/2.0",
    ],
)
def test_other_protocols_are_refused_at_their_first_byte(data: bytes) -> None:
    assert refusal(data).reason is Reason.PROTO_MISMATCH
    assert isinstance(feed([data[:1]]), Refusal)


def test_every_prefix_of_a_hello_needs_more() -> None:
    data = hellos.records(VALID, 11)
    assert [at for at in range(len(data)) if feed([data[:at]]) != NEED_MORE] == []


def test_a_hello_of_64_kib_is_read_and_one_more_byte_refused() -> None:
    room = limits.CLIENT_HELLO - len(hellos.message(hellos.extension(21, b"")))
    largest = hellos.message(hellos.extension(21, bytes(room)))
    assert len(largest) == limits.CLIENT_HELLO
    assert isinstance(feed([hellos.records(largest)]), tls.ClientHello)
    too_large = hellos.records(hellos.message(hellos.extension(21, bytes(room + 1))))
    assert isinstance(feed([too_large[: 5 + (1 << 14)]]), Refusal)  # its first record says how long it will be


def test_what_is_kept_is_bounded_whatever_is_sent() -> None:
    """One-byte records are the worst: six bytes for one."""
    reader = tls.ClientHelloReader()
    endless = hellos.records(b"\x01\x00\xff\xfc" + bytes(1 << 17), 1)
    for at in range(0, len(endless), 4096):
        reader.feed(endless[at : at + 4096])
    kept = len(reader._raw) + len(reader._message)  # pyright: ignore[reportPrivateUsage]
    assert kept <= 7 * limits.CLIENT_HELLO
    assert isinstance(reader.feed(b""), Refusal)


def test_the_answer_is_final() -> None:
    reader = tls.ClientHelloReader()
    first = reader.feed(hellos.records(VALID))
    assert reader.feed(b"more") is first
    reader = tls.ClientHelloReader()
    refused = reader.feed(b"x")
    assert reader.feed(hellos.records(VALID)) is refused


def test_the_alert_is_one_record() -> None:
    assert tls.ACCESS_DENIED.hex(" ") == "15 03 03 00 02 02 31"
    assert tls.alert(40, 0x0301).hex(" ") == "15 03 01 00 02 02 28"


@given(st.binary(max_size=300))
@example(b"\x16\x03\x01\x00\x01\x01")
def test_any_bytes_end_in_an_answer(data: bytes) -> None:
    same_however_cut(read, data)
    same_however_cut(read, b"\x16\x03\x01" + data)
    same_however_cut(read, hellos.records(b"\x01" + hellos.vector(data, 3)))


@given(st.data())
def test_a_hello_with_changed_bytes_ends_in_an_answer(draw: st.DataObject) -> None:
    data = bytearray(draw.draw(st.sampled_from([entry[0] for entry in REAL.values()])))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(0, min(len(data), 400) - 1))] = draw.draw(st.integers(0, 255))
    same_however_cut(read, bytes(data))
