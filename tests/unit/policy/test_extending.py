"""Policies that extend others: what comes along, what can't be widened, what is refused."""

from pathlib import Path

import pytest

from sandboxd import limits
from sandboxd.policy.decide import decide
from sandboxd.policy.loading import load_policy, parse_policy, read_policy
from sandboxd.policy.matching import compile_egress
from sandboxd.policy.problems import PolicyError, Problem
from sandboxd.policy.requests import ConnectRequest
from sandboxd.policy.units import Rate
from sandboxd.policy.wire import read_wire
from tests.kit.policies import host

BASE = """
agent: {name: base}
resources: {memory: 256MiB, pids: 64}
servers:
  one: {command: one-mcp, args: [--base]}
egress:
  limits: {conns: 10, idle: 1m, bytes_out: 1GiB/day}
  rules:
    - {id: index, action: allow, proto: tls, to: {hosts: [index.example.com], ports: [443]}}
    - {id: no-tunnels, action: deny, to: {hosts: ["**.ngrok.app"]}}
"""


@pytest.fixture
def files(tmp_path: Path):
    def write(**texts: str) -> Path:
        for name, text in texts.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path / "own.yaml"

    return write


def rule(id_: str, where: str, action: str = "allow", more: str = "") -> str:
    proto = "proto: tls, " if action == "allow" else ""
    return f"{{id: {id_}, action: {action}, {proto}to: {{hosts: [{where}], ports: [443]}}{more}}}"


def own(rules: str = "", more: str = "", mode: str = "enforce", extends: str = "base.yaml") -> str:
    return f"extends: [{extends}]\n{more}\negress:\n  mode: {mode}\n  rules: [{rules}]\n"


def verdict(path: Path, name: str, server: str | None = None) -> str:
    policy = compile_egress(read_policy(path).scopes(server), workload=f"mcp:{server}", pins=())
    decision = decide(policy, ConnectRequest(host(name)))
    return f"{decision.verdict} {decision.rule}"


def problems(path: Path) -> list[str]:
    with pytest.raises(PolicyError) as error:
        read_policy(path)
    return [str(problem).replace(f"{path.parent}/", "") for problem in error.value.problems]


def test_rules_come_together(files):
    path = files(base=BASE, own=own(rule("mine", "api.example.com")))
    assert verdict(path, "api.example.com") == "allow mine"
    assert verdict(path, "index.example.com") == "allow index"
    assert verdict(path, "other.example.com") == "deny None"


@pytest.mark.parametrize("mode", ["enforce", "audit"])
def test_a_denial_of_the_base_stands_whatever_the_document_says(files, mode):
    path = files(base=BASE, own=own(rule("mine", "x.ngrok.app"), mode=mode))
    assert verdict(path, "x.ngrok.app") == "deny no-tunnels"


def test_audit_mode_is_the_documents_own(files):
    path = files(base=BASE, own=own(mode="audit"))
    assert verdict(path, "other.example.com") == "would_deny None"
    path = files(base=BASE.replace("egress:", "egress:\n  mode: audit"), own=own())
    assert verdict(path, "other.example.com") == "deny None"
    assert verdict(path, "x.ngrok.app") == "deny None"


def test_a_rule_id_can_not_be_taken_over(files):
    path = files(base=BASE, own=own(rule("no-tunnels", "x.ngrok.app")))
    assert problems(path) == [
        "base.yaml:10:12: egress.rules[1].id: rule id 'no-tunnels' stands twice (the first is egress.rules[0].id)"
    ]


def test_offline_stays_offline(files):
    path = files(base="egress: {mode: offline}\n", own=own(rule("mine", "api.example.com")))
    assert verdict(path, "api.example.com") == "deny None"
    path = files(base=BASE, own="extends: [base.yaml]\negress: {mode: offline}\n")
    assert verdict(path, "index.example.com") == "deny None"


def test_origins_become_rules(files):
    path = files(base="egress: {mode: allowlist, allowedOrigins: ['https://a.example.com']}\n", own=own())
    assert verdict(path, "a.example.com") == "allow origin:tls://a.example.com:443"


def test_limits_narrow(files):
    path = files(base=BASE, own=own() + "  limits: {conns: 20, idle: 10s, peek: 5s, bytes_out: 10MiB/min}\n")
    bounds = read_policy(path).egress.limits
    assert (bounds.conns, bounds.idle, bounds.peek) == (10, 10, 5)
    assert set(bounds.bytes_out) == {Rate(1 << 30, 86400), Rate(10 << 20, 60)}


def test_everything_else_is_the_documents_or_the_bases(files):
    path = files(
        base=BASE,
        own="extends: [base.yaml]\nagent: {name: own}\nresources: {pids: 32}\n"
        "servers: {one: {args: [--own], command: one-mcp}, two: {command: two-mcp}}\n",
    )
    document = read_policy(path)
    assert document.agent.name == "own"
    assert (document.resources.memory, document.resources.pids) == (256 << 20, 32)
    assert sorted(document.servers) == ["one", "two"]
    assert document.servers["one"].args == ("--own",)
    assert [r.id for r in document.egress.rules] == ["index", "no-tunnels"]
    assert document.extends is None


def test_a_servers_egress_comes_together_too(files):
    base = f"servers: {{one: {{command: a, egress: {{rules: [{rule('shut', '.example.com', 'deny')}]}}}}}}\n"
    open_ = rule("open", "a.example.com")
    mine = f"extends: [base.yaml]\nservers: {{one: {{command: b, egress: {{rules: [{open_}]}}}}}}\n"
    path = files(base=base, own=mine)
    assert verdict(path, "a.example.com", "one") == "deny shut"
    assert read_policy(path).servers["one"].command == "b"


def test_of_several_the_last_is_the_nearest(files):
    path = files(
        first="agent: {name: first}\nimage: first\negress: {rules: [" + rule("a", "a.example.com") + "]}\n",
        second="agent: {name: second}\negress: {rules: [" + rule("b", "b.example.com") + "]}\n",
        own="extends: [first.yaml, second.yaml]\n",
    )
    document = read_policy(path)
    assert (document.agent.name, document.image) == ("second", "first")
    assert [verdict(path, f"{name}.example.com") for name in "ab"] == ["allow a", "allow b"]


def test_a_base_of_a_base_in_another_folder(files, tmp_path):
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "root.yaml").write_text(BASE + "workspace: {source: ./data, mode: ro}\n")
    path = files(team="extends: [org/root.yaml]\n", own=own(extends="team.yaml"))
    assert verdict(path, "x.ngrok.app") == "deny no-tunnels"
    assert read_policy(path).workspace.source == str(tmp_path / "org" / "data")


def test_the_same_base_by_two_ways_is_taken_once(files):
    path = files(root=BASE, a="extends: [root.yaml]\n", b="extends: [root.yaml]\n", own=own(extends="a.yaml, b.yaml"))
    assert verdict(path, "index.example.com") == "allow index"


def test_places_of_findings_and_problems(files):
    path = files(base=BASE, own=own(rule("mine", "index.example.com", more=", mode: audit")))
    (problem,) = problems(path)
    assert problem.startswith("base.yaml:9:7: egress.rules[0]: rules 'mine' and 'index' open index.example.com")
    path = files(base=BASE, own=own(rule("mine", "api.example.com", more=", workloads: ['mcp:onne']")))
    assert problems(path) == [
        "own.yaml:5:107: egress.rules[0].workloads[0]: no server 'mcp:onne' (did you mean 'mcp:one'?)"
    ]
    path = files(base=BASE, own=own())
    found = load_policy(path).place(Problem("", path="egress.rules[1].to.hosts[0]"))
    assert (Path(found.file).name, found.line) == ("base.yaml", 10)
    found = load_policy(path).place(Problem("", path="servers.one.args"))
    assert (Path(found.file).name, found.line) == ("base.yaml", 5)


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"own": "extends: [own.yaml]\n"}, "own.yaml:1:11: extends[0]: own.yaml extends this file"),
        (
            {"own": "extends: [a.yaml]\n", "a": "extends: [own.yaml]\n"},
            "a.yaml:1:11: extends[0]: own.yaml extends this file",
        ),
        ({"own": "extends: [none.yaml]\n"}, "own.yaml:1:11: extends[0]: none.yaml: No such file or directory"),
        (
            {"own": "extends: [/etc/passwd]\n"},
            "own.yaml:1:11: extends[0]: expected a path from the policy file's directory",
        ),
        ({"own": "extends: []\n"}, "own.yaml:1:10: extends: must not be empty"),
        ({"own": "extends: [a.yaml]\n", "a": "egress: {mode: ofline}\n"}, "a.yaml:1:16: egress.mode: expected"),
    ],
)
def test_mistakes(files, texts, problem):
    path = files(**texts)
    assert problems(path)[0].startswith(problem)


def test_files_are_bounded(files):
    many = {f"f{n}": f"extends: [f{n + 1}.yaml]\n" for n in range(limits.POLICY_BASES + 1)}
    path = files(own="extends: [f0.yaml]\n", **many)
    assert "too many files" in problems(path)[0]


def test_text_without_a_file_extends_nothing():
    with pytest.raises(PolicyError, match="only a file can extend others"):
        parse_policy("extends: [base.yaml]\n", "x")


def test_the_whole_travels(files):
    path = files(base=BASE, own=own(rule("mine", "api.example.com"), mode="audit"))
    (scope,) = read_policy(path).scopes()
    travelled = read_wire(scope.to_wire())
    assert [(r.id, r.mode) for r in travelled.all_rules] == [
        ("mine", None),
        ("index", "enforce"),
        ("no-tunnels", "enforce"),
    ]


def test_a_base_that_learns_is_enforced_in_others(files):
    learning = BASE.replace("egress:", "egress:\n  mode: learn\n  until: '2026-12-31T18:00:00Z'")
    path = files(base=learning, own=own(mode="audit"))
    assert verdict(path, "x.ngrok.app") == "deny no-tunnels"
