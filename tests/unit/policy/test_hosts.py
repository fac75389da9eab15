"""Canonical names and host patterns: one spelling a name, patterns compare whole labels, wildcards stay narrow."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd.policy.hosts import (
    HostPattern,
    InvalidHostError,
    PatternKind,
    audit_name,
    canonical_host,
    literal_address,
)

SPELLINGS = [
    ("example.com", "example.com"),
    ("EXAMPLE.Com", "example.com"),
    ("example.com.", "example.com"),
    (b"example.com", "example.com"),
    ("a", "a"),
    ("_dmarc.example.com", "_dmarc.example.com"),
    ("a--b.example.com", "a--b.example.com"),
    ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ("1.2.3.example", "1.2.3.example"),
    ("9.9.9.9a", "9.9.9.9a"),
    ("1.2.3.4", "1.2.3.4"),
    ("1.2.3.4.", "1.2.3.4"),
    ("255.255.255.255", "255.255.255.255"),
    ("[2001:DB8:0:0::1]", "[2001:db8::1]"),
    ("[::ffff:1.2.3.4]", "1.2.3.4"),
    ("[::FFFF:102:304]", "1.2.3.4"),
    ("[::1.2.3.4]", "[::102:304]"),
    ("a" * 63 + ".com", "a" * 63 + ".com"),
    (".".join(["a" * 49] * 5) + ".abc", ".".join(["a" * 49] * 5) + ".abc"),
]

INVALID = [
    "",
    ".",
    "..",
    ".example.com",
    "example.com..",
    "a..b",
    "-a.com",
    "a-.com",
    "a" * 64 + ".com",
    "a." * 126 + "ab",
    "exa mple.com",
    "example.com ",
    " example.com",
    "example.com\n",
    "example.com\x00",
    "example.com\x00.evil.com",
    "example.com:443",
    "user@example.com",
    "example.com/",
    "http://example.com",
    "exämple.com",
    "example。com",
    "ｅxample.com",
    b"ex\xffmple.com",
    "*.example.com",
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0x7f.1",
    "example.0x10",
    "example.0xyz",
    "127.1",
    "1.2.3",
    "1.2.3.4.5",
    "1.2.3.04",
    "1.2.3.256",
    "01.2.3.4",
    "example.123",
    "::1",
    "[::1",
    "[::1]x",
    "[::1].",
    "[::1]:80",
    "[]",
    "[fe80::1%eth0]",
    "[fe80::1%25eth0]",
    "[1.2.3.4]",
    "[::ffff:1.2.3.04]",
    "[example.com]",
    "[[::1]]",
]


@pytest.mark.parametrize(("raw", "expected"), SPELLINGS)
def test_spellings_of_one_name_are_one_name(raw: str | bytes, expected: str) -> None:
    assert canonical_host(raw) == expected


@pytest.mark.parametrize("raw", INVALID)
def test_anything_else_is_invalid(raw: str | bytes) -> None:
    with pytest.raises(InvalidHostError):
        canonical_host(raw)
    assert audit_name(raw).startswith("hex:")


def test_longest_name_is_253_bytes() -> None:
    name = "a." * 126 + "a"
    assert canonical_host(name + ".") == name
    with pytest.raises(InvalidHostError):
        canonical_host("a" + name)


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300), st.from_regex(r"[a-z0-9.x\[\]:-]{0,40}")))
@example("1.2.3.4")
@example("[::1]")
def test_canonical_or_invalid_and_idempotent(raw: str | bytes) -> None:
    try:
        host = canonical_host(raw)
    except InvalidHostError:
        return
    assert canonical_host(host) == host == audit_name(host)
    assert host.isascii()
    assert host == host.lower()
    assert len(host) <= 253


@given(st.one_of(st.text(), st.binary()))
def test_audit_names_are_printable_ascii_and_bounded(raw: str | bytes) -> None:
    shown = audit_name(raw)
    assert shown.isascii()
    assert shown.isprintable()
    assert len(shown) < 600


def test_audit_name_says_how_much_it_left_out() -> None:
    assert audit_name(b"\xff" * 300) == "hex:" + "ff" * 255 + "+45"
    assert audit_name("\udc80") == "hex:edb280"


def test_literals_are_told_from_names() -> None:
    assert literal_address(canonical_host("1.2.3.4")) == bytes([1, 2, 3, 4])
    assert literal_address(canonical_host("[::1]")) == bytes(15) + b"\x01"
    assert literal_address(canonical_host("example.com")) is None
    for neither in ("[", "[]", "[::1", "[x]", "::1]"):
        assert literal_address(neither) is None
    assert literal_address(canonical_host("1.2.3.4.example")) is None


MATCHES = [
    (
        "example.com",
        ["example.com"],
        ["a.example.com", "evil-example.com", "example.com.evil.com", "com", "xample.com"],
    ),
    (
        "*.example.com",
        ["a.example.com", "xn--bcher-kva.example.com"],
        ["example.com", "a.b.example.com", "evil-example.com", "aexample.com", "a.example.com.evil.com"],
    ),
    (
        "**.example.com",
        ["a.example.com", "a.b.example.com", "a.b.c.d.example.com"],
        ["example.com", "evil-example.com", "a.example.org"],
    ),
    (".example.com", ["example.com", "a.example.com", "a.b.example.com"], ["evil-example.com", "aexample.com", "com"]),
    (
        "*-docs.example.com",
        ["a-docs.example.com", "a-b-docs.example.com"],
        ["docs.example.com", "b.a-docs.example.com", "a-docs.evil.com", "a-docsx.example.com"],
    ),
    ("api-*.example.com", ["api-1.example.com"], ["api.example.com", "api-1.b.example.com"]),
    ("a*a.example.com", ["aba.example.com"], ["aa.example.com", "a.example.com", "ab.example.com"]),
    ("EXAMPLE.com.", ["example.com"], []),
    ("*.Example.com.", ["a.example.com"], []),
    ("bücher.example", ["xn--bcher-kva.example"], ["bcher.example"]),
    ("**.BÜCHER。example", ["a.xn--bcher-kva.example"], ["xn--bcher-kva.example"]),
    ("_x.bücher.example", ["_x.xn--bcher-kva.example"], []),
    ("straße.example", ["xn--strae-oqa.example"], ["strasse.example"]),
]


@pytest.mark.parametrize(("text", "inside", "outside"), MATCHES)
def test_patterns_match_whole_labels(text: str, inside: list[str], outside: list[str]) -> None:
    pattern = HostPattern.parse(text)
    assert [name for name in inside if not pattern.matches(canonical_host(name))] == []
    assert [name for name in outside if pattern.matches(canonical_host(name))] == []


@pytest.mark.parametrize("text", ["*.example.com", "**.example.com", ".example.com", "1*.2.3.com"])
def test_no_wildcard_matches_a_literal(text: str) -> None:
    assert not HostPattern.parse(text).matches(canonical_host("1.2.3.4"))
    assert not HostPattern.parse(text).matches(canonical_host("[2001:db8::1]"))


REFUSED = [
    ("", "expected"),
    (".", "expected"),
    ("*", "everything"),
    ("**", "everything"),
    ("*.", "everything"),
    ("a*", "everything"),
    ("***.example.com", "one '\\*'"),
    ("a**.example.com", "one '\\*'"),
    ("*a*.example.com", "one '\\*'"),
    ("ä*.example.com", "one '\\*'"),
    ("*。example.com", "one '\\*'|everything"),
    ("a.*.example.com", "first label"),
    ("*.*.example.com", "first label"),
    (".*.example.com", "first label"),
    ("*.com", "anyone"),
    ("**.com", "anyone"),
    (".com", "anyone"),
    ("*.co.uk", "anyone"),
    ("*.github.io", "anyone"),
    ("**.github.io", "anyone"),
    (".github.io", "anyone"),
    ("*-docs.github.io", "anyone"),
    ("**.compute.amazonaws.com", "anyone"),
    ("*.kawasaki.jp", "anyone"),
    ("*.рф", "anyone"),
    ("*.unheard-of", "anyone"),
    ("https://example.com", "scheme"),
    ("example.com:443", "port"),
    ("example.com/x", "path"),
    ("u@example.com", "scheme"),
    ("[::1]", "address"),
    ("1.2.3.4", "cidrs"),
    ("*.1.2.3.4", "cidrs"),
    ("0x7f.1", "number"),
    ("exa_mple-.com", "labels"),
    ("xn--ü.example", "'xn--ü.example'"),
    ("a\u200db.example", "expected"),
    ("a\x00.example", "labels"),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_other_patterns_are_refused_with_what_was_expected(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HostPattern.parse(text)


@pytest.mark.parametrize("text", ["*.acme.github.io", "**.example.co.uk", "*.city.kawasaki.jp", "*.site.test", "com"])
def test_wildcards_below_a_registered_name_are_fine(text: str) -> None:
    HostPattern.parse(text)


def test_specificity_orders_exact_first() -> None:
    texts = [".example.com", "**.example.com", "**.a.example.com", "*.example.com", "*-x.example.com", "a.example.com"]
    assert sorted(texts, key=lambda t: HostPattern.parse(t).specificity) == texts


@pytest.mark.parametrize(
    "text", ["a.example.com", "*.example.com", "**.example.com", ".example.com", "a*b.example.com"]
)
def test_patterns_print_as_they_were_written(text: str) -> None:
    assert str(HostPattern.parse(text)) == text


@given(st.text(max_size=40))
@example("ꯄ")
def test_parsing_is_a_pattern_or_a_value_error(text: str) -> None:
    try:
        pattern = HostPattern.parse(text)
    except ValueError:
        return
    assert HostPattern.parse(str(pattern)) == pattern


_LABELS = st.lists(st.sampled_from(["a", "b", "example", "com", "x-docs", "evil-example"]), min_size=1, max_size=5)


@given(_LABELS)
def test_matching_agrees_with_label_lists(labels: list[str]) -> None:
    """The definition of egress.md 3, written over lists."""
    host = canonical_host(".".join(labels))
    above, base = labels[:-2], labels[-2:]
    under = base == ["example", "com"]
    expected = {
        PatternKind.EXACT: under and not above,
        PatternKind.ONE_BELOW: under and len(above) == 1,
        PatternKind.BELOW: under and len(above) >= 1,
        PatternKind.SUBTREE: under,
    }
    assert {kind: HostPattern(kind, "example.com").matches(host) for kind in expected} == expected
