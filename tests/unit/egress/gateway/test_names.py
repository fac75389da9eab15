"""Synthetic addresses."""

import ipaddress

import pytest

from sandboxd.egress.gateway.names import NamesExhaustedError, SyntheticNames
from sandboxd.policy.requests import Host

RANGE = ipaddress.ip_network("198.18.0.0/15")
RESERVED = {"198.18.0.0", "198.18.0.1", "198.18.0.2", "198.19.255.255"}


def test_one_address_a_name_and_back() -> None:
    names = SyntheticNames("sb-1")
    address = names.address_of(Host("a.example"))
    assert names.address_of(Host("a.example")) == address
    assert names.host_of(address) == "a.example"
    assert names.address_of(Host("b.example")) != address


def test_all_are_distinct_in_range_and_never_reserved() -> None:
    names = SyntheticNames("sb-1", limit=20_000)
    given = {names.address_of(Host(f"n{number}.example")) for number in range(20_000)}
    assert len(given) == len(names) == 20_000
    texts = {str(ipaddress.ip_address(address)) for address in given}
    assert not texts & RESERVED
    assert all(ipaddress.ip_address(text) in RANGE for text in texts)


def test_the_same_sandbox_gives_the_same_addresses_another_does_not() -> None:
    host = Host("a.example")
    assert SyntheticNames("sb-1").address_of(host) == SyntheticNames("sb-1").address_of(host)
    assert SyntheticNames("sb-1").address_of(host) != SyntheticNames("sb-2").address_of(host)


def test_an_address_that_was_never_given_out_has_no_name() -> None:
    names = SyntheticNames("sb-1")
    assert names.host_of(bytes((198, 18, 5, 5))) is None
    assert names.host_of(bytes((8, 8, 8, 8))) is None
    assert names.host_of(bytes(16)) is None


def test_new_names_end_at_the_limit_old_ones_stay() -> None:
    names = SyntheticNames("sb-1", limit=2)
    kept = names.address_of(Host("a.example"))
    names.address_of(Host("b.example"))
    with pytest.raises(NamesExhaustedError):
        names.address_of(Host("c.example"))
    assert names.address_of(Host("a.example")) == kept
