"""Looks names up outside: the host's own resolver, in a few threads, bounded in time and number.

Only canonical names come here, after a rule matched. Not here: pins (`pump` asks them first), and what may be done
with the answer. Called by `pump`.
"""

import asyncio
import os
import socket
from concurrent.futures import ThreadPoolExecutor

from sandboxd import limits

_THREADS = 16
# Of the threads one sandbox may hold: slow names of one can't stop another.
_SHARE = 4


class ResolveError(Exception):
    """No answer: the name does not exist, or nobody said so in time."""


class Resolver:
    """Shared by all sandboxes of a gateway; `share()` gives each its part."""

    def __init__(self) -> None:
        # resolv.conf(5): the host's search domains must not turn a name that a rule allows into another one.
        os.environ["LOCALDOMAIN"] = ""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="resolve")

    def share(self) -> "ResolverShare":
        """The part of one sandbox."""
        return ResolverShare(self._pool)

    def close(self) -> None:
        """Abandon what is under way."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class ResolverShare:
    """At most `_SHARE` lookups at once; more wait, within the same time."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._free = asyncio.Semaphore(_SHARE)

    async def resolve(self, host: str, *, seconds: float = limits.RESOLVE) -> tuple[bytes, ...]:
        """The packed addresses of `host` (canonical), in the resolver's order. Raises ResolveError."""
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
                lookup = asyncio.get_running_loop().run_in_executor(self._pool, _lookup, host)
                lookup.add_done_callback(self._ended)
                return await asyncio.shield(lookup)
        except TimeoutError:
            raise ResolveError("no answer in time") from None
        except (OSError, UnicodeError) as error:
            raise ResolveError(type(error).__name__) from None

    def _ended(self, lookup: "asyncio.Future[tuple[bytes, ...]]") -> None:
        """A thread is free again: long after its lookup was given up, perhaps."""
        self._free.release()
        if not lookup.cancelled():
            lookup.exception()  # whoever still waits for it is told


def _lookup(host: str) -> tuple[bytes, ...]:
    """Blocking. As bytes: a text would be encoded anew as IDNA, by a codec that is only imported then."""
    found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    packed = (socket.inet_pton(family, str(where[0]).partition("%")[0]) for family, _, _, _, where in found)
    return tuple(dict.fromkeys(packed))
