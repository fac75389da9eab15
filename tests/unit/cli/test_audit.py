"""`sandboxd audit`: a table a person can read, JSON a program can, and nothing that moves the cursor."""

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sandboxd.audit.events import Destination, Event, Subject
from sandboxd.audit.store import open_sink
from sandboxd.cli import audit
from sandboxd.cli.text import count, harmless
from sandboxd.errors import UsageError
from sandboxd.reasons import Layer, Reason, Verdict

SUBJECT = Subject("default", "helper", "sb-1", "mcp:fetch", 3, "ab" * 32, ("call-7",))
IDS = [f"01M8NR{n}0000000000000000ENDOF{n}" for n in range(5)]
EVENTS = [
    Event(IDS[0], 1000.0, "dns", SUBJECT, verdict=Verdict.ALLOW, reason=Reason.ALLOWED,
          detail={"qname": "api.example.com", "qtype": "A", "rcode": "NOERROR"}),
    Event(IDS[1], 1001.0, "decision", SUBJECT, Destination("api.example.com", None, 443), IDS[1], Verdict.ALLOW, "gh",
          Layer.FIRST_BYTES, Reason.ALLOWED, proto="tls", detail={"sni": "api.example.com", "alpn": ["h2"]}),
    Event(IDS[2], 1002.0, "close", SUBJECT, Destination("api.example.com", "2001:db8::7", 443), IDS[1],
          detail={"bytes_in": 34_100, "bytes_out": 1234, "duration": 0.5, "how": "eof"}),
    Event(IDS[3], 1003.0, "decision", SUBJECT, Destination(None, "2001:db8::9", 22), IDS[3], Verdict.DENY, None,
          Layer.CONNECT, Reason.NO_MATCH),
    Event(IDS[4], 1004.0, "request", SUBJECT, Destination("a\x1b[2Jb\u202e", None, 80), "", Verdict.WOULD_DENY, "r",
          Layer.REQUEST, Reason.METHOD_PATH, detail={"method": "GET", "path": "/\r\n01M8NR forged", "status": 403}),
]  # fmt: skip


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "audit").mkdir()
    (tmp_path / "settings.toml").write_text(f'state_dir = "{tmp_path}"\n')
    monkeypatch.setenv("SANDBOXD_SETTINGS", str(tmp_path / "settings.toml"))
    path = tmp_path / "audit" / "audit.db"
    with open_sink(path, "gateway-1") as sink:
        for event in EVENTS:
            sink.emit(event)
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(audit.app, arguments)


def test_ls_is_one_line_a_record(database: Path) -> None:
    lines = run("ls").output.splitlines()
    assert len(lines) == 6
    assert "destination" in lines[0]
    assert "api.example.com A" in lines[1]
    assert "helper/mcp:fetch" in lines[2]
    assert "api.example.com:443" in lines[2]
    assert "1.2k / 34k" in lines[3]
    assert "[2001:db8::9]:22" in lines[4]
    assert IDS[3][-10:] in lines[4]
    assert "no_match" in lines[4]
    assert "would_deny" in lines[5]


def test_hostile_names_are_shown_harmless(database: Path) -> None:
    for arguments in (("ls",), ("show", IDS[4])):
        output = run(*arguments).output
        assert "\x1b" not in output
        assert "\u202e" not in output
        assert "a\\x1b[2Jb\\u202e" in output
        assert "\\x0d\\x0a" in output


def test_ls_json_has_every_field(database: Path) -> None:
    lines = run("ls", "--json", "--event", "decision").output.splitlines()
    first = json.loads(lines[0])
    assert len(lines) == 2
    assert first["id"] == IDS[1]
    assert first["dst"] == {"host": "api.example.com", "ip": None, "port": 443}
    assert first["detail"]["alpn"] == ["h2"]
    assert first["calls"] == ["call-7"]
    assert (first["writer"], first["seq"], first["policy_revision"]) == ("gateway-1", 2, 3)
    assert all(line.isascii() for line in lines)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--verdict", "deny"], [3]),
        (["--verdict", "would_deny"], [4]),
        (["--host", "api.example.com"], [0, 1, 2]),
        (["--host", "2001:db8::9"], [3]),
        (["--agent", "helper", "--limit", "2"], [3, 4]),
        (["--agent", "nobody"], []),
        (["--sandbox", "sb-1", "--event", "close"], [2]),
        (["--since", "1970-01-01T00:16:43+00:00"], [3, 4]),
        (["--since", "10m"], []),
    ],
)
def test_ls_filters(database: Path, arguments: list[str], expected: list[int]) -> None:
    lines = run("ls", "--json", *arguments).stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [IDS[n] for n in expected]


def test_ls_says_that_there_is_more_and_that_there_is_none(database: Path) -> None:
    assert run("ls", "--limit", "4").stderr == "sandboxd: the newest 4; --limit shows more\n"
    assert run("ls", "--limit", "5").stderr == ""
    assert run("ls", "--agent", "nobody").stderr == "sandboxd: no such record\n"


def test_show(database: Path) -> None:
    output = run("show", IDS[1][-10:]).output
    assert "1970-01-01T00:16:41.000000+00:00" in output
    assert "dst.host" in output
    assert "detail.sni" in output
    assert "Of the same connection" in output
    assert IDS[2][-10:] in output
    assert json.loads(run("show", "--json", IDS[3]).output)["reason"] == "no_match"


def test_unknown_id_and_nothing_recorded(database: Path) -> None:
    assert "no record" in str(run("show", "01M8NR99").exception)
    database.unlink()
    assert "no audit database" in str(run("ls").exception)


def test_verify(database: Path, tmp_path: Path) -> None:
    saved = str(tmp_path / "tips.json")
    fine = run("verify", "--save", saved)
    assert fine.exit_code == 0
    assert "5 records, 1 chains, 0 breaks" in fine.output
    assert run("verify", "--against", saved).exit_code == 0
    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM records WHERE seq = 5")
    assert run("verify").exit_code == 0
    cut = run("verify", "--against", saved, "--json")
    assert cut.exit_code == 1
    assert json.loads(cut.output)["breaks"][0]["problem"] == "the anchored record is not there"
    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM records WHERE seq = 2")
    broken = run("verify")
    assert broken.exit_code == 1
    assert "BROKEN  writer gateway-1 seq 3" in broken.output


def test_bad_anchors(database: Path, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("[1]")
    assert isinstance(run("verify", "--against", str(tmp_path / "x")).exception, UsageError)


def test_follow_prints_what_comes(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter(range(3))

    def rest() -> None:
        number = next(rounds)
        if number == 2:
            raise KeyboardInterrupt
        with open_sink(database, "gateway-2") as sink:
            sink.emit(Event(f"01ZZ{number}", 2000.0, "decision", SUBJECT, verdict=Verdict.DENY))
            sink.emit(Event(f"01YY{number}", 2000.0, "decision", SUBJECT, verdict=Verdict.ALLOW))

    monkeypatch.setattr(audit, "rest", rest)
    result = run("ls", "--follow", "--json", "--verdict", "deny")
    assert result.exit_code == 0
    assert [json.loads(line)["id"] for line in result.output.splitlines()] == [IDS[3], "01ZZ0", "01ZZ1"]


@pytest.mark.parametrize(("text", "seconds"), [("10s", 10), ("5m", 300), ("2h", 7200), ("3d", 259_200)])
def test_since(text: str, seconds: int) -> None:
    assert audit.parse_since(text, 1e6) == 1e6 - seconds


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "yesterday", "2026-13-01", "1e3s", "５m"])
def test_since_refuses(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        audit.parse_since(text, 1e6)


def test_harmless_and_count() -> None:
    assert harmless("plain text é 例") == "plain text é 例"
    assert (
        harmless("\x00\n\x7f\x9b\u200b\u2028\ud800\U000e0001") == "\\x00\\x0a\\x7f\\x9b\\u200b\\u2028\\ud800\\U000e0001"
    )
    assert [count(n) for n in (0, 999, 1000, 9949, 9950, 999_499, 999_500, 10**9, 10**18)] == [
        "0", "999", "1.0k", "9.9k", "10k", "999k", "1.0M", "1.0G", "1000000T",
    ]  # fmt: skip
