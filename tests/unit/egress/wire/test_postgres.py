"""The first message of a PostgreSQL client."""

import pytest

from sandboxd.egress.wire.outcome import NEED_MORE, Refusal
from sandboxd.egress.wire.postgres import Startup, StartupReader
from sandboxd.reasons import Reason
from tests.fuzz.seeds import postgres_startups
from tests.kit.bytewise import same_however_cut

SEEDS = postgres_startups()


def read(data: bytes) -> tuple[object, bytes, bytes]:
    """The answer, what was replied, what would be passed on of `data` when the answer came."""

    def each(pieces):
        reader = StartupReader()
        answer = NEED_MORE
        replies = b""
        for piece in pieces:
            answer = reader.feed(piece)
            replies += reader.take_reply()
        return answer, replies

    whole = StartupReader()
    whole.feed(data)
    return *same_however_cut(each, data), bytes(whole.raw)


@pytest.mark.parametrize(
    ("seed", "kind", "replies"),
    [
        ("startup", "startup", b""),
        ("startup-3-2", "startup", b""),
        ("ssl", "ssl_request", b""),
        ("cancel", "cancel_request", b""),
        ("cancel-long", "cancel_request", b""),
        ("gss-ssl", "ssl_request", b"N"),
        ("gss-startup", "startup", b"N"),
    ],
)
def test_beginnings(seed, kind, replies):
    answer, replied, passed = read(SEEDS[seed])
    assert (answer, replied) == (Startup(kind), replies)
    assert passed == (SEEDS[seed][8:] if replies else SEEDS[seed])


@pytest.mark.parametrize(
    ("seed", "reason"),
    [
        ("tls", Reason.PROTO_MISMATCH),
        ("version-2", Reason.PROTO_MISMATCH),
        ("no-user", Reason.MALFORMED),
        ("twice", Reason.MALFORMED),
        ("unpaired", Reason.MALFORMED),
        ("no-end", Reason.MALFORMED),
        ("too-long", Reason.MALFORMED),
        ("too-short", Reason.MALFORMED),
        ("gss-gss", Reason.MALFORMED),
    ],
)
def test_what_is_none(seed, reason):
    answer, _, _ = read(SEEDS[seed])
    assert isinstance(answer, Refusal)
    assert answer.reason is reason


def test_a_refused_request_is_answered_once_and_more_is_awaited():
    reader = StartupReader()
    assert reader.feed(SEEDS["gss-ssl"][:8]) == NEED_MORE
    assert (reader.take_reply(), reader.take_reply()) == (b"N", b"")
    assert reader.feed(SEEDS["gss-ssl"][8:]) == Startup("ssl_request")


def test_more_is_needed_up_to_the_last_byte():
    for cut in range(len(SEEDS["startup"])):
        assert read(SEEDS["startup"][:cut])[0] == NEED_MORE
