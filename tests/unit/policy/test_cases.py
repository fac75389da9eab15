"""Files of cases: read strictly, compared with what the policy decides."""

import pytest

from sandboxd.errors import UsageError
from sandboxd.policy.cases import run_cases
from sandboxd.policy.loading import parse_policy

POLICY = parse_policy(
    "egress: {rules: [{id: a, action: allow, proto: tls, to: {hosts: [a.example.com], ports: [443]}}]}", "p"
)


def outcomes(text):
    return run_cases(POLICY, text, "x.cases.yaml")


def test_each_case_says_what_was_expected_and_what_came():
    right, wrong, loose = outcomes(
        "cases:\n"
        '  - {connect: "a.example.com:443", verdict: allow, rule: a}\n'
        '  - {connect: "a.example.com:80", verdict: allow, rule: a}\n'
        '  - {connect: "a.example.com:80", verdict: deny}\n'
    )
    assert (right.ok, wrong.ok, loose.ok) == (True, False, True)
    assert (wrong.line, wrong.asked, str(wrong.expected), str(wrong.got)) == (
        3, "connect a.example.com:80", "allow by a", "deny port",
    )  # fmt: skip


def test_a_name_that_is_none_is_denied():
    (outcome,) = outcomes('cases: [{dns: "a b", verdict: deny, reason: invalid_host}]')
    assert outcome.ok


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no cases"),
        ("cases: []", "must not be empty"),
        ("cases: [{verdict: deny}]", "expected one of dns, connect"),
        ('cases: [{dns: a, connect: "b:1", verdict: deny}]', "found dns, connect"),
        ('cases: [{connect: "b", verdict: deny}]', "expected HOST:PORT"),
        ('cases: [{connect: "b:0", verdict: deny}]', "expected HOST:PORT"),
        ('cases: [{connect: "b:1", verdict: no-way}]', "expected 'allow'"),
        ('cases: [{connect: "b:1", verdict: deny, reason: nope}]', "expected"),
        ('cases: [{connect: "b:1", verdict: deny, rul: a}]', "did you mean 'rule'?"),
        ('server: s\ncases: [{connect: "b:1", verdict: deny}]', "x.cases.yaml:1:9: server: the policy has no server"),
        ('pins: [x]\ncases: [{connect: "b:1", verdict: deny}]', "HOST=ADDRESS"),
        ('cases: [{resolve: {to: "b:1", address: b}, verdict: deny}]', "expected an IP address"),
    ],
)
def test_mistakes(text, problem):
    with pytest.raises(UsageError) as error:
        outcomes(text)
    assert problem in str(error.value)
