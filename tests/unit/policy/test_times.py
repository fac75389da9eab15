"""Rules that are limited in time: until a moment, within windows."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.policy.contradictions import contradictions
from sandboxd.policy.decide import decide, judge_address
from sandboxd.policy.egress import Window
from sandboxd.policy.hosts import canonical_host
from sandboxd.policy.loading import parse_policy
from sandboxd.policy.problems import PolicyError
from sandboxd.policy.requests import ConnectRequest, DnsRequest, Moment
from sandboxd.policy.times import Times
from sandboxd.policy.units import DAYS, parse_instant
from sandboxd.reasons import Reason
from tests.kit.policies import compiled, host, literal, rule, scope

MONDAY = parse_instant("2026-11-30T00:00:00Z")
HOUR = 3600


def window(days, start, end):
    return Window.from_wire({"from": start, "to": end} | ({"days": days} if days else {}))


def at(policy, target, now):
    decision = decide(policy, ConnectRequest(target), Moment(now))
    return decision.verdict, decision.reason, decision.rule


def test_until():
    policy = compiled(rule("r", hosts=["a.example.com"], until="2026-11-30T00:00:00Z"))
    target = host("a.example.com")
    assert at(policy, target, MONDAY - 0.001) == ("allow", Reason.ALLOWED, "r")
    assert at(policy, target, MONDAY) == ("deny", Reason.EXPIRED, "r")
    assert at(policy, host("a.example.com", 80), MONDAY) == ("deny", Reason.PORT, None)
    assert at(policy, target, None) == ("deny", Reason.EXPIRED, "r")
    names = [
        decide(policy, DnsRequest(canonical_host("a.example.com")), Moment(now)).reason for now in (MONDAY - 1, MONDAY)
    ]
    assert names == [Reason.ALLOWED, Reason.EXPIRED]
    connect = decide(policy, ConnectRequest(target), Moment(MONDAY - 1))
    assert not judge_address(policy, connect, target, b"\x08\x08\x08\x08", is_host=False, now=Moment(MONDAY)).allowed


def test_a_denial_with_a_time():
    policy = compiled(
        rule("r", hosts=["*.example.com"]),
        rule("no", action="deny", hosts=["a.example.com"], until="2026-11-30T00:00:00Z"),
        rule("net", action="deny", cidrs=["8.8.8.0/24"], windows=[{"from": "00:00", "to": "01:00"}]),
        rule("lit", cidrs=["8.8.0.0/16"]),
    )
    assert at(policy, host("a.example.com"), MONDAY - 1)[2] == "no"
    assert at(policy, host("a.example.com"), None)[2] == "no"
    assert at(policy, host("a.example.com"), MONDAY)[2] == "r"
    assert at(policy, literal("8.8.8.8"), MONDAY)[2] == "net"
    assert at(policy, literal("8.8.8.8"), MONDAY + HOUR)[2] == "lit"


def test_the_less_specific_rule_stands_in_when_the_other_is_closed():
    policy = compiled(
        rule("day", hosts=["a.example.com"], windows=[{"from": "08:00", "to": "18:00"}]),
        rule("always", hosts=["*.example.com"], proto="tcp"),
    )
    assert at(policy, host("a.example.com"), MONDAY + 9 * HOUR)[2] == "day"
    assert at(policy, host("a.example.com"), MONDAY)[2] == "always"


def test_rules_for_different_times_may_stand_at_one_place():
    day = rule("day", hosts=["a.example.com"], windows=[{"from": "08:00", "to": "18:00"}])
    night = rule("night", hosts=["a.example.com"], windows=[{"from": "18:00", "to": "08:00"}])
    policy = compiled(day, night)
    assert at(policy, host("a.example.com"), MONDAY + 9 * HOUR)[2] == "day"
    assert at(policy, host("a.example.com"), MONDAY)[2] == "night"
    assert contradictions(scope(day, night | {"proto": "tcp"}))


@pytest.mark.parametrize(
    ("days", "start", "end", "opens"),
    [
        (None, "09:00", "17:00", [(9, 17)]),
        (["mon"], "09:00", "17:00", [(9, 17)]),
        (["tue"], "09:00", "17:00", []),
        (["sun"], "22:00", "06:00", [(0, 6)]),
        (["mon"], "22:00", "06:00", [(22, 24)]),
        (None, "00:00", "24:00", [(0, 24)]),
        (["mon"], "00:00", "24:00", [(0, 24)]),
        (["sun"], "23:00", "24:00", []),
    ],
)
def test_windows_on_a_monday(days, start, end, opens):
    times = Times.of(None, [window(days, start, end)])
    assert times
    for minute in range(0, 24 * 60, 15):
        expected = any(first * 60 <= minute < last * 60 for first, last in opens)
        assert times.is_open(MONDAY + minute * 60) is expected, minute


instants = st.floats(0, 4e9)
windows = st.builds(
    window,
    st.one_of(st.none(), st.lists(st.sampled_from(DAYS), min_size=1, unique=True)),
    st.sampled_from(["00:00", "08:15", "12:00", "23:59"]),
    st.sampled_from(["00:01", "08:30", "18:00", "24:00"]),
)


@given(st.one_of(st.none(), instants), st.lists(windows, min_size=1, max_size=3), instants)
def test_between_two_changes_nothing_changes(until, parts, now):
    times = Times.of(until, parts)
    assert times
    change = times.next_change(now)
    assert change > now
    later = min(change, now + 8 * 86400)
    for step in range(1, 9):
        between = now + (later - now) * step / 10
        if now <= between < later:
            assert times.is_open(between) == times.is_open(now)


@given(windows, instants)
def test_a_window_is_what_a_calendar_says(part, now):
    times = Times.of(None, [part])
    assert times
    moment = datetime.fromtimestamp(now, UTC)
    minute = moment.hour * 60 + moment.minute
    days, yesterday = part.days or DAYS, DAYS[(moment - timedelta(days=1)).weekday()]
    today = DAYS[moment.weekday()] in days
    if part.start < part.end:
        expected = today and part.start <= minute < part.end
    else:
        expected = (today and minute >= part.start) or (yesterday in days and minute < part.end)
    assert times.is_open(now) is expected


def test_when_a_policy_changes():
    policy = compiled(
        rule("a", hosts=["a.example.com"], until="2026-12-01T00:00:00Z"),
        rule("b", hosts=["b.example.com"], windows=[{"from": "10:00", "to": "11:00"}]),
    )
    assert policy.is_timed
    assert policy.next_change(MONDAY) == MONDAY + 10 * HOUR
    assert policy.next_change(MONDAY + 11 * HOUR) == MONDAY + 24 * HOUR
    assert not compiled(rule("a", hosts=["a.example.com"])).is_timed
    assert compiled(rule("a", hosts=["a.example.com"])).next_change(MONDAY) == math.inf


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("until: 2026-12-31T18:00:00Z", "quote it"),
        ('until: "2026-12-31"', "expected a time with its offset"),
        ('until: "2026-12-31T18:00:00"', "expected a time with its offset"),
        ('until: "2026-02-30T18:00:00Z"', "no such time"),
        ('windows: [{from: "9:00", to: "10:00"}]', "expected a time of day"),
        ('windows: [{from: 09:00, to: "10:00"}]', "quote it"),
        ('windows: [{from: "09:00", to: "09:00"}]', "a window without length"),
        ('windows: [{from: "09:00", to: "10:00", days: [monday]}]', "did you mean 'mon'?"),
        ("windows: []", "must not be empty"),
    ],
)
def test_mistakes(keys, problem):
    text = (
        f"egress: {{rules: [{{id: a, action: allow, proto: tls, to: {{hosts: [a.example.com], ports: [1]}}, {keys}}}]}}"
    )
    with pytest.raises(PolicyError) as error:
        parse_policy(text, "x")
    assert problem in str(error.value)
