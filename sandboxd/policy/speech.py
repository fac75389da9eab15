"""What is said over a connection that may be made: its first bytes, its requests. Pure; the part of `decide` that
looks beyond name and port.

`rules` are those that allow the connection, one a scope (none of a scope that is only recorded and has none).
"""

from collections.abc import Sequence

from sandboxd.policy.hosts import InvalidHostError, audit_name, canonical_host, literal_address
from sandboxd.policy.indexes import CompiledRule
from sandboxd.policy.paths import path_matches
from sandboxd.policy.requests import Decision, HttpRequest, Moment, SpokenRequest, Target, TlsRequest
from sandboxd.policy.rules import Rule, intercepts
from sandboxd.policy.words import deny_after, describe, objection
from sandboxd.reasons import Layer, Reason, Verdict

# RFC 9110 4.2: what an authority without a port means.
_DEFAULT_PORTS = {"http": 80, "tls": 443}
# Denied in every mode: nobody knows where it would go.
_HARD = frozenset((Reason.INVALID_HOST, Reason.SMUGGLING))

Rules = Sequence[CompiledRule]


def judge_tls(connect: Decision, rules: Rules, request: TlsRequest, now: Moment) -> Decision:
    """A ClientHello."""
    problem = _tls_problem(connect, request)
    if problem is None:
        return _allowed(connect, rules, Layer.FIRST_BYTES)
    reason, text = problem
    denial = deny_after(connect, Layer.FIRST_BYTES, reason, f"{describe(request.target)}{text}")
    return _enforced(denial, connect, [rule for rule in rules if rule.proto == connect.proto], now)


def judge_spoken(connect: Decision, rules: Rules, request: SpokenRequest, now: Moment) -> Decision:
    """First bytes of another protocol, or of none."""
    reason, where = request.problem, describe(request.target)
    if reason is None and connect.proto not in (None, "tcp", request.proto):
        reason = Reason.PROTO_MISMATCH
    if reason is None:
        return _allowed(connect, rules, Layer.FIRST_BYTES)
    detail = f" ({request.detail})" if request.detail else ""
    text = f"{where}: the first bytes are not what {connect.proto} begins with: {reason.value}{detail}"
    denial = deny_after(connect, Layer.FIRST_BYTES, reason, text)
    return _enforced(denial, connect, [rule for rule in rules if rule.proto == connect.proto], now)


def _allowed(connect: Decision, rules: Rules, layer: Layer) -> Decision:
    """An objection to the connection itself stays on record with all that follows."""
    if connect.verdict is Verdict.WOULD_DENY:
        return connect
    return rules[-1].allowed(layer, connect.proto, connect.mode)


def _enforced(denial: Decision, connect: Decision, demanding: Rules, now: Moment) -> Decision:
    """The denial, or where every rule that demands otherwise is only recorded: an objection."""
    if denial.reason in _HARD or not demanding or not all(rule.is_soft(now) for rule in demanding):
        return denial
    return connect if connect.verdict is Verdict.WOULD_DENY else objection(denial, demanding[-1].mode)


# --- TLS -------------------------------------------------------------------------------------------------------


def _tls_problem(connect: Decision, request: TlsRequest) -> tuple[Reason, str] | None:
    if connect.proto in ("tcp", None):  # opaque: whatever passes, passes
        return None
    if connect.proto != "tls":
        return Reason.PROTO_MISMATCH, " is not open for TLS"
    if request.ech:
        return Reason.ECH, ": Encrypted Client Hello is not allowed"
    if request.target.host is None:  # by address: the name is recorded, not judged
        return None
    return _name_problem(request.target.host, request.names)


def _name_problem(host: str, names: Sequence[bytes]) -> tuple[Reason, str] | None:
    if not names:
        return Reason.SNI_MISSING, ": TLS without a server name"
    if len(names) > 1:
        return Reason.SNI_MISMATCH, ": TLS with several server names"
    if names[0] == host.encode("ascii"):
        return None
    try:
        name = canonical_host(names[0])
    except InvalidHostError:
        return Reason.INVALID_HOST, ": TLS with an invalid server name"
    if name != host:
        return Reason.SNI_MISMATCH, f": TLS asks for {audit_name(name)}, another name than the connection was made to"
    return None


# --- HTTP ------------------------------------------------------------------------------------------------------


def judge_http(connect: Decision, rules: Rules, request: HttpRequest, now: Moment) -> Decision:
    """One request."""
    where = describe(request.target)
    if connect.proto in ("tcp", None):
        return _allowed(connect, rules, Layer.REQUEST)
    if connect.proto != "http" and not (connect.proto == "tls" and any(intercepts(rule.rule) for rule in rules)):
        denial = deny_after(connect, Layer.REQUEST, Reason.PROTO_MISMATCH, f"{where} is not open for plain HTTP")
        return _enforced(denial, connect, [rule for rule in rules if rule.proto == connect.proto], now)
    objected = None
    mismatch = _authority_problem(request.target, request.authority, _DEFAULT_PORTS[connect.proto])
    if mismatch:
        denial = deny_after(connect, Layer.REQUEST, mismatch, f"{where}: the request names another host or port")
        objected = _enforced(denial, connect, [rule for rule in rules if rule.proto == "http"], now)
        if not objected.allowed:
            return objected
    impassable = _impassable(request)
    if impassable:
        reason, text = impassable
        return deny_after(connect, Layer.REQUEST, reason, f"{where}: {text}")
    matched = _judge_matches(connect, rules, request, now)
    return objected if objected and matched.allowed else matched


def _impassable(request: HttpRequest) -> tuple[Reason, str] | None:
    """What the gateway doesn't forward in any mode."""
    if request.method == "CONNECT":
        return Reason.METHOD_PATH, "CONNECT is not allowed"
    if request.upgrade:
        return Reason.WEBSOCKET, "upgrading a connection is not allowed"
    return None


def _judge_matches(connect: Decision, rules: Rules, request: HttpRequest, now: Moment) -> Decision:
    """A denial of any rule before an objection of another."""
    objected: Decision | None = None
    for rule in rules:
        if rule.rule.http is not None and not _request_matches(rule.rule, request):
            text = f"{describe(request.target)}: this method and path are not allowed by rule {rule.id!r}"
            allowed = rule.allowed(Layer.REQUEST, connect.proto, connect.mode)
            denial = deny_after(allowed, Layer.REQUEST, Reason.METHOD_PATH, text)
            judged = _enforced(denial, connect, (rule,), now)
            if not judged.allowed:
                return judged
            objected = objected or judged
    return objected or _allowed(connect, rules, Layer.REQUEST)


def _request_matches(rule: Rule, request: HttpRequest) -> bool:
    return any(
        (match.methods is None or request.method in match.methods)
        and (match.paths is None or any(path_matches(path, request.path) for path in match.paths))
        for match in rule.http or ()
    )


def _authority_problem(target: Target, authority: bytes, default_port: int) -> Reason | None:
    """The authority must be the target, port included."""
    name, port = _split_authority(authority, default_port)
    if target.host is not None and name == target.host.encode("ascii"):
        return None if port == target.port else Reason.HOST_MISMATCH
    try:
        host = canonical_host(name)
    except InvalidHostError:
        return Reason.INVALID_HOST
    same = host == target.host if target.host is not None else literal_address(host) == target.address
    return None if same and port == target.port else Reason.HOST_MISMATCH


def _split_authority(authority: bytes, default_port: int) -> tuple[bytes, int | None]:
    head, colon, tail = authority.rpartition(b":")
    if not colon or tail.endswith(b"]"):
        return authority, default_port
    return head, int(tail) if tail.isdigit() and len(tail) <= 5 else None
