"""Laws that hold for every policy: narrowing never widens, denials only deny, every request has an answer."""

from ipaddress import ip_address, ip_network

from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.policy.decide import decide, judge_address
from sandboxd.policy.egress import Destination, EgressPolicy, EgressRule, HttpMatch
from sandboxd.policy.hosts import HostPattern, canonical_host
from sandboxd.policy.matching import CompiledEgress, applies_to, compile_egress
from sandboxd.policy.requests import ConnectRequest, Decision, DnsRequest, HttpRequest, Target, TlsRequest
from sandboxd.settings import Pin

PORTS = (22, 80, 443)
LABELS = ("a", "b", "ab", "a-x")
PATTERNS = (
    "example.com", "a.example.com", "b.a.example.com", "*.example.com", "**.example.com", ".example.com",
    "*.a.example.com", "**.a.example.com", ".a.example.com", "a*.example.com", "*-x.example.com", "a*x.example.com",
    "other.example.org", "**.example.org",
)  # fmt: skip
BLOCKS = ("0.0.0.0/0", "8.0.0.0/8", "8.8.8.8/32", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32")
ADDRESSES = ("8.8.8.8", "8.8.4.4", "1.1.1.1", "10.1.2.3", "10.1.9.9", "10.9.9.9", "127.0.0.1", "169.254.169.254")
WORKLOADS = ("mcp:a", "mcp:b", "shell")

hosts = st.builds(
    lambda labels, apex: canonical_host(".".join([*labels, apex])),
    st.lists(st.sampled_from(LABELS), max_size=3),
    st.sampled_from(("example.com", "example.org", "evil-example.com")),
)
addresses = st.sampled_from(ADDRESSES).map(lambda text: ip_address(text).packed)
targets = st.one_of(
    st.builds(Target, hosts, st.none(), st.sampled_from(PORTS)),
    st.builds(Target, st.none(), addresses, st.sampled_from(PORTS)),
)
names = st.one_of(hosts.map(str.encode), st.binary(max_size=8))
requests = st.one_of(
    st.builds(DnsRequest, hosts),
    st.builds(ConnectRequest, targets),
    st.builds(TlsRequest, targets, st.lists(names, max_size=2).map(tuple), st.booleans()),
    st.builds(HttpRequest, targets, st.sampled_from(("GET", "POST", "CONNECT")), names, st.sampled_from(("/", "/a/b"))),
)


def several(values):
    return st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def policies(draw, max_rules=6):
    """Options depend on the port alone, so that no two rules contradict each other."""
    protos = {port: draw(st.sampled_from(("tls", "http", "tcp"))) for port in PORTS}
    http = (HttpMatch(methods=("GET",)),) if draw(st.booleans()) else None
    private = (ip_network("10.1.0.0/16"),) if draw(st.booleans()) else None
    rules = []
    for number in range(draw(st.integers(0, max_rules))):
        where = draw(several(PATTERNS)) if draw(st.booleans()) else None
        blocks = draw(several(BLOCKS)) if where is None or draw(st.booleans()) else None
        deny = draw(st.integers(0, 3)) == 0
        port = draw(st.sampled_from(PORTS))
        to = Destination(
            hosts=tuple(map(HostPattern.parse, where)) if where else None,
            cidrs=tuple(map(ip_network, blocks)) if blocks else None,
            ports=None if deny and draw(st.booleans()) else (port,),
        )
        rules.append(
            EgressRule(
                id=f"r{number}",
                action="deny" if deny else "allow",
                workloads=draw(st.one_of(st.none(), several((*WORKLOADS, "mcp:*")))),
                to=to,
                proto=None if deny else protos[port],
                http=http if not deny and protos[port] == "http" else None,
                # Where a rule has only blocks the key is not allowed; then no name can match it either.
                allow_private=private if not deny and where else None,
            )
        )
    return EgressPolicy(rules=tuple(rules))


def compiled(*scopes: EgressPolicy) -> CompiledEgress:
    return compile_egress(scopes, workload="mcp:a", pins=())


def coherent(policy: EgressPolicy) -> EgressPolicy:
    """`allow_private` only where every rule has it: rules with blocks only can't."""
    if any(r.action == "allow" and r.to.hosts is None for r in policy.rules):
        return EgressPolicy(rules=tuple(r.model_copy(update={"allow_private": None}) for r in policy.rules))
    return policy


coherent_policies = policies().map(coherent)


@given(coherent_policies, coherent_policies, requests)
@settings(max_examples=120)
def test_an_intersection_never_widens(one, other, request):
    if decide(compiled(one, other), request).allowed:
        assert decide(compiled(one), request).allowed
        assert decide(compiled(other), request).allowed


@given(coherent_policies, coherent_policies, targets, addresses, st.booleans())
@settings(max_examples=120)
def test_an_intersection_reaches_no_further(one, other, target, address, is_host):
    def reaches(policy):
        connect = decide(policy, ConnectRequest(target))
        return judge_address(policy, connect, target, address, is_host=is_host).allowed

    if reaches(compiled(one, other)):
        assert reaches(compiled(one))
        assert reaches(compiled(other))


@given(coherent_policies, requests)
@settings(max_examples=120)
def test_a_scope_twice_is_the_scope(policy, request):
    assert decide(compiled(policy, policy), request) == decide(compiled(policy), request)


@given(coherent_policies, requests, st.data())
@settings(max_examples=120)
def test_removing_an_allow_rule_never_allows_more(policy, request, data):
    allows = [rule for rule in policy.rules if rule.action == "allow"]
    if allows:
        gone = data.draw(st.sampled_from(allows))
        less = EgressPolicy(rules=tuple(rule for rule in policy.rules if rule is not gone))
        if decide(compiled(less), request).allowed:
            assert decide(compiled(policy), request).allowed


@given(coherent_policies, coherent_policies, targets, requests, addresses)
@settings(max_examples=120)
def test_adding_denials_never_allows_more(policy, other, target, request, address):
    denials = tuple(r.model_copy(update={"id": f"d{r.id}"}) for r in other.rules if r.action == "deny")
    more, less = compiled(policy), compiled(EgressPolicy(rules=policy.rules + denials))
    if decide(less, request).allowed:
        assert decide(more, request).allowed
    connect = ConnectRequest(target)
    if judge_address(less, decide(less, connect), target, address, is_host=False).allowed:
        assert judge_address(more, decide(more, connect), target, address, is_host=False).allowed


@given(coherent_policies, targets)
@settings(max_examples=120)
def test_look_ups_find_what_reading_every_rule_finds(policy, target):
    decision = decide(compiled(policy), ConnectRequest(target))
    matching = [r for r in policy.rules if applies_to(r, "mcp:a") and stands_for(r, target)]
    denied = [r.id for r in matching if r.action == "deny"]
    allowed = [r.id for r in matching if r.action == "allow"]
    if decision.allowed:
        assert not denied
        assert decision.rule in allowed
    elif not decision.reason.startswith("floor_"):
        assert decision.rule in denied if denied else not allowed


def stands_for(rule: EgressRule, target: Target) -> bool:
    """A rule read as the documentation says it, without any index."""
    if rule.to.ports is not None and target.port not in rule.to.ports:
        return False
    if target.host is not None:
        return any(pattern.matches(target.host) for pattern in rule.to.hosts or ())
    return any(ip_address(target.address) in block for block in rule.to.cidrs or ())


@given(
    coherent_policies,
    st.one_of(st.none(), st.text(max_size=20)),
    st.one_of(st.none(), st.binary(max_size=17)),
    st.integers(-1, 70000),
    st.lists(st.binary(max_size=30), max_size=3).map(tuple),
    st.binary(max_size=40),
    st.text(max_size=20),
)
@settings(max_examples=120)
def test_every_request_has_an_answer(policy, host, address, port, sni, authority, path):
    target = Target(host, address, port)
    compiled_policy = compile_egress([policy], workload="mcp:a", pins=[Pin("a.example.com", "127.0.0.1")])
    for request in (
        DnsRequest(host or ""),
        ConnectRequest(target),
        TlsRequest(target, sni, False),
        HttpRequest(target, path, authority, path),
    ):
        assert isinstance(decide(compiled_policy, request), Decision)
    judged = judge_address(compiled_policy, decide(compiled_policy, request), target, address or b"", is_host=False)
    assert judged.reason
