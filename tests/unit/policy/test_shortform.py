"""`--allow` and what it is short for."""

import subprocess
import sys

import pytest

from sandboxd.errors import ExitCode, UsageError
from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.shortform import egress_from_allows


@pytest.mark.parametrize(
    ("text", "proto", "hosts", "cidrs", "port"),
    [
        ("example.com", "tls", "example.com", None, 443),
        ("example.com:443", "tls", "example.com", None, 443),
        ("*.example.com", "tls", "*.example.com", None, 443),
        ("EXAMPLE.com.", "tls", "example.com", None, 443),
        ("tls://example.com", "tls", "example.com", None, 443),
        ("https://example.com:8443", "tls", "example.com", None, 8443),
        ("http://example.com", "http", "example.com", None, 80),
        ("http://example.com:8080", "http", "example.com", None, 8080),
        ("ssh://git.example.com", "ssh", "git.example.com", None, 22),
        ("postgres://db.example.com", "postgres", "db.example.com", None, 5432),
        ("tcp://db.host.sandboxd:5432", "tcp", "db.host.sandboxd", None, 5432),
        ("tcp://10.1.2.3:5432", "tcp", None, "10.1.2.3/32", 5432),
        ("tls://[2606:4700::1]", "tls", None, "2606:4700::1/128", 443),
        ("8.8.8.8", "tls", None, "8.8.8.8/32", 443),
    ],
)
def test_forms(text, proto, hosts, cidrs, port):
    (rule,) = egress_from_allows([text]).rules
    assert (rule.proto, rule.to.ports) == (proto, (port,))
    assert [str(h) for h in rule.to.hosts or ()] == ([hosts] if hosts else [])
    assert [str(c) for c in rule.to.cidrs or ()] == ([cidrs] if cidrs else [])
    assert rule.id.startswith("allow:")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("example.com:22", "tcp://example.com:22"),
        ("tcp://example.com", "needs a port"),
        ("ftp://example.com", "scheme 'ftp'"),
        ("example.com/path", "no path"),
        ("user:pw@example.com", "no credentials"),
        ("https://example.com?x", "no query"),
        ("*", "would match everything"),
        ("*.github.io", "anyone can get a name"),
        ("example.com:0", "port from 1 to 65535"),
        ("tcp://example.com:70000", "port from 1 to 65535"),
        ("", "expected"),
        ("a b", "not a host name"),
        ("tcp://127.0.0.1:80", "--pin NAME=ADDRESS"),
        ("tls://[::1]", "no rule opens ::1"),
    ],
)
def test_mistakes(text, hint):
    with pytest.raises(UsageError) as error:
        egress_from_allows([text])
    assert hint in str(error.value)
    assert error.value.exit_code is ExitCode.USAGE


def test_the_same_place_twice_is_one_rule():
    assert len(egress_from_allows(["example.com", "https://example.com"]).rules) == 1


def test_nothing_allows_nothing():
    assert egress_from_allows([]).rules == ()


def test_it_travels():
    policy = egress_from_allows(["example.com", "tcp://10.1.2.3:5432", "http://*.example.org:8080"])
    travelled = EgressPolicy.from_wire(policy.to_wire())
    assert travelled.to_wire() == policy.to_wire()
    assert [str(rule.to.hosts) for rule in travelled.rules] == [str(rule.to.hosts) for rule in policy.rules]


def test_no_model_is_imported_for_it():
    program = """if True:
        import sys
        from sandboxd.policy.shortform import egress_from_allows
        assert egress_from_allows(["example.com", "tcp://10.1.2.3:5432"]).to_wire()
        assert "pydantic" not in sys.modules, "run waits for what takes longest to import"
    """
    subprocess.run([sys.executable, "-c", program], check=True)
