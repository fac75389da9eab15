"""Lookups: bounded in time and number. The system's resolver is replaced; no query leaves."""

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest

from sandboxd.egress.gateway import resolver
from sandboxd.egress.gateway.resolver import ResolveError, Resolver

Lookup = Callable[..., list[tuple[object, ...]]]


def answers(*addresses: str) -> Lookup:
    def lookup(host: bytes, *_: object, **__: object) -> list[tuple[object, ...]]:
        assert isinstance(host, bytes)
        return [
            (socket.AF_INET6 if ":" in text else socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, 0))
            for text in addresses
        ]

    return lookup


def resolve(seconds: float = 10) -> tuple[bytes, ...]:
    async def run() -> tuple[bytes, ...]:
        pool = Resolver()
        try:
            return await pool.share().resolve("a.example", seconds=seconds)
        finally:
            pool.close()

    return asyncio.run(run())


def test_packed_addresses_in_order_without_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", answers("9.9.9.9", "::1", "9.9.9.9", "fe80::1%lo"))
    assert resolve() == (bytes((9, 9, 9, 9)), bytes(15) + b"\x01", b"\xfe\x80" + bytes(13) + b"\x01")


def test_no_such_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ResolveError):
        resolve()


def test_a_silent_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(20))
    try:
        with pytest.raises(ResolveError, match="in time"):
            resolve(seconds=0.1)
    finally:
        release.set()


def test_one_sandbox_can_not_hold_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    quick = answers("9.9.9.9")

    def lookup(host: bytes, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host == b"slow.example":
            release.wait(20)
        return quick(host)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)

    async def run() -> None:
        pool = Resolver()
        greedy = pool.share()
        waiting = [asyncio.ensure_future(greedy.resolve("slow.example")) for _ in range(100)]
        assert await pool.share().resolve("a.example") == (bytes((9, 9, 9, 9)),)
        release.set()
        await asyncio.gather(*waiting)
        pool.close()

    asyncio.run(run())


def test_a_lookup_that_was_given_up_still_holds_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)
    quick = answers("9.9.9.9")

    def lookup(host: bytes, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host == b"slow.example":
            begun.release()
            release.wait(20)
        return quick(host)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)

    async def run() -> None:
        pool = Resolver()
        greedy = pool.share()
        for _ in range(20):
            with pytest.raises(ResolveError, match="in time"):
                await greedy.resolve("slow.example", seconds=0.05)
        assert await pool.share().resolve("a.example") == (bytes((9, 9, 9, 9)),)
        release.set()
        assert await greedy.resolve("slow.example")
        pool.close()

    asyncio.run(run())
    assert sum(iter(lambda: begun.acquire(blocking=False), False)) == 5


def test_search_domains_of_the_host_are_off() -> None:
    Resolver().close()
    assert resolver.os.environ["LOCALDOMAIN"] == ""
