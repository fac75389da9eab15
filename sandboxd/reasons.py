"""Why a verdict is what it is: the closed list of egress.md 7. The audit log and denials use these words only."""

from enum import StrEnum


class Verdict(StrEnum):
    """What happened to a connection, request or query. `would_deny` is an allowed one that enforcement would stop."""

    ALLOW = "allow"
    DENY = "deny"
    WOULD_DENY = "would_deny"


class Layer(StrEnum):
    """Where it was decided."""

    DNS = "dns"
    CONNECT = "connect"
    FIRST_BYTES = "first_bytes"
    REQUEST = "request"
    RESOLVE = "resolve"
    DIAL = "dial"
    STREAM = "stream"


class Reason(StrEnum):
    """The closed list. `floor_*` names the address class, `quota_*` the quota."""

    ALLOWED = "allowed"
    NO_MATCH = "no_match"
    DENY_RULE = "deny_rule"
    FLOOR_UNSPECIFIED = "floor_unspecified"
    FLOOR_LOOPBACK = "floor_loopback"
    FLOOR_LINK_LOCAL = "floor_link_local"
    FLOOR_METADATA = "floor_metadata"
    FLOOR_MULTICAST = "floor_multicast"
    FLOOR_RESERVED = "floor_reserved"
    FLOOR_DOCUMENTATION = "floor_documentation"
    FLOOR_BENCHMARK = "floor_benchmark"
    FLOOR_HOST = "floor_host"
    FLOOR_PRIVATE = "floor_private"
    RESOLVED_TO_FLOOR = "resolved_to_floor"
    INVALID_HOST = "invalid_host"
    SNI_MISMATCH = "sni_mismatch"
    SNI_MISSING = "sni_missing"
    ECH = "ech"
    PROTO_MISMATCH = "proto_mismatch"
    HOST_MISMATCH = "host_mismatch"
    SMUGGLING = "smuggling"
    METHOD_PATH = "method_path"
    WEBSOCKET = "websocket"
    PORT = "port"
    WORKLOAD = "workload"
    TOOL = "tool"
    QUOTA_CONNS = "quota_conns"
    QUOTA_NEW_CONNS = "quota_new_conns"
    QUOTA_BYTES = "quota_bytes"
    QUOTA_NAMES = "quota_names"
    PEEK_TIMEOUT = "peek_timeout"
    DNS_QTYPE = "dns_qtype"
    DNS_FAIL = "dns_fail"
    UPSTREAM_REFUSED = "upstream_refused"
    UPSTREAM_TLS = "upstream_tls"
    CONNECT_FAILED = "connect_failed"
    IDLE = "idle"
    SELF_LOOP = "self_loop"
    POLICY_REVOKED = "policy_revoked"
    ASK_PENDING = "ask_pending"
    ASK_DENIED = "ask_denied"
    EXPIRED = "expired"
    MALFORMED = "malformed"
    PLACEHOLDER = "placeholder"
    AUDIT_SINK = "audit_sink"
    INTERNAL = "internal"
