"""SSH and PostgreSQL, told as conversations."""

import pytest

from sandboxd.egress import commands as c
from tests.fuzz.seeds import postgres_startups
from tests.kit.playbook import Playbook, allow, policy

NAME, PUBLIC = "git.example.com", "8.8.8.8"
SSH = policy(allow({"hosts": [NAME], "ports": [22]}, "ssh"))
POSTGRES = policy(allow({"hosts": [NAME], "ports": [5432]}, "postgres"))
BANNER = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"
STARTUPS = postgres_startups()


def test_ssh() -> None:
    play = Playbook(SSH, host=NAME, port=22)
    assert play.start() == ["timer peek 10"]
    assert play.says(BANNER[:9]) == []
    assert play.says(BANNER[9:] + b"\0kex") == ["stop peek", f"resolve {NAME}"]
    assert play.resolved(PUBLIC)[0] == "decision allow allowed"
    assert play.connected(PUBLIC)[-1] == "splice 300"
    assert play.sent_outside == BANNER + b"\0kex"
    assert play.records[0].detail == {"ssh": "OpenSSH_9.2p1 Debian-2"}
    assert (play.records[0].layer, play.records[0].proto) == ("first_bytes", "ssh")
    assert play.flow.judge_again(SSH)
    assert not play.flow.judge_again(policy(allow({"hosts": [NAME], "ports": [22]}, "tcp")))


@pytest.mark.parametrize(("data", "reason"), [(b"\x16\x03\x01", "proto_mismatch"), (b"SSH-2.0-\x01\n", "malformed")])
def test_what_is_no_ssh_is_reset(data: bytes, reason: str) -> None:
    play = Playbook(SSH, host=NAME, port=22)
    play.start()
    assert play.says(data) == [f"decision deny {reason}", f"close denied {reason}", "reset"]


def test_a_client_that_waits_for_the_server_is_given_up() -> None:
    play = Playbook(SSH, host=NAME, port=22)
    play.start()
    assert play(c.TimedOut("peek"))[0] == "decision deny peek_timeout"


def test_postgres() -> None:
    play = Playbook(POSTGRES, host=NAME, port=5432)
    play.start()
    assert play.says(STARTUPS["startup"]) == ["stop peek", f"resolve {NAME}"]
    play.resolved(PUBLIC)
    play.connected(PUBLIC)
    assert play.sent_outside == STARTUPS["startup"]
    assert play.records[0].detail == {"postgres": "startup"}


def test_gss_encryption_is_refused_and_the_client_goes_on() -> None:
    play = Playbook(POSTGRES, host=NAME, port=5432)
    play.start()
    gss, ssl = STARTUPS["gss-ssl"][:8], STARTUPS["gss-ssl"][8:]
    assert play.says(gss) == ["to client 1"]
    assert play.sent_inside == b"N"
    assert play.says(ssl) == ["stop peek", f"resolve {NAME}"]
    play.resolved(PUBLIC)
    play.connected(PUBLIC)
    assert play.sent_outside == ssl


def test_what_is_no_postgres_is_reset() -> None:
    play = Playbook(POSTGRES, host=NAME, port=5432)
    play.start()
    assert play.says(b"GET / HTTP/1.1\r\n\r\n") == [
        "decision deny proto_mismatch",
        "close denied proto_mismatch",
        "reset",
    ]
