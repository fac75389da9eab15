"""`sandboxd policy check` and `schema`."""

import json

from typer.testing import CliRunner

from sandboxd.cli.policy import app

GOOD = "egress: {mode: offline}\n"
BAD = "egress: {mode: ofline}\n"


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_check_says_ok(tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD)
    result = run("check", tmp_path / "good.yaml")
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path}/good.yaml: ok\n"


def test_check_prints_every_problem_and_exits_2(tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    result = run("check", tmp_path / "bad.yaml", tmp_path / "good.yaml", tmp_path / "none.yaml")
    assert result.exit_code == 2
    assert f"{tmp_path}/bad.yaml:1:16: egress.mode: " in result.stderr
    assert "did you mean 'offline'?" in result.stderr
    assert "No such file" in result.stderr
    assert "good.yaml: ok" in result.stdout


def test_check_as_json(tmp_path):
    (tmp_path / "bad.yaml").write_text(BAD)
    result = run("check", "--json", tmp_path / "bad.yaml")
    answer = json.loads(result.stdout)
    assert result.exit_code == 2
    assert answer["ok"] is False
    (problem,) = answer["files"][0]["problems"]
    assert (problem["line"], problem["column"], problem["path"]) == (1, 16, "egress.mode")


def test_schema_is_json():
    result = run("schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["$schema"].endswith("2020-12/schema")


POLICY = """
egress:
  rules:
    - {id: api, action: allow, proto: tls, to: {hosts: [api.example.com], ports: [443]}}
    - {id: drop, action: allow, proto: tls, to: {hosts: [pastebin.com], ports: [443]}}
"""


def test_explain_prints_the_stages(tmp_path):
    (tmp_path / "p.yaml").write_text(POLICY)
    result = run("explain", "--policy", tmp_path / "p.yaml", "--host", "api.example.com")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "api.example.com:443 for mcp:command"
    assert lines[-1] == "allow: allowed, rule api"
    assert any("first bytes" in line and "ClientHello" in line for line in lines)


def test_explain_as_json(tmp_path):
    (tmp_path / "p.yaml").write_text(POLICY)
    result = run("explain", "--policy", tmp_path / "p.yaml", "--host", "x\x1b[2J", "--port", "80", "--json")
    answer = json.loads(result.stdout)
    assert (answer["verdict"], answer["reason"]) == ("deny", "invalid_host")
    result = run("explain", "--policy", tmp_path / "p.yaml", "--host", "x\x1b[2J")
    assert "\x1b" not in result.stdout


def test_test_exits_1_where_the_policy_decides_otherwise(tmp_path):
    (tmp_path / "p.yaml").write_text(POLICY)
    cases = tmp_path / "p.cases.yaml"
    cases.write_text('cases:\n  - {connect: "api.example.com:443", verdict: allow, rule: api}\n')
    assert run("test", tmp_path / "p.yaml", cases).stdout == "1 cases, 0 wrong\n"
    cases.write_text('cases:\n  - {connect: "api.example.com:443", verdict: deny}\n')
    result = run("test", tmp_path / "p.yaml", cases)
    assert (result.exit_code, result.stdout) == (1, "1 cases, 1 wrong\n")
    assert result.stderr == f"{cases}:2: connect api.example.com:443: expected deny, got allow allowed by api\n"
    answer = json.loads(run("test", "--json", tmp_path / "p.yaml", cases).stdout)
    assert (answer["ok"], answer["cases"][0]["got"]["rule"]) == (False, "api")


def test_lint_exits_1_on_errors_only(tmp_path):
    (tmp_path / "p.yaml").write_text(POLICY)
    result = run("lint", tmp_path / "p.yaml")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{tmp_path}/p.yaml:5:58: error: pastebin.com ")
    (tmp_path / "w.yaml").write_text(POLICY.replace("pastebin.com", "raw.githubusercontent.com"))
    result = run("lint", "--json", tmp_path / "w.yaml")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["ok"]) == (0, True)
    assert answer["files"][0]["findings"][0]["code"] == "shared_content"
