"""What is said over a connection that may be made: its first bytes, its requests. Pure; the part of `decide` that
looks beyond name and port."""

from collections.abc import Sequence

from sandboxd.policy.hosts import InvalidHostError, audit_name, canonical_host, literal_address
from sandboxd.policy.indexes import CompiledRule
from sandboxd.policy.paths import path_matches
from sandboxd.policy.requests import Decision, HttpRequest, Target, TlsRequest
from sandboxd.policy.rules import Rule
from sandboxd.policy.words import deny_after, describe
from sandboxd.reasons import Layer, Reason

_HTTP_PORT = 80


def judge_tls(connect: Decision, rules: Sequence[CompiledRule], request: TlsRequest) -> Decision:
    """A ClientHello on a connection that `rules`, one a scope, allow."""
    problem = _tls_problem(connect, request)
    if problem is None:
        return rules[-1].allowed(Layer.FIRST_BYTES, connect.proto)
    reason, text = problem
    return deny_after(connect, Layer.FIRST_BYTES, reason, f"{describe(request.target)}{text}")


def _tls_problem(connect: Decision, request: TlsRequest) -> tuple[Reason, str] | None:
    if connect.proto == "tcp":  # opaque: whatever passes, passes
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


def judge_http(connect: Decision, rules: Sequence[CompiledRule], request: HttpRequest) -> Decision:
    """One request of a connection that `rules`, one a scope, allow."""
    problem = _http_problem(connect, request)
    if problem is not None:
        reason, text = problem
        return deny_after(connect, Layer.REQUEST, reason, f"{describe(request.target)}{text}")
    if connect.proto == "http":
        for rule in rules:
            if rule.rule.http is not None and not _request_matches(rule.rule, request):
                text = f"{describe(request.target)}: this method and path are not allowed by rule {rule.id!r}"
                return deny_after(rule.allowed(Layer.REQUEST, "http"), Layer.REQUEST, Reason.METHOD_PATH, text)
    return rules[-1].allowed(Layer.REQUEST, connect.proto)


def _http_problem(connect: Decision, request: HttpRequest) -> tuple[Reason, str] | None:
    if connect.proto == "tcp":
        return None
    if connect.proto != "http":
        return Reason.PROTO_MISMATCH, " is not open for plain HTTP"
    mismatch = _authority_problem(request.target, request.authority)
    if mismatch:
        return mismatch, ": the request names another host or port"
    if request.method == "CONNECT":
        return Reason.METHOD_PATH, ": CONNECT is not allowed"
    if request.upgrade:
        return Reason.WEBSOCKET, ": upgrading a connection is not allowed"
    return None


def _request_matches(rule: Rule, request: HttpRequest) -> bool:
    return any(
        (match.methods is None or request.method in match.methods)
        and (match.paths is None or any(path_matches(path, request.path) for path in match.paths))
        for match in rule.http or ()
    )


def _authority_problem(target: Target, authority: bytes) -> Reason | None:
    """The authority must be the target, port included; without a port it means 80 (RFC 9110 4.2.1)."""
    name, port = _split_authority(authority)
    if target.host is not None and name == target.host.encode("ascii"):
        return None if port == target.port else Reason.HOST_MISMATCH
    try:
        host = canonical_host(name)
    except InvalidHostError:
        return Reason.INVALID_HOST
    same = host == target.host if target.host is not None else literal_address(host) == target.address
    return None if same and port == target.port else Reason.HOST_MISMATCH


def _split_authority(authority: bytes) -> tuple[bytes, int | None]:
    head, colon, tail = authority.rpartition(b":")
    if not colon or tail.endswith(b"]"):
        return authority, _HTTP_PORT
    return head, int(tail) if tail.isdigit() and len(tail) <= 5 else None
