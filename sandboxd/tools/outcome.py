"""What becomes of a tool's answer on its way to the caller: its shape and declared output checked, errors reduced to
text, long text cut, configured secrets taken out. Pure. Called by the executor and by the relay of a run.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from sandboxd.tools.model import Call, ErrorKind, JsonObject, Result, Tool, blocks_of, error_content, text_block


@dataclass(frozen=True, slots=True)
class Outcome:
    """`text`: the text form of a block. `check`: what is wrong with a tool's structured content. `cut`: a text within
    so many bytes. `redact`: a value without the secrets. `limit`: bytes of text of a result of a tool, or None."""

    text: Callable[[Any], str]
    check: Callable[[Tool, JsonObject], str] = lambda _tool, _content: ""
    cut: Callable[[str, int], str] = lambda text, _: text
    redact: Callable[[JsonObject], JsonObject] = lambda content: content
    limit: Callable[[Tool], int | None] = lambda tool: tool.max_output

    def of(self, call: Call, tool: Tool, answer: Any) -> Result:
        """The result that the caller gets for the answer of a source."""
        if not is_result(answer):
            content = error_content(f'tool "{tool.name}" answered what is no result')
            return Result(call.id, call.tool, content, ErrorKind.PROTOCOL)
        content = self.redact(answer)
        if content.get("isError") is True:
            shortened, cut = self._shortened(self._text_only(content), tool)
            return Result(call.id, call.tool, shortened, ErrorKind.TOOL_FAILED, truncated=cut)
        if problem := self.check(tool, content):
            return Result(
                call.id,
                call.tool,
                self.error(f'tool "{tool.name}" answered against its output schema: {problem}'),
                ErrorKind.INVALID_OUTPUT,
            )
        shortened, cut = self._shortened(content, tool)
        return Result(call.id, call.tool, shortened, truncated=cut)

    def error(self, message: str) -> JsonObject:
        """The content of an error of ours."""
        return self.redact(error_content(message))

    def size(self, content: JsonObject) -> int:
        """Bytes of its text."""
        return sum(len(block["text"].encode("utf-8", "replace")) for block in _text_blocks(content))

    def _text_only(self, content: JsonObject) -> JsonObject:
        """An error holds text and nothing else; what the server put beside it keeps its text form."""
        blocks = [b if b["type"] == "text" else text_block(self.text(b)) for b in blocks_of(content)]
        kept = dict(content)
        beside = [kept.pop(key) for key in ("toolResult", "structuredContent") if key in kept]
        if beside and not blocks:
            blocks = [text_block(json.dumps(beside[0], ensure_ascii=False))]
        return {**kept, "content": blocks}

    def _shortened(self, content: JsonObject, tool: Tool) -> tuple[JsonObject, bool]:
        """One budget for all text of the result, spent in order. Media and structured content stay: cut in half they
        would be something else."""
        left = self.limit(tool)
        if left is None or self.size(content) <= left:
            return content, False
        blocks: list[JsonObject] = []
        for block in blocks_of(content):
            if block.get("type") == "text":
                text = self.cut(block["text"], left)
                left = max(0, left - len(text.encode("utf-8", "replace")))
                block = {**block, "text": text}
            blocks.append(block)
        return {**content, "content": blocks}, True


def is_result(answer: Any) -> bool:
    """MCP schema, `CallToolResult`: `content` is a list of objects. A server that answers with structured content or a
    `toolResult` (2024-10-07) alone is understood too."""
    if not isinstance(answer, dict):
        return False
    found = cast(JsonObject, answer)
    blocks: Any = found.get("content")
    if blocks is None:
        return "toolResult" in found or "structuredContent" in found
    return isinstance(blocks, list) and all(_is_block(block) for block in cast(list[Any], blocks))


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    found = cast(JsonObject, block)
    return isinstance(found.get("type"), str) and (found["type"] != "text" or isinstance(found.get("text"), str))


def _text_blocks(content: JsonObject) -> list[JsonObject]:
    return [block for block in blocks_of(content) if block.get("type") == "text"]
