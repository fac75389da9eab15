"""Tool results in other forms: as text, as the parts a model takes, as a summary for records; cut, and without secrets.

Pure. The text form is for the HTTP API and the audit log; over MCP the blocks themselves are passed on. Called by
whoever builds an `Outcome` and by embedders. Not here: whether a result is one at all (`outcome`).
"""

import base64
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from sandboxd import limits
from sandboxd.tools.model import JsonObject, as_object, blocks_of, text_block

_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")
_BYTES = "application/octet-stream"
REDACTED = "[redacted]"


def text_form(result: JsonObject) -> str:
    """All of a result as text. Never empty without reason: what has no text is written as JSON."""
    if "toolResult" in result:  # protocol 2024-10-07
        return _pretty(result["toolResult"])
    lines = [block_text(block) for block in blocks_of(result)]
    if lines:
        return "\n".join(lines)
    return _pretty(result["structuredContent"] if result.get("structuredContent") is not None else result)


def block_text(block: Any) -> str:
    """One content block as text (MCP schema, `ContentBlock`); one of a kind that is not known as JSON."""
    found = as_object(block)
    match found.get("type"):
        case "text" if isinstance(found.get("text"), str):
            return found["text"]
        case "image" | "audio" as kind:
            return f"[{kind} {_text(found, 'mimeType') or f'{kind}/*'}; base64 length={len(_text(found, 'data'))}]"
        case "resource":
            return _resource_text(as_object(found.get("resource")))
        case "resource_link":
            told = _text(found, "description")
            return f"[resource_link name={_text(found, 'name')} uri={_text(found, 'uri')}]" + (
                f"\n{told}" if told else ""
            )
        case kind:
            return f"[{kind}]\n{_pretty(block)}"


def rich_parts(result: JsonObject) -> list[JsonObject]:
    """The parts of a result that holds media: `{type: text, text}`, `{type: image, source}`, `{type: file, source,
    filename}`, a source `{kind: base64, data, mime_type}` or `{kind: url, url, mime_type}`. Empty where there is no
    media, or the result is an error: then `text_form` is all there is."""
    if result.get("isError") is True:
        return []
    parts = [part for block in blocks_of(result) for part in _parts(block)]
    media = [part for part in parts if part["type"] != "text"]
    if media and "toolResult" in result:
        return [text_block(_pretty(result["toolResult"])), *media]
    return parts if media else []


def summary(result: JsonObject) -> str:
    """What a record says of a result: texts, and media by kind and size; neither bytes nor addresses, which may be
    signed. At most `limits.RESULT_SUMMARY` bytes."""
    lines = [_summed(as_object(block)) for block in blocks_of(result)]
    if "toolResult" in result or not lines:
        lines.append("[structured]")
    return truncate_tool_output("\n".join(lines), limits.RESULT_SUMMARY)


def truncate_tool_output(text: str, max_bytes: int) -> str:
    """The text within `max_bytes` of UTF-8: 70 % of what fits from its head, 30 % from its tail, and between them how
    many characters are gone. Where even that does not fit: nothing. What can't be UTF-8 counts as `?`."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text
    room = max_bytes - len(_marker(len(text)).encode())  # the longest that the marker can be
    if room < 0:
        return ""
    head = data[: room * 7 // 10].decode("utf-8", "ignore")
    tail = data[len(data) - (room - room * 7 // 10) :].decode("utf-8", "ignore")
    return head + _marker(len(text) - len(head) - len(tail)) + tail


class Redaction:
    """Takes configured secrets out of JSON values, also where they stand base64-encoded, percent-encoded or escaped
    in JSON. One shorter than `limits.SECRET_REDACTED` characters is left: it would be found everywhere."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= limits.SECRET_REDACTED for form in _forms(secret)}
        # The longest first: a secret that begins another one must not leave the rest of it.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """The text without them."""
        return self._pattern.sub(REDACTED, text) if self._pattern else text

    def content(self, content: JsonObject) -> JsonObject:
        """The same of an object, names of members included; the object itself where nothing is configured."""
        return self._cleaned(content) if self._pattern else content

    def _cleaned(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self._cleaned(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(value, list):
            return [self._cleaned(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        return value


def _text(found: JsonObject, key: str) -> str:
    value = found.get(key)
    return value if isinstance(value, str) else ""


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _resource_text(resource: JsonObject) -> str:
    if isinstance(resource.get("text"), str):
        return f"[resource {_text(resource, 'uri')}]\n{resource['text']}"
    if isinstance(resource.get("blob"), str):
        kind, length = _text(resource, "mimeType") or _BYTES, len(resource["blob"])
        return f"[resource {_text(resource, 'uri')}; mimeType={kind}; blob base64 length={length}]"
    return f"[resource]\n{_pretty(resource)}"


def _parts(block: Any) -> list[JsonObject]:
    found = as_object(block)
    resource = as_object(found.get("resource"))
    if found.get("type") == "image" and _MIME.fullmatch(_text(found, "mimeType")) and _text(found, "data"):
        source = {"kind": "base64", "data": found["data"], "mime_type": found["mimeType"]}
        return [{"type": "image", "source": source}]
    if found.get("type") == "resource" and isinstance(resource.get("blob"), str):
        source = {"kind": "base64", "data": resource["blob"], "mime_type": _mime(resource)}
        return [text_block(f"[resource {_text(resource, 'uri')}]"), _file(source, resource)]
    if found.get("type") == "resource_link" and _is_web(_text(found, "uri")):
        source = {"kind": "url", "url": found["uri"], "mime_type": _mime(found)}
        told = [text_block(found["description"])] if _text(found, "description") else []
        return [*told, _file(source, found)]
    return [text_block(block_text(block))]


def _file(source: JsonObject, found: JsonObject) -> JsonObject:
    name = _text(found, "name") or _last_segment(_text(found, "uri")) or "mcp-resource"
    return {"type": "file", "source": source, "filename": name}


def _mime(found: JsonObject) -> str:
    kind = _text(found, "mimeType")
    return kind if _MIME.fullmatch(kind) else _BYTES


def _split(uri: str) -> tuple[str, str, str]:
    """Scheme, host and path; empty where it is no URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "", "", ""
    return parts.scheme.lower(), parts.netloc, parts.path


def _is_web(uri: str) -> bool:
    scheme, host, _ = _split(uri)
    return scheme in ("http", "https") and bool(host)


def _last_segment(uri: str) -> str:
    return unquote(_split(uri)[2].rstrip("/").rpartition("/")[2])


def _summed(found: JsonObject) -> str:
    resource = as_object(found.get("resource"))
    match found.get("type"):
        case "text" | "image" | "audio":
            return block_text(found)
        case "resource":
            return f"[resource; {len(_text(resource, 'text') or _text(resource, 'blob'))} characters]"
        case "resource_link":
            return "[resource_link]"
        case _:
            return "[other]"


def _marker(characters: int) -> str:
    return f"[...truncated {characters} characters...]"


def _forms(secret: str) -> set[str]:
    """As it may stand in a text. In base64 a text is written in three ways, by where it begins; what depends on its
    neighbours is left out."""
    data = secret.encode("utf-8", "surrogatepass")
    forms = {secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret)}
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + data).decode()
        first, last = (shift * 8 + 5) // 6, (shift + len(data)) * 8 // 6
        forms |= {whole[first:last], whole[first:last].replace("+", "-").replace("/", "_")}
    return {form for form in forms if len(form) >= limits.SECRET_REDACTED}
