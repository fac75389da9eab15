"""The JSON-RPC 2.0 envelope of one line: its kind, method, id and, of a tools/call, the tool's name. Pure.

Decisions are made on what is read here while the bytes pass on unchanged, so a line that two parsers could read
differently is invalid: a repeated member, a member that differs from one of ours in case only (some parsers ignore
case), a number JSON doesn't know. Not here: parameters and results, and whether the peer may send this.
"""

import json
import re
from collections.abc import Mapping
from json.decoder import JSONDecoder
from typing import Any, Literal, NamedTuple, NoReturn, cast

from sandboxd import limits
from sandboxd.mcp.connections.lines import OverLong

Kind = Literal["request", "notification", "response", "batch", "invalid"]
Id = str | int | float | None

_MEMBERS = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_INFINITE = (float("inf"), float("-inf"))  # what 1e999 becomes
_CALL = frozenset({"name", "arguments"})
_SPACE = r"[ \t\r\n]*"
_BLANK = re.compile(_SPACE)
_OPEN = re.compile(_SPACE + r"([{\[])" + _SPACE)
_KEY = re.compile(_SPACE + r'"([^"\\\x00-\x1f]*)"' + _SPACE + ":" + _SPACE)
_COLON = re.compile(_SPACE + ":" + _SPACE)
_NEXT = re.compile(_SPACE + r"([,}\]])" + _SPACE)
_STRUCTURE = re.compile(r'["{}\[\]]')
# The last member of an object whose value is a scalar, with the closing brace already cut off. It can't begin inside
# a string: quotes there are escaped, and from a closing quote on their number would be odd.
_LAST = re.compile(
    r"([,{])" + _SPACE + r'"([^"\\]*)"' + _SPACE + ":" + _SPACE
    + r'("(?:[^"\\]|\\.)*"|-?[0-9][-+.eE0-9]*|true|false|null)' + _SPACE + r"\Z"
)  # fmt: skip


class _Nested:
    """Stands for an object or array whose content was skipped or never seen."""


_NESTED = _Nested()


class Envelope(NamedTuple):
    """`has_id` tells a null id from none. `tool` of a tools/call request only. `members` of a batch only.
    `problem` says what is wrong with an invalid one, without quoting it."""

    kind: Kind
    method: str | None = None
    id: Id = None
    has_id: bool = False
    tool: str | None = None
    members: tuple["Envelope", ...] = ()
    problem: str = ""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = JSONDecoder(parse_constant=_refuse_constant)


def read_envelope(line: bytes) -> Envelope:
    """The envelope of a line, with or without its newline. Never raises: what isn't JSON-RPC is `invalid`."""
    try:
        text = line.decode()
        if (usual := _read_usual(text)) is not None:
            return usual
        opening = _OPEN.match(text)
        if opening is None:
            raise ValueError("not a JSON object")
        read = _read_object if opening[1] == "{" else _read_batch
        envelope, end = read(text, opening.end())
        if text[end:].strip(" \t\r\n"):
            raise ValueError("something follows the message")
        return envelope
    except UnicodeDecodeError:
        return Envelope("invalid", problem="not UTF-8")
    except (ValueError, IndexError, RecursionError) as error:
        return Envelope("invalid", problem=_without_excerpt(error))


def read_edges(line: OverLong) -> Envelope:
    """As far as the two ends of an over-long line tell. Exact where only scalars stand before and after the one big
    member; otherwise, or where something is ambiguous, `invalid`."""
    try:
        members: dict[str, Any] = {}
        for key, value in [*_first_members(line.head), *_last_members(line.tail)]:
            if key in members:
                raise ValueError("a member is repeated")
            members[key] = value
        return _classify(members, None)
    except (ValueError, IndexError, RecursionError) as error:
        return Envelope("invalid", problem=_without_excerpt(error))


def error_reply(id: Id, code: int, message: str) -> bytes:
    """A JSON-RPC error response as a line. Codes: JSON-RPC 2.0 section 5.1."""
    reply = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}
    return json.dumps(reply, separators=(",", ":")).encode() + b"\n"


def _without_excerpt(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at character {error.pos}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error) or "not JSON"


def _read_usual(text: str) -> Envelope | None:
    """Nearly all messages, in half the time: parsed at once by C, where it is plain that nothing is written twice.
    None: it takes the long way to say."""
    if len(text) > limits.MCP_PARSE or "\\u" in text or text[:1] != "{":
        return None
    try:
        found: dict[str, Any] = _DECODER.decode(text)
    except ValueError:
        return None
    params = found.get("params")
    keys = (*found, *cast(dict[str, Any], params)) if isinstance(params, dict) else found
    for key in keys:
        # A key that stands there twice may be nested somewhere; the long way knows.
        if text.count(f'"{key}"') != 1:
            return None
    if not _MEMBERS.issuperset(found):
        return None
    return _classify(found, _tool(found))


def _tool(members: Mapping[str, Any]) -> str | None:
    params = members.get("params")
    if members.get("method") != "tools/call" or not isinstance(params, dict):
        return None
    call = cast(dict[str, Any], params)
    _refuse_lookalikes(call, _CALL)
    name = call.get("name")
    return name if isinstance(name, str) else None


def _read_object(text: str, position: int) -> tuple[Envelope, int]:
    members, end = _walk(text, position, into="params")
    return _classify(members, _tool(members)), end


def _read_batch(text: str, position: int) -> tuple[Envelope, int]:
    """A batch (protocol 2025-03-26) is judged member by member; one bad member spoils it."""
    members: list[Envelope] = []
    while True:
        opening = _OPEN.match(text, position)
        if opening is None or opening[1] != "{":
            raise ValueError("a batch holds objects only, and at least one")
        member, position = _read_object(text, opening.end())
        members.append(member)
        if member.kind == "invalid":
            return member, len(text)
        following, position = _separator(text, position, "]")
        if following == "]":
            return Envelope("batch", members=tuple(members)), position
        if len(members) == limits.MCP_MEMBERS:
            raise ValueError(f"a batch of more than {limits.MCP_MEMBERS} messages")


def _walk(text: str, position: int, into: str = "") -> tuple[dict[str, Any], int]:
    """The members of the object whose content begins at `position`, and its end. Below this level a repeated member
    goes unseen, except in member `into`."""
    members: dict[str, Any] = {}
    if text[position] == "}":
        return members, position + 1
    while True:
        key, position = _key(text, position)
        if key in members:
            raise ValueError("a member is repeated")
        if len(members) == limits.MCP_MEMBERS:
            raise ValueError(f"more than {limits.MCP_MEMBERS} members")
        if key == into and text[position] == "{":
            blank = _BLANK.match(text, position + 1)
            members[key], position = _walk(text, blank.end() if blank else position + 1)
        else:
            members[key], position = _value(text, position)
        following, position = _separator(text, position, "}")
        if following == "}":
            return members, position


def _refuse_lookalikes(members: Mapping[str, Any], known: frozenset[str]) -> None:
    """Some parsers ignore case, so `Method` beside or instead of `method` would be read differently."""
    for key in members:
        if key not in known and key.casefold() in known:
            raise ValueError(f"a member is like {key.casefold()!r} but for its case")


def _key(text: str, position: int) -> tuple[str, int]:
    plain = _KEY.match(text, position)
    if plain is not None:
        return plain[1], plain.end()
    blank = _BLANK.match(text, position)
    key, end = _DECODER.raw_decode(text, blank.end() if blank else position)
    colon = _COLON.match(text, end)
    if not isinstance(key, str) or colon is None:
        raise ValueError("a member has no name")
    return key, colon.end()


def _value(text: str, position: int) -> tuple[Any, int]:
    """Small messages are parsed whole, by C. In a big one nested values are only skipped: 16 MiB of `[],[],` would
    become hundreds of megabytes of objects."""
    if text[position] in "{[" and len(text) > limits.MCP_PARSE:
        return _NESTED, _skip(text, position)
    return _DECODER.raw_decode(text, position)


def _skip(text: str, position: int) -> int:
    """The end of the object or array that begins at `position`, by its brackets and strings."""
    open_brackets: list[str] = []
    while True:
        token = _STRUCTURE.search(text, position)
        if token is None:
            raise ValueError("the message ends too early")
        position = token.end()
        if token[0] == '"':
            _, position = _DECODER.raw_decode(text, token.start())
        elif token[0] in "{[":
            if len(open_brackets) == limits.MCP_DEPTH:
                raise ValueError("nested too deeply")
            open_brackets.append("}" if token[0] == "{" else "]")
        elif open_brackets.pop() != token[0]:
            raise ValueError("brackets do not match")
        elif not open_brackets:
            return position


def _separator(text: str, position: int, closing: str) -> tuple[str, int]:
    following = _NEXT.match(text, position)
    if following is None or following[1] not in ("," + closing):
        raise ValueError(f"expected ',' or '{closing}'")
    return following[1], following.end()


def _classify(members: Mapping[str, Any], tool: str | None) -> Envelope:
    _refuse_lookalikes(members, _MEMBERS)
    has_id, id_, method = "id" in members, members.get("id"), members.get("method")
    answers = "result" in members or "error" in members
    if members.get("jsonrpc") != "2.0":
        return Envelope("invalid", problem="jsonrpc is not '2.0'")
    if isinstance(id_, bool) or not isinstance(id_, str | int | float | None) or id_ in _INFINITE:
        return Envelope("invalid", problem="id is neither a string nor a number")
    if "method" in members:
        if not isinstance(method, str) or answers:
            return Envelope("invalid", problem="method is not a string, or stands beside a result")
        return Envelope("request" if has_id else "notification", method, id_, has_id, tool)
    if not answers or not has_id:
        return Envelope("invalid", problem="neither a method nor an answer with an id")
    return Envelope("response", None, id_, True)


def _first_members(head: bytes) -> list[tuple[str, Any]]:
    """Members from the front, up to the first whose value is nested or cut off (that one by name only)."""
    text = head.decode(errors="replace")
    opening = _OPEN.match(text)
    if opening is None or opening[1] != "{":
        raise ValueError("not a JSON object")
    found: list[tuple[str, Any]] = []
    position = opening.end()
    while key := _KEY.match(text, position):
        scalar = _scalar(text, key.end())
        if scalar is None:
            return [*found, (key[1], _NESTED)]
        found.append((key[1], scalar[0]))
        position = scalar[1]
    return found


def _scalar(text: str, position: int) -> tuple[Any, int] | None:
    """A scalar that stands in `text` whole, with the comma after it; else None."""
    if text[position : position + 1] in ("{", "["):
        return None
    try:
        value, end = _DECODER.raw_decode(text, position)
    except ValueError:
        return None
    comma = _NEXT.match(text, end)
    return (value, comma.end()) if comma is not None and comma[1] == "," else None


def _last_members(tail: bytes) -> list[tuple[str, Any]]:
    """Members from the back, up to the first whose value is nested or cut off."""
    text = tail.decode(errors="replace").rstrip(" \t\r\n")
    if not text.endswith("}"):
        raise ValueError("the line does not end as an object does")
    text = text[:-1]
    found: list[tuple[str, Any]] = []
    while member := _LAST.search(text):
        found.append((member[2], json.loads(member[3])))
        text = text[: member.start()]
    return found
