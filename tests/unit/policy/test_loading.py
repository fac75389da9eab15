"""Policy files: strict text, every problem with its place, nothing that could be a secret in a message."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.errors import ExitCode, UsageError
from sandboxd.policy.loading import parse_policy, read_policy
from sandboxd.policy.problems import PolicyError

RULE = "id: a, action: allow, to: {hosts: [example.com], ports: [443]}, proto: tls"


def problems(text):
    with pytest.raises(PolicyError) as error:
        parse_policy(text, "p.yaml")
    assert error.value.exit_code is ExitCode.USAGE
    return error.value.problems


def only(text):
    (problem,) = problems(text)
    return problem


def egress(rule):
    return f"egress:\n  rules:\n    - {{{rule}}}\n"


def server(text):
    return f"image: sandboxd/node\nservers:\n  s: {{{text}}}\n"


def test_a_tab_is_called_one():
    problem = only("egress:\n\trules: []\n")
    assert "a tab where only spaces may indent" in problem.message
    assert (problem.line, problem.column) == (2, 1)


def test_a_small_policy():
    document = parse_policy(egress(RULE), "p.yaml")
    assert document.egress is not None
    assert document.egress.rules[0].id == "a"
    assert document.scopes() == (document.egress,)


def test_json_is_a_policy_too():
    assert parse_policy('{"egress": {"mode": "offline"}}', "p.json").egress


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("agnt: {name: x}\n", "agnt: {name: x", "unknown key 'agnt' (did you mean 'agent'?)"),
        ("mode: offline\n", "mode: offline", "unknown key 'mode' (it belongs under egress)"),
        (egress(RULE.replace("proto: tls", "proto: tsl")), "tsl}", "did you mean 'tls'?"),
        (egress(RULE + ", porst: 1"), "porst: 1}", "unknown key 'porst'"),
        (egress(RULE.replace("id: a, ", "")), "{action: allow", "the key 'id' is missing"),
        (egress(RULE.replace("[443]", '["443"]')), '"443"]}, proto', "expected a whole number, got text"),
        (egress(RULE.replace("[443]", "443")), "443}, proto: t", "expected a list, got a number"),
        (egress(RULE.replace("[443]", "[]")), "[]}, proto: tl", "must not be empty"),
        (egress(RULE.replace("[example.com]", "[]")), "[], ports: [44", "must not be empty"),
        (egress(RULE.replace(", ports: [443]", "")), "{id: a, action", "an allow rule needs to.ports"),
        (egress(RULE.replace(", proto: tls", "")), "{id: a, action", "an allow rule needs proto"),
        (egress(RULE.replace("action: allow", "action: deny")), "{id: a, action", "a deny rule has no 'proto'"),
        (egress(RULE.replace("example.com", '"*"')), '"*"], ports: [', "would match everything"),
        (egress(RULE.replace("example.com", "10.1.2.3")), "10.1.2.3], por", "`cidrs` (10.1.2.3/32)"),
        (egress(RULE.replace("hosts: [example.com]", "cidrs: [10.1.2.3]")), "10.1.2.3], por", "no prefix length"),
        (egress(RULE.replace("hosts: [example.com]", "cidrs: [10.1.2.3/8]")), "10.1.2.3/8], p", "host bits"),
        (
            egress(RULE.replace("hosts: [example.com]", "cidrs: [127.0.0.1/32]")),
            "{id: a, action",
            "no rule opens 127.0.0.1/32",
        ),
        (egress(RULE + ", allow_private: [8.8.8.0/24]"), "{id: a, action", "8.8.8.0/24 is not private"),
        (egress(RULE + ", http: [{paths: [/a]}]"), "{id: a, action", "http matches need proto: http"),
        (egress(RULE) + "    - {" + RULE + "}\n", "a, action: all", "rule id 'a' stands twice"),
        (egress(RULE + ", workloads: [mcp:gh]"), "mcp:gh]}", "no server 'mcp:gh'"),
        (f"egress: {{mode: offline, rules: [{{{RULE}}}]}}\n", "{mode: offline", "mode: offline has no rules"),
        ("egress: {allowedOrigins: []}\n", "{allowedOrigin", "go together"),
        ("egress: {mode: allowlist, allowedOrigins: [https://a.example/x]}\n", "https://a.exam", "has no path"),
        ("egress: {limits: {idle: 10}}\n", "10}}", "a duration with its unit"),
        ("egress: {limits: {conns: 0}}\n", "0}}", "greater than or equal to 1"),
        ("servers: {}\n", "{}", "must not be empty"),
        (server("package: 'npm:a@latest'"), "'npm:a@latest'", "the version exact"),
        (server("command: x, package: 'npm:a@1'"), "{command: x, p", "exclude each other"),
        (server("image: x, package: 'npm:a@1'"), "{image: x, pac", "exclude each other"),
        (server("args: [x]"), "{args: [x]}", "nothing to run"),
        (server("command: x, cwd: a/b"), "a/b}", "an absolute path"),
        (server("command: x, cwd: /a/../b"), "/a/../b}", "without `.`"),
        (server("command: x, workspace: rw"), "rw}", "has no workspace"),
        ("servers: {Bad: {image: x}}\n", "Bad: {image: x", "expected a name of"),
        ("workspace: {source: ., mode: ro}\nservers: {s: {image: x, workspace: rw}}\n", "rw}}", "read-only"),
        ("workspace: {source: '~/x', mode: ro}\n", "'~/x', mode: r", "absolute or relative"),
        ("resources: {memory: 512}\n", "512}", "a size with its unit"),
        ("resources: {memory: 1KiB}\n", "1KiB}", "greater than or equal to 6MiB"),
    ],
)
def test_mistakes_have_a_place_and_an_expected_form(text, at, message):
    problem = only(text)
    assert text.splitlines()[problem.line - 1][problem.column - 1 :].startswith(at)
    assert message in str(problem)
    assert str(problem).startswith(f"p.yaml:{problem.line}:{problem.column}: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: no\n", "quote it"),
        ("a: Yes\n", "quote it"),
        ("on: x\n", "quote it"),
        ("a: TRUE\n", "quote it"),
        ("a: 0123\n", "quote it"),
        ("a: 0x1f\n", "quote it"),
        ("a: 1_000\n", "quote it"),
        ("a: 12:30\n", "quote it"),
        ("a: .inf\n", "quote it"),
        ("a: +1\n", "quote it"),
        ("a: 2026-01-01\n", "quote it"),
        ("a: 1e999\n", "too large"),
        ("a: 99999999999999999999\n", "quote it"),
        ("a: ~\n", "leave the key out"),
        ("a: null\n", "leave the key out"),
        ("a:\n", "the value is missing"),
        ("1: x\n", "a key is not text"),
        ("? [a]\n: x\n", "a key is not text"),
        ("a: &x b\n", "anchors"),
        ("a: *x\n", "aliases"),
        ("<<: {a: b}\n", "merge keys"),
        ("a: !!python/object:os.system x\n", "tags"),
        ("a: ! x\n", "tags"),
        ("agent: {name: x}\nagent: {name: y}\n", "stands twice"),
        ("a: 1\n---\na: 2\n", "second document"),
        ("a: [\n", "not YAML"),
        ("a: b: c\n", "not YAML"),
        ("\ta: b\n", "not YAML"),
        ("", "empty"),
        ("# nothing\n", "empty"),
        ("- a\n", "expected a mapping, got a list"),
        ("text\n", "expected a mapping, got text"),
        ("a: " + "[" * 50 + "\n", "too deep"),
    ],
)
def test_text_that_could_be_misread_is_refused(text, message):
    assert any(message in str(problem) for problem in problems(text))


def test_all_problems_come_at_once_in_the_order_of_the_text():
    found = problems("agnt: {}\negress: {rules: [{id: no, action: alow, to: {}}], mode: teach}\ntools: {preset: ful}\n")
    assert [p.line for p in found] == [1, 2, 2, 2, 2, 3]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (egress(RULE.replace("action: allow", "action: ask")), "ask"),
        (egress(RULE + ", tls: {no_sni: allow}"), "no_sni"),
        (egress(RULE + ", dns: [TXT]"), "dns"),
        ("volumes: {memory: /data}\n", "volumes"),
        ("volumes: {memory: {target: /data, size: 1GiB}}\n", "volumes"),
        ("tools: {preset: full, allow: ['*'], deny: [], max_concurrency: 4}\n", "tools"),
        (
            "gates: {rules: [{id: g, action: ask, arguments: [{path: $.x, equals: 1}], hours: {from: 1, to: 2}}]}\n",
            "gates",
        ),
        ("approvals: {roles: [reviewer, security], order: [reviewer, security]}\n", "approvals"),
        ("shell: {timeout: 30s}\n", "shell"),
        ("spawn: {inherit_mcp: true}\n", "spawn"),
        ("delegation: {roster: [a]}\n", "delegation"),
        ("tenant: {name: t}\n", "tenant"),
        (server("url: 'https://mcp.example.com'"), "url"),
        (server("command: x, tools: {allow: [read_*]}"), "tools"),
        (server("command: x, prefix: ''"), "prefix"),
        (server("command: x, required: false"), "required"),
        (server("command: x, restart: always"), "restart"),
        (server("command: x, isolation: shared"), "isolation"),
        (server("command: x, pin_schema: true"), "pin_schema"),
        (server("command: x, validate: forward"), "validate"),
    ],
)
def test_what_has_no_behaviour_yet_is_refused_by_name(text, key):
    problem = only(text)
    assert "not supported yet" in problem.message
    assert key in str(problem)


@pytest.mark.parametrize(
    "text",
    [
        server("command: x, env: {A: ghp_SECRETSECRETSECRETSECRET}"),
        server("command: x, env: {DB_PASSWORD: SECRETSECRET}"),
        server("command: x, env: {A: '${SECRETSECRET}'}"),
        server("command: x, args: ['--token', 'sk-SECRETSECRETSECRET']"),
        server("command: x, args: ['postgres://reader:SECRETSECRET@db/x']"),
        server("url: 'https://m.example', headers: {Authorization: 'Bearer SECRETSECRET'}"),
        server("url: 'https://m.example', headers: {X-Api-Key: SECRETSECRET}"),
        server("url: 'https://m.example', headers: {X-Other: '${SECRETSECRET}'}"),
        server("command: x, env: {A: [SECRETSECRET]}"),
        server("command: x, secrets: [SECRETSECRET]"),
        server("command: x, secrets: [{secret: 'SECRET SECRET', env: A}]"),
        server("command: x, runtime: SECRETSECRET"),
    ],
)
def test_credentials_are_refused_and_never_shown(text):
    for problem in problems(text):
        assert "SECRET" not in str(problem).replace("{secret:", "")


def test_a_header_may_hold_a_named_secret():
    text = server("url: 'https://m.example', headers: {Authorization: {secret: t, format: 'Bearer {}'}, X-A: b}")
    assert {problem.path for problem in problems(text)} == {"servers.s.url", "servers.s.headers"}


def test_contradicting_rules_have_a_place():
    problem = only(egress(RULE) + "    - {" + RULE.replace("id: a", "id: b").replace("tls", "tcp") + "}\n")
    assert (problem.line, problem.path) == (4, "egress.rules[1]")


def test_a_server_s_own_rules_have_no_workloads():
    text = f"servers:\n  s:\n    command: x\n    egress: {{rules: [{{{RULE}, workloads: [mcp:s]}}]}}\n"
    assert "one server's already" in str(only(text))


def test_read_policy_resolves_the_workspace_from_the_file(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("workspace: {source: ../data, mode: ro}\n")
    document = read_policy(file)
    assert document.workspace is not None
    assert document.workspace.source == str(tmp_path / ".." / "data")


def test_read_policy_names_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_policy(tmp_path / "none.yaml")


@pytest.mark.parametrize(("raw", "message"), [(b"a: \xff\n", "not UTF-8"), (b"x" * (limits.POLICY_FILE + 1), "larger")])
def test_read_policy_refuses_what_is_not_a_policy_s_text(tmp_path, raw, message):
    file = tmp_path / "p.yaml"
    file.write_bytes(raw)
    with pytest.raises(PolicyError, match=message):
        read_policy(file)


def test_everything_that_is_supported_loads():
    document = parse_policy(
        """
agent: {name: all, description: everything at once}
image: sandboxd/node
runtime: runsc
resources: {memory: 256MiB, cpus: 0.5, pids: 64, nofile: 1024, tmp: 32MiB}
unix_sockets: true
workspace: {source: /srv/data, target: /work, mode: rw}
servers:
  one:
    command: node
    args: [server.js, "--port", "1"]
    env: {LEVEL: debug}
    secrets: [{secret: t, env: TOKEN}]
    cwd: /work
    workspace: ro
    resources: {cpus: 2}
    isolation: own
    required: true
    restart: never
    transport: stdio
    egress: {rules: []}
  two: {package: "pypi:mcp-server-sqlite==2025.4.25", constraints: ["mcp<2"], args: ["--db-path", /data/x.db]}
  three: {package: "npm:@scope/name@1.2.3", scripts: true}
  four: {image: "registry.example/img@sha256:%s"}
egress:
  mode: enforce
  rules: []
  limits: {conns: 10, peek: 5s, connect: 5s, idle: 500ms}
  on_sink_failure: block
"""
        % ("0" * 64),
        "p.yaml",
    )
    assert document.resources is not None
    assert (document.resources.memory, document.resources.cpus) == (256 * limits.MIB, 0.5)
    assert len(document.scopes("one")) == 2
    assert len(document.scopes("two")) == 1


def problems_if_any(text):
    try:
        parse_policy(text, "p.yaml")
    except PolicyError as error:
        return error.problems
    return ()


YAML_LIKE = st.text(alphabet="ab:-{}[],\"'#&*!|>%@`<?~0123.\n \t\\no", max_size=60)


@given(st.one_of(YAML_LIKE, st.text(max_size=60)))
@example("a: [b, {c: d}, 'e")
@example("? {a: 1}\n: b")
@example("%YAML 1.1\n---\na: b")
@example("\ufeffa: b")
@example("a: \udc80")
def test_any_text_is_a_policy_or_a_policy_error(text):
    assert all(problem.message for problem in problems_if_any(text))


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(-5, 99999), st.text(max_size=5), st.sampled_from(["allow", "tls", "10s"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "agent",
                    "name",
                    "servers",
                    "egress",
                    "rules",
                    "id",
                    "action",
                    "to",
                    "hosts",
                    "ports",
                    "command",
                    "env",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["agent", "servers", "egress", "resources", "workspace", "tools"]), VALUES))
def test_any_document_is_a_policy_or_a_policy_error(document):
    assert all(problem.line for problem in problems_if_any(json.dumps(document)))
