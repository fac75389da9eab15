"""Connecting to vetted addresses, and whose addresses they are. This host's own only."""

import asyncio
import socket

import pytest

from sandboxd.egress.gateway.dialer import DialError, dial, is_host_address
from sandboxd.reasons import Reason

LOOPBACK = bytes((127, 0, 0, 1))
LOOPBACK_6 = bytes(15) + b"\x01"
NAT64_LOOPBACK = bytes.fromhex("0064ff9b0000000000000000") + LOOPBACK


@pytest.mark.parametrize("address", [LOOPBACK, bytes((127, 9, 9, 9)), LOOPBACK_6, bytes(4), bytes(16), NAT64_LOOPBACK])
def test_addresses_of_this_host(address: bytes) -> None:
    assert is_host_address(address)


@pytest.mark.parametrize("address", [bytes((8, 8, 8, 8)), bytes.fromhex("20014860486000000000000000008888")])
def test_addresses_of_others(address: bytes) -> None:
    assert not is_host_address(address)


def test_the_first_that_answers() -> None:
    async def run() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            sock, address = await dial((bytes((127, 0, 0, 9)), LOOPBACK), port)
            assert sock.getpeername() == ("127.0.0.1", port)
            assert not sock.getblocking()
            sock.close()
            return address

    assert asyncio.run(run()) == LOOPBACK


def test_a_refusal_is_remembered() -> None:
    async def run() -> Reason:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with pytest.raises(DialError) as failure:
            await dial((LOOPBACK,), port)
        return failure.value.reason

    assert asyncio.run(run()) is Reason.UPSTREAM_REFUSED


def test_silence_ends_in_time() -> None:
    async def run() -> DialError:
        with socket.socket() as full, socket.socket() as one, socket.socket() as two:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for filler in (one, two):
                filler.setblocking(False)
                filler.connect_ex(full.getsockname())
            with pytest.raises(DialError) as failure:
                await dial((LOOPBACK, LOOPBACK), full.getsockname()[1], seconds=0.2)
            return failure.value

    error = asyncio.run(run())
    assert (error.reason, error.detail) == (Reason.CONNECT_FAILED, "no answer")


def test_no_address_is_a_failure() -> None:
    with pytest.raises(DialError):
        asyncio.run(dial((), 80))
