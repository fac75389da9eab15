"""The SSH identification line."""

import pytest

from sandboxd.egress.wire.outcome import NEED_MORE, Refusal
from sandboxd.egress.wire.ssh import Identification, IdentificationReader
from sandboxd.reasons import Reason
from tests.kit.bytewise import same_however_cut

OPENSSH = b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u7\r\n"


def read(data: bytes) -> object:
    def each(pieces):
        reader = IdentificationReader()
        answer = NEED_MORE
        for piece in pieces:
            answer = reader.feed(piece)
        return answer

    return same_however_cut(each, data)


@pytest.mark.parametrize(
    ("data", "software"),
    [
        (OPENSSH, "OpenSSH_9.2p1 Debian-2+deb12u7"),
        (OPENSSH + b"\0\0\x05\xdc key exchange", "OpenSSH_9.2p1 Debian-2+deb12u7"),
        (b"SSH-2.0-Go\r\n", "Go"),
        (b"SSH-2.0-JSCH-0.1.54\n", "JSCH-0.1.54"),
        (b"SSH-2.0-x \r\n", "x "),
        (b"SSH-2.0-" + b"x" * 245 + b"\r\n", "x" * 245),
    ],
)
def test_lines(data, software):
    assert read(data) == Identification(software)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", Reason.PROTO_MISMATCH),
        (b"\x16\x03\x01", Reason.PROTO_MISMATCH),
        (b"SSH-1.99-x\r\n", Reason.PROTO_MISMATCH),
        (b"Banner\r\nSSH-2.0-x\r\n", Reason.PROTO_MISMATCH),
        (b"SSH-2.0-\r\n", Reason.MALFORMED),
        (b"SSH-2.0- x\r\n", Reason.MALFORMED),
        (b"SSH-2.0-x\x1b[2J\r\n", Reason.MALFORMED),
        (b"SSH-2.0-x\0\r\n", Reason.MALFORMED),
        (b"SSH-2.0-\xc3\xbc\r\n", Reason.MALFORMED),
        (b"SSH-2.0-" + b"x" * 246 + b"\r\n", Reason.MALFORMED),
        (b"SSH-2.0-" + b"x" * 10000, Reason.MALFORMED),
    ],
)
def test_what_is_none(data, reason):
    answer = read(data)
    assert isinstance(answer, Refusal)
    assert answer.reason is reason


def test_more_is_needed_up_to_the_line_feed():
    for cut in range(len(OPENSSH)):
        assert read(OPENSSH[:cut]) == NEED_MORE
