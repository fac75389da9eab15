"""Synthetic addresses: one per name per sandbox out of 198.18.0.0/15 (egress.md 2).

Stable for the sandbox's life, through a restart of the gateway too: an address is made from the sandbox's and the
name's own text, so a workload that remembers one finds the same name behind it, or none. Not here: whether a name
may be known. Called by `dns` (name → address) and `listeners` (address → name).
"""

import hashlib

from sandboxd import limits
from sandboxd.policy.requests import Host

_BASE = int.from_bytes(bytes((198, 18, 0, 0)))
_SIZE = 1 << 17
# .0.0 is the network, .0.1 the name server, .0.2 the canary; the last is the broadcast address.
_RESERVED = frozenset((0, 1, 2, _SIZE - 1))


class NamesExhaustedError(Exception):
    """The sandbox asked for more distinct names than `limits.SYNTHETIC_NAMES`."""


class SyntheticNames:
    """The names that one sandbox has asked for, and where it believes them to be."""

    def __init__(self, sandbox: str, limit: int = limits.SYNTHETIC_NAMES) -> None:
        self._sandbox = sandbox
        self._limit = limit
        self._offsets: dict[Host, int] = {}
        self._hosts: dict[int, Host] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def address_of(self, host: Host) -> bytes:
        """The packed IPv4 address of `host`. Raises NamesExhaustedError where a new name exceeds the limit."""
        offset = self._offsets.get(host)
        if offset is None:
            if len(self._offsets) >= self._limit:
                raise NamesExhaustedError
            offset = self._free(host)
            self._offsets[host] = offset
            self._hosts[offset] = host
        return (_BASE + offset).to_bytes(4)

    def host_of(self, address: bytes) -> Host | None:
        """The name behind a packed address; None where it was never given out."""
        return self._hosts.get(int.from_bytes(address) - _BASE) if len(address) == 4 else None

    def _free(self, host: Host) -> int:
        digest = hashlib.blake2b(f"{self._sandbox}\0{host}".encode(), digest_size=8).digest()
        offset = int.from_bytes(digest) % _SIZE
        while offset in _RESERVED or offset in self._hosts:
            offset = (offset + 1) % _SIZE
        return offset
