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
