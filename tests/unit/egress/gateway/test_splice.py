"""A splice between socket pairs: order, ends, counts."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from sandboxd.egress.gateway.splice import Splice
from sandboxd.egress.quotas import Allowances
from sandboxd.policy.units import Rate

Body = Callable[["Pair"], Awaitable[None]]


class Pair:
    """`inside` and `outside` are the two peers' ends."""

    def __init__(self, **options: object) -> None:
        self.loop = asyncio.get_running_loop()
        self.inside, self._client = socket.socketpair()
        self.outside, self._upstream = socket.socketpair()
        for sock in (self.inside, self.outside, self._client, self._upstream):
            sock.setblocking(False)
        self.out, self.back = Allowances(), Allowances()
        self.ended: asyncio.Future[str] = self.loop.create_future()
        idle = float(options.pop("idle", 60))  # type: ignore[arg-type]
        self.splice = Splice(
            self.loop,
            self._client,
            self._upstream,
            idle,
            self.ended.set_result,
            out=self.out,
            back=self.back,
            **options,  # type: ignore[arg-type]
        )
        self.splice.start()

    async def receive(self, sock: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += await self.loop.sock_recv(sock, count - len(data))
        return data

    def close(self) -> None:
        self.splice.stop()
        for sock in (self.inside, self.outside, self._client, self._upstream):
            sock.close()


def run(body: Body, **options: object) -> None:
    async def main() -> None:
        pair = Pair(**options)
        try:
            await asyncio.wait_for(body(pair), 20)
        finally:
            pair.close()

    asyncio.run(main())


def test_both_ways_and_both_ends() -> None:
    async def body(pair: Pair) -> None:
        await pair.loop.sock_sendall(pair.inside, b"question")
        assert await pair.receive(pair.outside, 8) == b"question"
        pair.inside.shutdown(socket.SHUT_WR)
        assert await pair.loop.sock_recv(pair.outside, 1) == b""
        await pair.loop.sock_sendall(pair.outside, b"answer")
        assert await pair.receive(pair.inside, 6) == b"answer"
        pair.outside.close()
        assert await pair.ended == "eof"
        assert (pair.splice.bytes_out, pair.splice.bytes_in) == (8, 6)

    run(body)


def test_what_was_queued_goes_first_and_is_not_counted_again() -> None:
    async def body(pair: Pair) -> None:
        await pair.loop.sock_sendall(pair.inside, b"second")
        assert await pair.receive(pair.outside, 11) == b"firstsecond"
        assert pair.splice.bytes_out == 6

    run(body, to_upstream=b"first")


def test_a_client_that_ended_before() -> None:
    async def body(pair: Pair) -> None:
        assert await pair.receive(pair.outside, 5) == b"first"
        assert await pair.loop.sock_recv(pair.outside, 1) == b""
        pair.outside.close()
        assert await pair.ended == "eof"

    run(body, to_upstream=b"first", client_ended=True)


def test_a_slow_reader_gets_everything_in_order() -> None:
    blob = bytes(range(256)) * 40_000

    async def body(pair: Pair) -> None:
        sending = asyncio.ensure_future(pair.loop.sock_sendall(pair.inside, blob))
        got = bytearray()
        while len(got) < len(blob):
            got += await pair.loop.sock_recv(pair.outside, 10_000)
        await sending
        assert got == blob
        assert pair.splice.bytes_out == len(blob)

    run(body)


@pytest.mark.parametrize("who", ["inside", "outside"])
def test_a_peer_that_is_gone(who: str) -> None:
    async def body(pair: Pair) -> None:
        gone, other = (pair.inside, pair.outside) if who == "inside" else (pair.outside, pair.inside)
        gone.close()
        await pair.loop.sock_sendall(other, b"x" * 100)
        assert await pair.ended == ("client_lost" if who == "inside" else "upstream_lost")

    run(body)


def test_silence() -> None:
    async def body(pair: Pair) -> None:
        assert await pair.ended == "idle"

    run(body, idle=0.05)


def test_after_stop_nothing_passes() -> None:
    async def body(pair: Pair) -> None:
        pair.splice.stop()
        await pair.loop.sock_sendall(pair.inside, b"x")
        pair.inside.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            pair.outside.recv(1)
        assert not pair.ended.done()

    run(body)


def test_not_a_byte_more_than_the_quota_passes() -> None:
    async def body(pair: Pair) -> None:
        pair.out.follow([Rate(1000, 86400)])
        await pair.loop.sock_sendall(pair.inside, b"x" * 1500)
        assert await pair.ended == "quota"
        assert await pair.receive(pair.outside, 1000) == b"x" * 1000
        with pytest.raises(BlockingIOError):
            pair.outside.recv(1)
        assert (pair.splice.bytes_out, pair.out.left(pair.loop.time())) == (1000, 0)

    run(body)


def test_each_direction_has_its_own_quota() -> None:
    async def body(pair: Pair) -> None:
        pair.back.follow([Rate(10, 86400)])
        await pair.loop.sock_sendall(pair.inside, b"x" * 1500)
        assert await pair.receive(pair.outside, 1500) == b"x" * 1500
        await pair.loop.sock_sendall(pair.outside, b"y" * 11)
        assert await pair.ended == "quota"
        assert pair.splice.bytes_in == 10

    run(body)


def test_what_one_connection_used_up_ends_another() -> None:
    async def body(pair: Pair) -> None:
        pair.out.follow([Rate(10, 86400)])
        pair.out.take(10, pair.loop.time())
        await pair.loop.sock_sendall(pair.inside, b"x")
        assert await pair.ended == "quota"
        assert pair.splice.bytes_out == 0

    run(body)
