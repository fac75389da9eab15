"""Typed messages with file descriptors over a Unix stream socket, between our own processes.

A message is a frozen dataclass: four bytes of length, then `[type name, fields]` as JSON. Decoding is strict:
an unknown type, an unknown, missing or wrongly typed field is a `ChannelError`, never ignored. Blocking; each
connection belongs to one thread. Called by the warden's, the gateway's and the controller's ends.
"""

import contextlib
import dataclasses
import json
import os
import socket
import struct
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sandboxd import limits
from sandboxd.errors import SandboxdError

_T = TypeVar("_T")
_C = TypeVar("_C", bound=type[Any])
Registry = Mapping[str, type[Any]]
_WHOLE = 1 << 53  # up to here every whole number is a float


class ChannelError(SandboxdError):
    """The peer sent what the protocol doesn't know, or went away in the middle of a message."""

    def __init__(self, message: str) -> None:
        super().__init__("channel", message)


class _Shared:
    """The methods of every message."""

    __dataclass_fields__: dict[str, "dataclasses.Field[Any]"]

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self.__dataclass_fields__
        given = dict(zip(fields, values, strict=False))
        if len(values) > len(fields) or given.keys() & named or not named.keys() <= fields.keys():
            raise TypeError(f"{type(self).__name__}: too many, repeated or unknown fields")
        given |= named
        for name, field in fields.items():
            if name not in given and field.default_factory is not dataclasses.MISSING:
                given[name] = field.default_factory()
            value = given.get(name, field.default)
            if value is dataclasses.MISSING:
                raise TypeError(f"{type(self).__name__}: field {name!r} is missing")
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self.__dataclass_fields__)))

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__name__}({', '.join(fields)})"

    def __setattr__(self, name: str, value: object) -> typing.NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> typing.NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


@typing.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def message(cls: _C) -> _C:
    """Make `cls` a frozen dataclass with slots whose methods are shared with all messages. `dataclass` compiles them
    for each class anew: for the protocols that takes as long as starting the interpreter, at every start."""
    for name in ("__init__", "__eq__", "__hash__", "__repr__", "__setattr__", "__delattr__"):
        if name not in cls.__dict__:
            setattr(cls, name, getattr(_Shared, name))
    return typing.cast(_C, dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls))


def registry(*message_types: type[Any]) -> Registry:
    """The closed list of messages that a peer may send."""
    return {cls.__name__: cls for cls in message_types}


def send(sock: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    """Send one message; `fds` travel with its first byte and stay open here.

    Raises ChannelError where it exceeds `limits.CHANNEL_MESSAGE`, OSError where the peer is gone.
    """
    frame = framed(message)
    sent = socket.send_fds(sock, [frame], list(fds)) if fds else 0
    sock.sendall(frame[sent:])


def framed(message: Any) -> bytes:
    """The message as it goes over a channel. Raises ChannelError where it exceeds `limits.CHANNEL_MESSAGE`."""
    body = json.dumps([type(message).__name__, _plain(message)], separators=(",", ":")).encode()
    if len(body) > limits.CHANNEL_MESSAGE:
        raise ChannelError(f"message of {len(body)} bytes exceeds {limits.CHANNEL_MESSAGE}")
    return struct.pack(">I", len(body)) + body


def receive(sock: socket.socket, known: Registry) -> tuple[Any, list[int]] | None:
    """The next message and the descriptors that came with it (now the caller's to close); None at the end."""
    fds: list[int] = []
    try:
        head = _exactly(sock, 4, fds)
        if head is None:
            return None
        (length,) = struct.unpack(">I", head)
        if length > limits.CHANNEL_MESSAGE:
            raise ChannelError(f"message of {length} bytes exceeds {limits.CHANNEL_MESSAGE}")
        body = _exactly(sock, length, fds)
        if body is None:
            raise ChannelError("the peer closed in the middle of a message")
        return parse(body, known), fds
    except BaseException:
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        raise


def _exactly(sock: socket.socket, count: int, fds: list[int]) -> bytes | None:
    """`count` bytes, or None at a clean end. Descriptors can arrive with any of them."""
    data = bytearray()
    while len(data) < count:
        chunk, new, flags, _ = socket.recv_fds(sock, count - len(data), limits.CHANNEL_FDS)
        fds.extend(new)
        if flags & socket.MSG_CTRUNC:
            raise ChannelError(f"more than {limits.CHANNEL_FDS} descriptors in a message")
        if not chunk:
            if data:
                raise ChannelError("the peer closed in the middle of a message")
            return None
        data += chunk
    return bytes(data)


def parse(body: bytes, known: Registry) -> Any:
    """The message that a frame's body is. Raises ChannelError."""
    try:
        name, fields = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise ChannelError(f"not a message: {error}") from None
    if not isinstance(name, str) or name not in known:
        raise ChannelError(f"unknown message {name!r}; expected one of {', '.join(sorted(known))}")
    return decode(known[name], fields, name)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in typing.cast(Mapping[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in typing.cast(Sequence[Any], value)]
    return value


def decode(kind: type[_T], value: Any, where: str = "") -> _T:
    """`value` (plain JSON) as `kind`: dataclass, str, int, float, bool, tuple[X, ...], dict[str, X], X | None,
    Literal, Any. Raises ChannelError that names the place and what was expected."""
    return typing.cast(_T, _decode(kind, value, where or getattr(kind, "__name__", "value")))


def _decode(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(typing.cast(type[Any], kind), value, where)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return _expect(value in args, value, where, f"one of {', '.join(map(repr, args))}")
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        (only,) = [a for a in args if a is not type(None)]
        return _decode(only, value, where)
    if origin is tuple:
        _expect(isinstance(value, list), value, where, "a list")
        return tuple(_decode(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        _expect(isinstance(value, dict), value, where, "an object")
        return {k: _decode(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if kind is float and type(value) is int:
        return float(_expect(abs(value) < _WHOLE, value, where, "a smaller number"))
    return _expect(type(value) is kind, value, where, getattr(kind, "__name__", str(kind)))


def _decode_dataclass(kind: type[Any], value: Any, where: str) -> Any:
    _expect(isinstance(value, dict), value, where, "an object")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    unknown = set(value) - set(fields)
    if unknown:
        raise ChannelError(f"{where}: unknown field {sorted(unknown)[0]!r}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in value:
            raise ChannelError(f"{where}: field {name!r} is missing")
    return kind(**{name: _decode(hints[name], v, f"{where}.{name}") for name, v in value.items()})


def _expect(ok: bool, value: Any, where: str, expected: str) -> Any:
    if not ok:  # the value itself is not shown: it may be a secret
        raise ChannelError(f"{where}: expected {expected}, got {type(value).__name__}")
    return value
