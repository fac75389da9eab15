"""What `policy explain` says: the stages, and always the verdict of `decide`."""

from hypothesis import given, settings

from sandboxd.policy.decide import decide
from sandboxd.policy.explain import Explanation, NamedScope, Question, explain
from sandboxd.policy.requests import ConnectRequest, Target
from sandboxd.reasons import Reason
from sandboxd.settings import Pin
from tests.kit.policies import host, rule, scope
from tests.unit.policy.test_properties import compiled, policies, targets


def explained(question: Question, *scopes, pins=()) -> Explanation:
    return explain([NamedScope(f"scope{n}", each) for n, each in enumerate(scopes)], question, pins)


def texts(found: Explanation, stage: str) -> list[tuple[str, str | None, str]]:
    return [(s.outcome, s.rule, s.text) for each in found.stages if each.name == stage for s in each.steps]


WIDE = scope(
    rule("exact", hosts=["api.example.com"], allow_private=["10.1.0.0/16"]),
    rule("wide", hosts=["**.example.com"], ports=[443, 8443]),
    rule("other", hosts=["api.example.com"], workloads=["mcp:b"], ports=[22], proto="tcp"),
    rule("web", hosts=["web.example.com"], ports=[80], proto="http", http=[{"methods": ["GET"]}]),
    rule("no", action="deny", hosts=["*.bad.example.com"]),
    rule("net", action="deny", cidrs=["10.1.9.0/24"]),
)


def test_stages_of_an_allowed_name():
    found = explained(Question("API.example.com.", 443, "mcp:a"), WIDE)
    assert [stage.name for stage in found.stages] == [
        "floor", "deny", "allow", "options", "name query", "first bytes", "addresses",
    ]  # fmt: skip
    assert (found.where, found.decision.rule) == ("api.example.com:443", "exact")
    assert texts(found, "allow") == [
        ("allows", "exact", "api.example.com: the most specific"),
        ("unused", "wide", "**.example.com: another rule is more specific, or stands before"),
        ("unused", "other", "api.example.com: for mcp:b only"),
    ]
    assert [text for _, _, text in texts(found, "addresses")] == [
        "refused: the address floor and every address of this host",
        "refused: private addresses but those in 10.1.0.0/16",
        "refused: 10.1.9.0/24",
    ]


def test_why_not():
    port = explained(Question("api.example.com", 80, "mcp:a"), WIDE)
    assert texts(port, "allow")[0] == ("unused", "exact", "api.example.com: opens 443 only")
    assert port.decision.reason is Reason.PORT
    denied = explained(Question("x.bad.example.com", 443, "mcp:a"), WIDE)
    assert texts(denied, "deny") == [("denies", "no", "*.bad.example.com is denied")]
    assert denied.decision.rule == "no"
    floor = explained(Question("169.254.169.254", 80, "mcp:a"), WIDE)
    assert texts(floor, "floor") == [("denies", None, "floor_metadata: no rule opens this address")]
    invalid = explained(Question("a b", 80, "mcp:a"), WIDE)
    assert (invalid.decision.reason, invalid.decision.allowed) == (Reason.INVALID_HOST, False)
    assert texts(explained(Question("a.example", 80, "mcp:a")), "allow") == [
        ("denies", None, "the policy has no egress: everything is denied")
    ]


def test_a_request():
    get = explained(Question("web.example.com", 80, "mcp:a", "GET", "/x"), WIDE)
    assert texts(get, "request") == [("allows", "web", "GET /x")]
    post = explained(Question("web.example.com", 80, "mcp:a", "POST", "/x"), WIDE)
    assert post.decision.reason is Reason.METHOD_PATH
    unseen = explained(Question("api.example.com", 443, "mcp:a", "POST", "/x"), WIDE)
    assert texts(unseen, "request") == [("note", None, "POST /x: not seen, since the rule's proto is tls")]
    assert unseen.decision.allowed


def test_pins_and_scopes():
    pin = Pin("api.example.com", "127.0.0.1", 8443)
    narrow = scope(rule("only", hosts=["api.example.com"], proto="tcp"))
    found = explained(Question("api.example.com", 443, "mcp:a"), WIDE, narrow, pins=[pin])
    assert "127.0.0.1" in texts(found, "floor")[0][2]
    assert texts(found, "options")[-1] == ("note", None, "together: proto tls")
    assert [s.scope for stage in found.stages if stage.name == "allow" for s in stage.steps][-1] == "scope1"


def test_what_is_only_recorded():
    audit = scope(rule("a", hosts=["a.example.com"]), rule("no", action="deny", hosts=["b.example.com"]), mode="audit")
    unknown = explained(Question("c.example.com", 443, "mcp:a"), audit)
    assert texts(unknown, "allow") == [("objects", None, "no allow rule of this scope matches")]
    assert texts(unknown, "first bytes") == [("note", None, "anything: no rule opens it, what it speaks is recorded")]
    assert texts(explained(Question("b.example.com", 443, "mcp:a"), audit), "deny")[0][:2] == ("objects", "no")
    (options,) = texts(explained(Question("a.example.com", 443, "mcp:a"), audit), "options")
    assert options[2] == "proto tls; audit: what else comes is recorded and passes"


@settings(max_examples=60)
@given(policies(), targets)
def test_the_verdict_is_that_of_decide(policy, target: Target):
    name = target.host or ".".join(map(str, target.address or b""))
    found = explained(Question(name, target.port, "mcp:a"), policy)
    assert found.decision == decide(compiled(policy), ConnectRequest(target))
    assert host(name, target.port) if target.host else True
