"""The typed channel: what is sent arrives, with its descriptors; anything else is an error saying what was expected."""

import os
import socket
import struct

import pytest

from sandboxd import channel
from sandboxd.warden import protocol as p


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def test_message_and_descriptors_arrive() -> None:
    a, b = pair()
    spec = p.ContainerSpec("sb-1", "agent", "mcp:x", "img", mounts=(p.Mount("/a", "/b"),), files={"/x": "y"})
    reader, writer = os.pipe()
    channel.send(a, p.Create(spec), [writer])
    message, fds = channel.receive(b, p.REQUESTS) or (None, [])
    assert message == p.Create(spec)
    os.write(fds[0], b"hi")
    assert os.read(reader, 2) == b"hi"
    for fd in (reader, writer, *fds):
        os.close(fd)


def test_end_is_none_and_half_a_message_an_error() -> None:
    a, b = pair()
    a.close()
    assert channel.receive(b, p.REQUESTS) is None
    a, b = pair()
    a.sendall(struct.pack(">I", 10) + b"[")
    a.close()
    with pytest.raises(channel.ChannelError, match="middle"):
        channel.receive(b, p.REQUESTS)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"17", "not a message"),
        (b"{", "not a message"),
        (b"[" * 50_000, "not a message"),
        (b'["Start", {"sandbox": ' + b'{"a":' * 10_000, "not a message"),
        (b'["Nope", {}]', "unknown message"),
        (b'["Start", {}]', "'sandbox' is missing"),
        (b'["Start", {"sandbox": "s", "more": 1}]', "unknown field 'more'"),
        (b'["Start", {"sandbox": 7}]', "expected str"),
        (b'["Connect", {"sandbox": "s", "port": true}]', "expected int"),
        (b'["Launch", {"sandbox": "s", "argv": ["a", 1], "env": {}}]', "argv"),
        (b'["Stop", {"sandbox": "s", "grace": 1' + b"0" * 400 + b"}]", "a smaller number"),
        (b'["Create", {"spec": {"sandbox":"s","agent":"a","workload":"w","image":"i","runtime":"kvm"}}]', "'runc'"),
    ],
)
def test_strict(body: bytes, says: str) -> None:
    a, b = pair()
    a.sendall(struct.pack(">I", len(body)) + body)
    with pytest.raises(channel.ChannelError, match=says):
        channel.receive(b, p.REQUESTS)


def test_secrets_do_not_show() -> None:
    launch = p.Launch("s", ("a",), {"TOKEN": "hunter2"})
    assert "hunter2" not in repr(launch)
    a, b = pair()
    body = b'["Launch", {"sandbox": "s", "argv": [], "env": {"TOKEN": ["hunter2"]}}]'
    a.sendall(struct.pack(">I", len(body)) + body)
    with pytest.raises(channel.ChannelError) as caught:
        channel.receive(b, p.REQUESTS)
    assert "hunter2" not in str(caught.value)
