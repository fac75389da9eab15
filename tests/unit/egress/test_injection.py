"""Credentials in requests, placeholders anywhere else: values never show, and nothing else of the request changes."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.egress.injection import Admitted, Guard
from sandboxd.egress.vault import HeldSecret, Vault
from sandboxd.egress.wire.http_messages import RequestHead
from sandboxd.egress.wire.outcome import Refusal
from sandboxd.policy.egress import Credential
from sandboxd.reasons import Reason

PLACEHOLDER = "sandboxd-placeholder-" + "0a" * 16
SECRET = "s3cr3t-value"
VAULT = Vault([HeldSecret("token", SECRET, PLACEHOLDER)])
BASIC = base64.b64encode(f"me:{PLACEHOLDER}".encode()).decode()


def head(*headers: tuple[str, str], path: str = "/a", query: bytes | None = None, method: str = "GET") -> RequestHead:
    fields = tuple((name.encode(), value.encode()) for name, value in headers)
    return RequestHead(method, b"api.example.com", path, query, "1.1", fields)


def credential(form: str = "{}", header: str = "Authorization") -> Credential:
    return Credential(secret="token", header=header, format=form)


def value(form: str, *own: str) -> str:
    admitted = Guard(VAULT, [credential(form)]).admit(head(*(("authorization", text) for text in own)))
    assert isinstance(admitted, Admitted)
    assert admitted.secrets == ("token",)
    (found,) = [value for name, value in admitted.head.headers if name == b"authorization"]
    return found.decode()


def basic(user: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{SECRET}".encode()).decode()


@pytest.mark.parametrize(
    ("form", "own", "expected"),
    [
        ("Bearer {}", (), f"Bearer {SECRET}"),
        ("Bearer {}", ("Bearer of-its-own",), f"Bearer {SECRET}"),
        ("Bearer {}", ("one", "two"), f"Bearer {SECRET}"),
        ("Basic bot:{}", (), basic("bot")),
        ("Basic bot:{}", (f"Basic {BASIC}",), basic("bot")),
        ("{}", (), SECRET),
        ("{}", ("of-its-own",), SECRET),
        ("{}", (PLACEHOLDER,), SECRET),
        ("{}", (f"token {PLACEHOLDER}",), f"token {SECRET}"),
        ("{}", (f"Basic {BASIC}",), basic("me")),
        ("{}", (f"Bearer mine {PLACEHOLDER}",), SECRET),
        ("{}", (f"Bearer {PLACEHOLDER} mine",), SECRET),
        ("{}", ("Basic not-base64!",), SECRET),
    ],
)
def test_what_the_header_says(form: str, own: tuple[str, ...], expected: str) -> None:
    assert value(form, *own) == expected


@pytest.mark.parametrize(
    "request_head",
    [
        head(("x-other", PLACEHOLDER)),
        head((f"x-{PLACEHOLDER}", "1")),
        head(("cookie", f"a={PLACEHOLDER}; b=c")),
        head(("proxy-authorization", f"Basic {BASIC}")),
        head(path=f"/{PLACEHOLDER}"),
        head(query=PLACEHOLDER.encode()),
        head(query=PLACEHOLDER.replace("-", "%2D").encode()),
    ],
)
def test_a_placeholder_elsewhere(request_head: RequestHead) -> None:
    for guard in (Guard(VAULT, [credential()]), Guard(VAULT)):
        refused = guard.admit(request_head)
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.PLACEHOLDER
        assert PLACEHOLDER not in refused.detail


def test_where_no_rule_has_credentials_its_header_is_elsewhere_too() -> None:
    assert isinstance(Guard(VAULT).admit(head(("authorization", f"Bearer {PLACEHOLDER}"))), Refusal)
    assert isinstance(Guard(VAULT).admit(head(("authorization", "Bearer something"))), Admitted)


def test_trace_would_send_it_back() -> None:
    refused = Guard(VAULT, [credential()]).admit(head(method="TRACE"))
    assert isinstance(refused, Refusal)
    assert isinstance(Guard(VAULT).admit(head(method="TRACE")), Admitted)


def test_a_secret_that_is_not_held() -> None:
    refused = Guard(Vault(), [credential()]).admit(head())
    assert isinstance(refused, Refusal)


def test_nothing_shows_a_value() -> None:
    vault = Vault([HeldSecret("token", SECRET, PLACEHOLDER)])
    assert vault.rotate("token", "another-secret")
    assert not vault.rotate("unknown", "x")
    assert vault.value("token") == "another-secret"
    assert "secret" not in repr(vault)
    assert SECRET not in repr(HeldSecret("token", SECRET, PLACEHOLDER))


@given(st.binary(max_size=300), st.binary(max_size=300), st.lists(st.integers(1, 60), max_size=40))
def test_bodies_are_searched_however_they_are_cut(before: bytes, after: bytes, cuts: list[int]) -> None:
    body = before + PLACEHOLDER.encode() + after
    scan, found = VAULT.scan(), False
    for size in (*cuts, len(body)):
        piece, body = body[:size], body[size:]
        found = found or scan.found(piece)
    assert found


@given(st.lists(st.binary(max_size=2000), max_size=20))
def test_other_bodies_pass(pieces: list[bytes]) -> None:
    scan = VAULT.scan()
    assert not any(scan.found(piece) for piece in pieces)


def test_the_search_is_bounded() -> None:
    scan = VAULT.scan()
    assert not scan.found(bytes(limits.PLACEHOLDER_BODY))
    assert not scan.found(PLACEHOLDER.encode())


names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12).filter(lambda name: name != "authorization")
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)


@given(st.lists(st.tuples(names, values), max_size=8))
def test_everything_else_stays_as_it_is(fields: list[tuple[str, str]]) -> None:
    asked = head(*fields)
    admitted = Guard(VAULT, [credential("Bearer {}")]).admit(asked)
    assert isinstance(admitted, Admitted)
    assert admitted.head.headers == (*asked.headers, (b"authorization", f"Bearer {SECRET}".encode()))
    assert (admitted.head.method, admitted.head.path, admitted.head.query) == (asked.method, asked.path, asked.query)
