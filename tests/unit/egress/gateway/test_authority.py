"""What a sandbox's authority signs, and what clients take from it."""

import contextlib
import ssl

import pytest
from cryptography import x509

from sandboxd import limits
from sandboxd.egress.gateway.authority import Authority

NAME = "api.example.com"


def shake(authority: Authority, host: str, asked: str, trusted: str = "") -> ssl.SSLObject:
    """A client that trusts the authority (or `trusted`) asks for `asked`, answered under a certificate for `host`."""
    client_in, client_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cadata=trusted or authority.pem)
    client = context.wrap_bio(client_in, client_out, server_hostname=asked)
    server = authority.context(host, "").wrap_bio(client_out, client_in, server_side=True)
    done = 0
    while done < 2:
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                done += 1
    return client


def test_a_client_takes_the_exact_name() -> None:
    certificate = shake(Authority([NAME], "sb-1"), NAME, NAME).getpeercert()
    assert certificate is not None
    assert certificate["subjectAltName"] == (("DNS", NAME),)


def test_a_client_takes_no_other_name() -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(Authority(["example.com"], "sb-1"), "a.example.com", "b.example.com")


@pytest.mark.parametrize("host", ["bank.example.org", "example.com", "evilapi.example.com"])
def test_what_the_policy_does_not_intercept_can_not_be_signed(host: str) -> None:
    """Even for someone who has the key: clients hold the authority to its own certificate."""
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        shake(Authority([NAME], "sb-1"), host, host)


def test_names_below_can_be_signed() -> None:
    authority = Authority(["example.com"], "sb-1")
    assert authority.may_sign("a.b.example.com")
    assert not authority.may_sign("badexample.com")
    shake(authority, "a.b.example.com", "a.b.example.com")


def test_too_many_names_become_what_they_end_in() -> None:
    authority = Authority([f"n{number}.example.com" for number in range(limits.SIGNED_NAMES + 1)], "sb-1")
    assert authority.names == ("com",)
    shake(authority, "n3.example.com", "n3.example.com")


def test_leaves_are_kept_and_bounded() -> None:
    authority = Authority(["example.com"], "sb-1")
    first = authority.context("a.example.com", "h2")
    assert authority.context("a.example.com", "h2") is first
    assert authority.context("a.example.com", "") is not first
    for number in range(limits.LEAVES):
        authority.context(f"n{number}.example.com", "")
    assert authority.context("a.example.com", "h2") is not first


def test_two_authorities_are_not_each_others() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(Authority([NAME], "sb-1"), NAME, NAME, trusted=Authority([NAME], "sb-1").pem)


def test_long_names_and_long_organisations() -> None:
    name = ".".join(["a" * 60] * 4)
    shake(Authority([name], "x" * 200), name, name)


def test_the_certificate_can_do_nothing_but_sign_servers() -> None:
    certificate = x509.load_pem_x509_certificate(Authority([NAME], "sb-1").pem.encode())
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value.path_length == 0


def test_its_text_shows_no_key() -> None:
    assert "PRIVATE" not in repr(Authority([NAME], "sb-1"))
