"""Host names: the one canonical form, and the patterns of policy files (egress.md 3).

Owns what counts as the same name. Used for DNS questions, SNI, Host and authority headers, and policy documents, so
that no two of them can disagree. Not here: which rule a name matches (`policy.matching`), looking names up.
"""

import contextlib
import functools
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from sandboxd.policy.requests import Host

MAX_NAME = 253
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_ONE_LABEL = re.compile(_LABEL, re.ASCII)
_NUMERIC_LAST = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[^.]*)", re.ASCII)
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_QUAD = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)
_BRACKETED = re.compile(r"\[([0-9a-f:.]{2,45})\]", re.ASCII)
_PIECE = re.compile(r"([a-z0-9_-]*)\*([a-z0-9_-]*)", re.ASCII)
# What an audit record shows of a name that is not canonical, in bytes; a whole DNS name fits.
_AUDIT_BYTES = 255
_FORMS = "expected example.com, *.example.com, **.example.com, .example.com or *-docs.example.com"


class InvalidHostError(ValueError):
    """Not a canonical host and not a spelling of one. Such a name is denied, never looked up."""


def canonical_host(raw: str | bytes) -> Host:
    """The one form of a host name, or of an IP literal (an IPv6 one in brackets, IPv4-mapped ones as IPv4).

    ASCII only, lower-cased, at most one trailing dot dropped, 1–253 bytes (RFC 1035 2.3.4), labels of letters,
    digits, hyphens and underscores. A name whose last label is a number is a strict dotted quad or nothing.
    Raises InvalidHostError.
    """
    try:
        text = raw.decode("ascii") if isinstance(raw, bytes) else raw
    except UnicodeDecodeError:
        raise InvalidHostError("not ASCII") from None
    if not text.isascii():
        raise InvalidHostError("not ASCII")
    text = text.lower()
    if text.startswith("["):
        return _canonical_ipv6(text)
    text = text.removesuffix(".")
    if not 0 < len(text) <= MAX_NAME:
        raise InvalidHostError(f"expected 1 to {MAX_NAME} bytes, got {len(text)}")
    if not _NAME.fullmatch(text):
        raise InvalidHostError("expected labels of letters, digits, '-' and '_', 1 to 63 bytes each")
    if _NUMERIC_LAST.fullmatch(text) and not _QUAD.fullmatch(text):
        raise InvalidHostError("a name that ends in a number must be four decimal octets without leading zeros")
    return Host(text)


def _canonical_ipv6(text: str) -> Host:
    inside = _BRACKETED.fullmatch(text)
    try:
        address = ipaddress.IPv6Address(inside[1] if inside else "")
    except ValueError:
        raise InvalidHostError("expected an IPv6 address in brackets, without a zone") from None
    mapped = address.ipv4_mapped
    return Host(str(mapped) if mapped else f"[{address}]")


def literal_address(host: Host) -> bytes | None:
    """The packed address (4 or 16 bytes) where `host` is an IP literal; None for a name, and for what is neither."""
    if host.startswith("[") and host.endswith("]"):
        with contextlib.suppress(ValueError):
            return ipaddress.IPv6Address(host[1:-1]).packed
        return None
    return bytes(map(int, host.split("."))) if _QUAD.fullmatch(host) else None


def audit_name(raw: str | bytes) -> str:
    """The canonical name, or `hex:` and the bytes (the first 255, then `+N` for the rest). Safe in any log."""
    try:
        return canonical_host(raw)
    except InvalidHostError:
        data = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")
        more = f"+{len(data) - _AUDIT_BYTES}" if len(data) > _AUDIT_BYTES else ""
        return f"hex:{data[:_AUDIT_BYTES].hex()}{more}"


class PatternKind(IntEnum):
    """How a pattern matches, the least specific first."""

    SUBTREE = 1  # .example.com: the apex and everything below
    BELOW = 2  # **.example.com: one or more labels more
    ONE_BELOW = 3  # *.example.com: exactly one label more
    PIECE = 4  # *-docs.example.com: one label more, with this beginning and end
    EXACT = 5


@dataclass(frozen=True, slots=True)
class HostPattern:
    """A host pattern of a policy. `base` is what follows the wildcard (the whole name of an exact one); `prefix` and
    `suffix` are what stands around a `*` inside a label. Names only: an IP literal is opened by `cidrs`."""

    kind: PatternKind
    base: str
    prefix: str = ""
    suffix: str = ""

    @classmethod
    def parse(cls, text: str, *, shared: bool = False) -> "HostPattern":
        """A pattern from a policy file; U-labels become UTS-46 A-labels. `shared`: names that anyone can get may be
        meant, as in a deny rule. Raises ValueError: what was expected."""
        kind, rest, prefix, suffix = _split(text)
        pattern = cls(kind, _ascii_name(rest, text), prefix, suffix)
        if not shared and pattern.is_shared:
            raise ValueError(f"{text!r}: anyone can get a name under {pattern.base!r}; name the domains that are meant")
        return pattern

    @property
    def is_shared(self) -> bool:
        """Whether it matches names that anyone can get: a wildcard right above a public or shared-hosting suffix."""
        return self.kind is not PatternKind.EXACT and _is_shared_suffix(self.base)

    def matches(self, host: Host) -> bool:
        """Compares whole labels of a canonical host; an IP literal matches nothing."""
        if self.kind is PatternKind.EXACT:
            return host == self.base
        if self.kind is PatternKind.SUBTREE and host == self.base:
            return True
        above = host[: -len(self.base) - 1]
        if not above or f"{above}.{self.base}" != host:
            return False
        if self.kind in (PatternKind.SUBTREE, PatternKind.BELOW):
            return True
        return "." not in above and self._fits(above)

    def covers(self, other: "HostPattern") -> bool:
        """Whether every host that `other` matches is matched by this one too."""
        if other.kind is PatternKind.EXACT:
            return self.matches(Host(other.base))
        below = other.base.endswith(f".{self.base}")
        match self.kind:
            case PatternKind.SUBTREE:
                return below or other.base == self.base
            case PatternKind.BELOW:
                return below or (other.base == self.base and other.kind is not PatternKind.SUBTREE)
            case PatternKind.ONE_BELOW:
                return other.base == self.base and other.kind in (PatternKind.ONE_BELOW, PatternKind.PIECE)
            case PatternKind.PIECE:
                fits = other.prefix.startswith(self.prefix) and other.suffix.endswith(self.suffix)
                return other.base == self.base and other.kind is PatternKind.PIECE and fits
            case PatternKind.EXACT:
                return False

    def _fits(self, label: str) -> bool:
        """`*` in `a*b` stands for at least one character."""
        if len(label) <= len(self.prefix) + len(self.suffix):
            return False
        return label.startswith(self.prefix) and label.endswith(self.suffix)

    @property
    def specificity(self) -> tuple[int, int, int]:
        """Compares: exact over piece over `*.` over `**.` over `.`, then more labels, then more of the piece."""
        return self.kind, self.base.count(".") + 1, len(self.prefix) + len(self.suffix)

    def __str__(self) -> str:
        star = {PatternKind.SUBTREE: "", PatternKind.BELOW: "**", PatternKind.ONE_BELOW: "*"}
        if self.kind is PatternKind.EXACT:
            return self.base
        return f"{star.get(self.kind, f'{self.prefix}*{self.suffix}')}.{self.base}"


def _split(text: str) -> tuple[PatternKind, str, str, str]:
    """Kind, base as written, prefix and suffix of the piece."""
    if text.startswith("."):
        return PatternKind.SUBTREE, text[1:], "", ""
    first, dot, rest = text.partition(".")
    if "*" not in first:
        return PatternKind.EXACT, text, "", ""
    if not dot or not rest:
        raise ValueError(f"{text!r} would match everything; {_FORMS}")
    if first in ("*", "**"):
        return (PatternKind.ONE_BELOW if first == "*" else PatternKind.BELOW), rest, "", ""
    piece = _PIECE.fullmatch(first.lower())
    if not piece:
        raise ValueError(f"{text!r}: one '*' in an ASCII first label; {_FORMS}")
    return PatternKind.PIECE, rest, piece[1], piece[2]


def _ascii_name(name: str, text: str) -> str:
    if any(c in name for c in "/:@ ["):
        raise ValueError(f"{text!r} is not a host name: without scheme, port, path and address; {_FORMS}")
    if "*" in name:
        raise ValueError(f"{text!r}: '*' stands in the first label only; {_FORMS}")
    try:
        host = canonical_host(name if name.isascii() else _to_a_labels(name))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; {_FORMS}") from None
    if literal_address(host):
        raise ValueError(f"{text!r} is an address: expected it under `cidrs` ({host}/32)")
    return host


def _to_a_labels(name: str) -> str:
    import idna  # only where a policy holds a U-label

    mapped = idna.uts46_remap(name, std3_rules=False, transitional=False)
    return ".".join(label if _ONE_LABEL.fullmatch(label) else _to_a_label(label) for label in mapped.split("."))


def _to_a_label(label: str) -> str:
    import idna

    return idna.alabel(label).decode("ascii") if label else ""


def _is_shared_suffix(base: str) -> bool:
    """Is `base`, or every name right below it, a public suffix (ICANN or private section)?

    An unknown top-level name counts as one, as the list's own algorithm says.
    """
    is_public = _public_suffixes()
    return is_public(base) or is_public(f"any.{base}")


@functools.cache
def load_suffix_list() -> bytes:
    """The public suffix list's text. A process that gives up its privileges calls this before: later it may not be
    able to read the interpreter's files."""
    from publicsuffixlist import PSLFILE

    "ü".encode("idna")  # codecs are imported when first used
    with open(PSLFILE, "rb") as file:
        return file.read()


@functools.cache
def _public_suffixes() -> Callable[[str], bool]:
    from publicsuffixlist import PublicSuffixList  # takes about 100 ms; only a wildcard needs it

    suffixes = PublicSuffixList(load_suffix_list())

    def is_public(name: str) -> bool:
        return suffixes.publicsuffix(name) == name

    return is_public
