"""What `decide` is asked and what it answers (egress.md 3–5). The zero value of an answer is a denial."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, NewType

from sandboxd.reasons import Layer, Reason, Verdict

# A canonical host name: only `policy.hosts.canonical_host` makes one.
Host = NewType("Host", str)

Proto = Literal["tls", "http", "tcp", "ssh", "postgres"]

# `audit` and `learn`: what would be denied is recorded, and passes.
Mode = Literal["enforce", "audit", "learn"]


class Moment(NamedTuple):
    """When something is judged. `wall`: seconds, None where the time isn't known; `tools`: the names of the tools of
    which a call is in flight in the workload."""

    wall: float | None = None
    tools: frozenset[str] = frozenset()


UNKNOWN = Moment()


@dataclass(frozen=True, slots=True)
class Target:
    """Where a connection goes: a host name (it was made to its synthetic address) or a literal packed address."""

    host: Host | None
    address: bytes | None
    port: int


@dataclass(frozen=True, slots=True)
class DnsRequest:
    """May this name be known? Any allow or ask rule that could match it on any port says yes."""

    host: Host


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """May a connection to `target` be made? The answer names the rule and the protocol its first bytes must be."""

    target: Target


@dataclass(frozen=True, slots=True)
class TlsRequest:
    """What the ClientHello said. `names`: the SNI host names as sent."""

    target: Target
    names: tuple[bytes, ...]
    ech: bool


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `authority`: host[:port] as the client claims, absolute form and Host already agreeing;
    `path` canonical, without query; `upgrade`: the Upgrade header's value, lower-cased, or empty."""

    target: Target
    method: str
    authority: bytes
    path: str
    upgrade: str = ""


@dataclass(frozen=True, slots=True)
class SpokenRequest:
    """First bytes that are neither a ClientHello nor judged request by request. `proto`: what they are, None where
    nobody knows; `problem`: why they are not what they must be, `detail` in words of ours."""

    target: Target
    proto: Proto | None
    problem: Reason | None = None
    detail: str = ""


Request = DnsRequest | ConnectRequest | TlsRequest | SpokenRequest | HttpRequest


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with the rule and the reason. `proto` and `rule` are set where a rule matched. `text` is one
    sentence a model can read, without secrets."""

    verdict: Verdict = Verdict.DENY
    reason: Reason = Reason.NO_MATCH
    layer: Layer = Layer.CONNECT
    rule: str | None = None
    proto: Proto | None = None
    mode: Mode = "enforce"
    text: str = ""

    @property
    def allowed(self) -> bool:
        """True also for `would_deny`: it is recorded, and passes."""
        return self.verdict in (Verdict.ALLOW, Verdict.WOULD_DENY)


@dataclass(frozen=True, slots=True)
class AddressVerdict:
    """What may be done with one resolved or literal address. `rule`: the deny rule, where one said no. Allowed for
    another reason than `allowed`: enforcement would stop it."""

    address: bytes
    allowed: bool
    reason: Reason
    rule: str | None = None
