"""What a denied workload reads (egress.md 6): a 403, a DNS text. Pure.

Not here: the verdict, nor which of them fits. Called by `flow`, `http_flow` and the gateway's DNS server.
"""

import json
from http import HTTPStatus

from sandboxd.policy.requests import Decision, Target

# RFC 8914: Blocked, Censored, Filtered and Prohibited tell why; the code that egress.md fixes is 15 (Blocked).
EDE_BLOCKED = 15


def explain(decision: Decision) -> str:
    """One sentence for a person or a model; never a secret, nor bytes that came from inside."""
    return decision.text or f"denied by the sandbox's egress policy: {decision.reason.value}"


def denial_body(decision: Decision, target: Target, record: str) -> bytes:
    """What a denied request is told, as JSON; `record` is the audit record's id."""
    told = {
        "error": explain(decision),
        "rule": decision.rule,
        "reason": decision.reason.value,
        "host": target.host,
        "port": target.port,
        "id": record,
        "retry": False,
    }
    return json.dumps(told).encode()


def http_denial(decision: Decision, target: Target, record: str, status: HTTPStatus = HTTPStatus.FORBIDDEN) -> bytes:
    """A whole response, after which the connection closes; `record` is the audit record's id."""
    body = denial_body(decision, target, record)
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
