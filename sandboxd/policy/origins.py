"""`SCHEME://HOST:PORT` as a person writes it, for `--allow` and for OMA's `allowedOrigins`. Pure; without the models,
since every `run --allow` waits for it."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Literal

from sandboxd.policy.hosts import HostPattern

_SCHEMES: dict[str, tuple[Literal["tls", "http", "tcp", "ssh", "postgres"], int | None]] = {
    "https": ("tls", 443),
    "tls": ("tls", 443),
    "http": ("http", 80),
    "ssh": ("ssh", 22),
    "postgres": ("postgres", 5432),
    "tcp": ("tcp", None),
}
_FORM = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Origin:
    """One place that may be reached: `host` or, where a literal address was written, `network`."""

    proto: Literal["tls", "http", "tcp", "ssh", "postgres"]
    host: HostPattern | None
    network: IPv4Network | IPv6Network | None
    port: int

    def __str__(self) -> str:
        where = str(self.host) if self.host else str(self.network)
        return f"{self.proto}://{where}:{self.port}"


def parse_origin(text: str, schemes: tuple[str, ...], *, shared: bool = False) -> Origin:
    """`text` as an origin of one of `schemes`; `shared` as in `HostPattern.parse`. Raises ValueError: what was
    expected."""
    found = _FORM.fullmatch(text)
    expected = f"expected {' or '.join(f'{s}://HOST[:PORT]' for s in schemes)}"
    if not found:
        raise ValueError(expected)
    scheme, rest = found["scheme"].lower(), found["rest"]
    if scheme not in schemes:
        raise ValueError(f"scheme {scheme[:32]!r}; {expected}")
    for mark, part in (("@", "credentials"), ("?", "a query"), ("#", "a fragment"), ("/", "a path")):
        if mark in rest:
            raise ValueError(f"an origin has no {part.removeprefix('a ')}; {expected}")
    host, port = _split_port(rest)
    proto, default = _SCHEMES[scheme]
    if port is None and default is None:
        raise ValueError(f"{scheme}:// needs a port; expected {scheme}://HOST:PORT")
    pattern, network = _host(host, shared)
    return Origin(proto, pattern, network, port or default or 0)


def _split_port(rest: str) -> tuple[str, int | None]:
    if rest.startswith("["):
        host, _, tail = rest[1:].partition("]")
        text = tail.removeprefix(":") if tail else ""
        colon = tail.startswith(":")
    else:
        host, colon, text = rest.partition(":")
    if not colon and not text:
        return host, None
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text) or int(text) > 65535:
        raise ValueError("expected a port from 1 to 65535 after the host")
    return host, int(text)


def _host(text: str, shared: bool) -> tuple[HostPattern | None, IPv4Network | IPv6Network | None]:
    try:
        address = ip_address(text)
    except ValueError:
        return HostPattern.parse(text, shared=shared), None
    return None, ip_network(address.packed)
