"""Results in words: every row of the mapping, cutting, redaction."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.tools.model import Call, ErrorKind, Tool
from sandboxd.tools.outcome import Outcome
from sandboxd.tools.results import (
    REDACTED,
    Redaction,
    block_text,
    rich_parts,
    summary,
    text_form,
    truncate_tool_output,
)

IMAGE = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
BLOB = {"type": "resource", "resource": {"uri": "file:///a/b%20c.bin", "blob": "QUJDRA==", "mimeType": "x/y"}}


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "text", "text": " a\nb "}, " a\nb "),
        (IMAGE, "[image image/png; base64 length=4]"),
        ({"type": "image", "data": "QQ=="}, "[image image/*; base64 length=4]"),
        ({"type": "audio", "data": "QQ==", "mimeType": "audio/wav"}, "[audio audio/wav; base64 length=4]"),
        ({"type": "audio", "data": ""}, "[audio audio/*; base64 length=0]"),
        ({"type": "resource", "resource": {"uri": "x:1", "text": "t"}}, "[resource x:1]\nt"),
        (BLOB, "[resource file:///a/b%20c.bin; mimeType=x/y; blob base64 length=8]"),
        ({"type": "resource_link", "name": "n", "uri": "u:1"}, "[resource_link name=n uri=u:1]"),
        (
            {"type": "resource_link", "name": "n", "uri": "u:1", "description": "d"},
            "[resource_link name=n uri=u:1]\nd",
        ),
        ({"type": "new", "x": 1}, '[new]\n{\n  "type": "new",\n  "x": 1\n}'),
    ],
)
def test_each_block_has_its_text(block, text):
    assert block_text(block) == text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"toolResult": {"a": 1}, "content": [{"type": "text", "text": "b"}]}, '{\n  "a": 1\n}'),
        ({"content": [], "structuredContent": {"a": 1}}, '{\n  "a": 1\n}'),
        ({"content": [], "new": 1}, '{\n  "content": [],\n  "new": 1\n}'),
    ],
)
def test_a_result_has_a_text(result, text):
    assert text_form(result) == text


def test_media_becomes_parts_in_order_beside_the_rest():
    link = {"type": "resource_link", "name": "n", "uri": "https://a.example/f.pdf", "description": "d"}
    parts = rich_parts({"content": [{"type": "text", "text": "t"}, IMAGE, BLOB, link]})
    assert parts == [
        {"type": "text", "text": "t"},
        {"type": "image", "source": {"kind": "base64", "data": "QUJD", "mime_type": "image/png"}},
        {"type": "text", "text": "[resource file:///a/b%20c.bin]"},
        {
            "type": "file",
            "source": {"kind": "base64", "data": "QUJDRA==", "mime_type": "x/y"},
            "filename": "b c.bin",
        },
        {"type": "text", "text": "d"},
        {
            "type": "file",
            "source": {"kind": "url", "url": "https://a.example/f.pdf", "mime_type": "application/octet-stream"},
            "filename": "n",
        },
    ]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "data": "QQ==", "mimeType": "audio/wav"},
        {"type": "image", "data": "QQ==", "mimeType": "image/png; x=1"},
        {"type": "image", "data": "QQ=="},
        {"type": "resource_link", "name": "n", "uri": "file:///etc/passwd"},
        {"type": "resource_link", "name": "n", "uri": "https://["},
        {"type": "new"},
    ],
)
def test_what_is_no_media_keeps_its_text(block):
    assert rich_parts({"content": [block]}) == []
    assert rich_parts({"content": [block, IMAGE]})[0] == {"type": "text", "text": block_text(block)}


def test_errors_have_no_parts_and_a_legacy_value_comes_first():
    assert rich_parts({"content": [IMAGE], "isError": True}) == []
    assert [part["type"] for part in rich_parts({"toolResult": 1, "content": [IMAGE]})] == ["text", "image"]


def test_a_summary_holds_neither_bytes_nor_addresses():
    link = {"type": "resource_link", "name": "n", "uri": "https://a.example/?signature=S"}
    text = summary({"content": [{"type": "text", "text": "t"}, IMAGE, BLOB, link, {"type": "new", "data": "D"}]})
    assert text == "t\n[image image/png; base64 length=4]\n[resource; 8 characters]\n[resource_link]\n[other]"
    assert len(summary({"content": [{"type": "text", "text": "x" * 10**6}]}).encode()) <= limits.RESULT_SUMMARY


def test_a_long_text_keeps_head_and_tail():
    assert truncate_tool_output("0123456789" * 10, 50) == "012345678901[...truncated 82 characters...]456789"
    assert truncate_tool_output("short", 5) == "short"
    assert truncate_tool_output("x" * 100, 10) == ""


@given(st.text(max_size=300), st.integers(0, 300))
def test_what_is_cut_fits_and_says_how_much(text, most):
    cut = truncate_tool_output(text, most)
    assert cut == text or len(cut.encode()) <= most
    if cut and cut != text:
        head, _, rest = cut.partition("[...truncated ")
        count, _, tail = rest.partition(" characters...]")
        if "[...truncated" not in text:
            assert text.startswith(head)
            assert text.endswith(tail)
            assert len(head) + int(count) + len(tail) == len(text)


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("secret", ["s3cr3t-Value", 'with"quote\\and/slash', "pässwörd"])
def test_secrets_are_taken_out_in_every_form(secret, before):
    redaction = Redaction([secret, "", "abc"])
    encoded = base64.b64encode((before + secret + before).encode()).decode()
    content = {
        "content": [{"type": "text", "text": f"{before}{secret}{before}"}],
        f"k{secret}": [secret, json.dumps({"k": secret}), quote(secret, safe=""), encoded, 1, None],
    }
    cleaned = redaction.content(content)
    text = json.dumps(cleaned, ensure_ascii=False)
    for form in (secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret)[1:-1])[1:-1], quote(secret, safe="")):
        assert form not in text
    assert encoded not in text
    assert cleaned["content"][0]["text"] == f"{before}{REDACTED}{before}"
    assert secret not in repr(redaction)


def test_of_two_secrets_the_longer_goes_whole():
    assert Redaction(["secret", "secret-and-more"]).text("secret-and-more secret") == f"{REDACTED} {REDACTED}"


TOOL = Tool("t", "mcp", "mcp:s", "t", {"name": "t"})
OUTCOME = Outcome(text=block_text, cut=truncate_tool_output, limit=lambda _: 100)


@pytest.mark.parametrize("answer", [{"content": None, "toolResult": 1}, {"structuredContent": {"a": 1}}])
def test_a_result_without_blocks_passes(answer):
    assert OUTCOME.of(Call("1", "t", {}), TOOL, answer).content == answer


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ({"content": [IMAGE], "structuredContent": {"a": 1}}, ["[image image/png; base64 length=4]"]),
        ({"content": None, "toolResult": {"a": 1}}, ['{"a": 1}']),
        ({"content": [], "structuredContent": {"a": 1}}, ['{"a": 1}']),
        ({"content": []}, []),
    ],
)
def test_an_error_is_text_and_nothing_else(answer, texts):
    result = OUTCOME.of(Call("1", "t", {}), TOOL, {**answer, "isError": True, "_meta": {"m": 1}})
    blocks = [{"type": "text", "text": text} for text in texts]
    assert result.content == {"content": blocks, "isError": True, "_meta": {"m": 1}}
    assert result.error is ErrorKind.TOOL_FAILED
