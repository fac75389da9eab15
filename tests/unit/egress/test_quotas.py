"""Rates: never more than the amount within any stretch of their time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.egress.quotas import Allowance, Allowances, Quotas
from sandboxd.policy.matching import CompiledLimits
from sandboxd.policy.units import Rate
from sandboxd.reasons import Reason


def bounds(**more) -> CompiledLimits:
    return CompiledLimits(**{key: frozenset(rates) for key, rates in more.items()})


steps = st.lists(st.tuples(st.floats(0, 30), st.integers(1, 6)), max_size=60)


@settings(max_examples=200)
@given(steps, st.sampled_from([Rate(5, 1), Rate(10, 60), Rate(3, 7)]))
def test_in_no_stretch_of_the_time_more_than_the_amount(steps, rate):
    allowance, now, taken = Allowance(rate), 1000.0, []
    for pause, wanted in steps:
        now += pause
        got = min(wanted, allowance.left(now))
        if got:
            allowance.take(got, now)
            taken.append((now, got))
    for end, _ in taken:
        assert sum(got for at, got in taken if end - rate.seconds < at <= end) <= rate.amount


def test_it_comes_back_with_the_time():
    allowance = Allowance(Rate(10, 60))
    allowance.take(10, 1000.0)
    assert allowance.left(1059.0) == 0
    assert allowance.left(1064.0) == 10


def test_of_several_rates_each_holds():
    several = Allowances()
    assert not several.bounded
    assert several.left(0) > 1 << 60
    several.follow([Rate(10, 1), Rate(15, 3600)])
    several.take(10, 100.0)
    assert several.left(100.0) == 0
    assert several.left(102.0) == 5


def test_a_rate_that_stays_goes_on_counting():
    several = Allowances()
    several.follow([Rate(10, 3600)])
    several.take(4, 100.0)
    several.follow([Rate(10, 3600), Rate(1000, 86400)])
    assert several.left(101.0) == 6


def test_new_connections():
    quotas = Quotas()
    assert all(quotas.admit(0.0) is None for _ in range(1000))
    quotas.follow(bounds(new_conns=[Rate(2, 1)]))
    assert [quotas.admit(10.0), quotas.admit(10.1), quotas.admit(10.2)] == [None, None, Reason.QUOTA_NEW_CONNS]
    assert quotas.admit(11.5) is None


def test_no_connection_begins_once_the_bytes_are_used_up():
    quotas = Quotas()
    quotas.follow(bounds(bytes_out=[Rate(100, 86400)], bytes_in=[Rate(100, 86400)]))
    assert quotas.admit(0.0) is None
    quotas.bytes_out.take(100, 0.0)
    assert quotas.admit(1.0) is Reason.QUOTA_BYTES


def test_distinct_names():
    quotas = Quotas()
    assert all(quotas.know(f"n{n}.example", 0.0) for n in range(10))
    quotas.follow(bounds(names=[Rate(2, 60)]))
    answers = [quotas.know(name, 0.0) for name in ("a", "b", "a", "c", "b")]
    assert answers == [True, True, True, False, True]
    assert quotas.know("c", 60.0)


def test_names_are_not_kept_without_bound():
    quotas = Quotas()
    quotas.follow(bounds(names=[Rate(10**9, 86400)]))
    assert sum(quotas.know(f"n{n}", 0.0) for n in range(limits.SYNTHETIC_NAMES + 10)) == limits.SYNTHETIC_NAMES
