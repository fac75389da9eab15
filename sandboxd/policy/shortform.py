"""`--allow` on the command line as an egress policy. Pure; called by the commands that start something."""

from collections.abc import Sequence

from sandboxd.errors import UsageError
from sandboxd.policy.egress import EgressPolicy, rule_for
from sandboxd.policy.origins import Origin, parse_origin

_SCHEMES = ("tls", "https", "http", "tcp")
_FORMS = "expected HOST (TLS on 443), tls://HOST:PORT, http://HOST[:PORT] or tcp://HOST:PORT"


def egress_from_allows(allows: Sequence[str]) -> EgressPolicy:
    """One allow rule each, its id `allow:` and the place; none deny everything. Raises UsageError."""
    origins = dict.fromkeys(_parse(text) for text in allows)
    return EgressPolicy(rules=tuple(rule_for(origin, "allow") for origin in origins))


def _parse(text: str) -> Origin:
    try:
        if "://" in text:
            return parse_origin(text, _SCHEMES)
        origin = parse_origin(f"tls://{text}", _SCHEMES)
    except ValueError as error:
        raise UsageError(f"--allow {text}: {error}", hint=_FORMS, code="bad_allow") from None
    if origin.port != 443:
        raise UsageError(
            f"--allow {text}: which protocol is spoken on port {origin.port}?",
            hint=f"expected tcp://{text}, tls://{text} or http://{text}",
            code="bad_allow",
        )
    return origin
