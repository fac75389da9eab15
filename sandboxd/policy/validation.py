"""A document's nodes checked against a model: the value, or everything that is wrong, each in words and with its place.

Pure. Not here: what a policy's parts say about each other (`checks`). Called by `loading` and `cases`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sandboxd.policy.checks import suggest
from sandboxd.policy.egress import EgressPolicy
from sandboxd.policy.problems import Problem
from sandboxd.policy.source import Node, Path, render
from sandboxd.policy.values import Model, format_duration, format_size

_PART = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")


@dataclass(frozen=True, slots=True)
class Document:
    """A text's root node, the file it came from (for problems), and the model it must fit."""

    root: Node
    name: str
    model: type[Model]


def validate(document: Document, problems: list[Problem]) -> Any:
    """The model's value; None where something was added to `problems`."""
    try:
        return document.model.from_wire(document.root.plain())
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        places = {tuple(d["loc"]) for d in details}
        for detail in details:
            if not _follows(detail, places, document.root):
                problems.append(_problem(detail, document))
        return None


def placed(problem: Problem, document: Document) -> Problem:
    """A problem with only a path, with its position."""
    parts = tuple(int(index) if index else key for key, index in _PART.findall(problem.path))
    *_, (_, node) = _walk(document.root, parts)
    return replace(problem, file=document.name, line=node.line, column=node.column)


def _follows(detail: ErrorDetails, places: set[Path], root: Node) -> bool:
    """Whether this error is only the consequence of another: of text that was reported, of an item that is wrong."""
    loc = tuple(detail["loc"])
    if any(node.broken for _, node in _walk(root, loc)):
        return True
    return detail["type"] == "too_short" and any(len(p) > len(loc) and p[: len(loc)] == loc for p in places)


def _walk(root: Node, loc: Path) -> Iterator[tuple[Path, Node]]:
    """The nodes from the root on, with their paths; parts of `loc` that pydantic added are passed over."""
    node, path = root, ()
    yield path, node
    for part in loc:
        below = node.child(part)
        if below is not None:
            node, path = below, (*path, part)
            yield path, node


# --- words ---------------------------------------------------------------------------------------------------


def _problem(detail: ErrorDetails, document: Document) -> Problem:
    loc = tuple(detail["loc"])
    *_, (path, node) = _walk(document.root, loc)
    line, column = node.line, node.column
    about_key = detail["type"] == "extra_forbidden" or loc[-1:] == ("[key]",)
    if about_key and path:
        *_, (_, parent) = _walk(document.root, path[:-1])
        line, column = parent.keys.get(str(path[-1]), (line, column))
    message, expected = _words(detail, path, node, document.model)
    return Problem(message, expected, render(path), document.name, line, column)


def _words(detail: ErrorDetails, path: Path, node: Node, model: type[Model]) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(str(path[-1]), _keys_of(_model_at(path[:-1], model)), path)
    if kind == "missing":
        return f"the key {detail['loc'][-1]!r} is missing", ""
    if kind == "too_short":
        return "must not be empty", "leave the key out, or name something"
    if kind == "literal_error":
        hint = suggest(node.scalar, re.findall(r"'([^']*)'", context["expected"])) if _is_text(node) else ""
        return f"expected {context['expected']}", hint
    if kind in ("policy", "not_supported"):
        return detail["msg"], context.get("expected", "")
    if kind.endswith("_type"):
        return f"expected {_TYPES.get(kind, kind.removesuffix('_type'))}, got {_kind(node)}", _quote_hint(kind, node)
    return re.sub(r"^(Input|[A-Z]\w+) should (be |have )?", "expected ", _in_its_form(detail["msg"], node)), ""


def _in_its_form(message: str, node: Node) -> str:
    """A bound of something that is written with a unit, with a unit."""
    if not _is_text(node):
        return message
    write = format_size if node.scalar.endswith("B") else format_duration
    return re.sub(r"[0-9]+$", lambda found: write(int(found[0])), message)


_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _is_text(node: Node) -> bool:
    return isinstance(node.scalar, str)


def _kind(node: Node) -> str:
    """What stands there; never the value."""
    if node.entries is not None:
        return "a mapping"
    if node.items is not None:
        return "a list"
    if isinstance(node.scalar, bool):
        return "true or false"
    return "text" if isinstance(node.scalar, str) else "a number"


def _quote_hint(kind: str, node: Node) -> str:
    if kind == "string_type" and isinstance(node.scalar, bool | int | float):
        return "quote it"
    if kind == "tuple_type" and _is_text(node):
        return "write [ ] around it"
    return ""


def _unknown_key(key: str, known: list[str], path: Path) -> tuple[str, str]:
    hint = suggest(key, known)
    if not hint and len(path) == 1 and key in _keys_of(EgressPolicy):
        hint = "it belongs under egress"
    return f"unknown key {key!r}", hint or f"expected {', '.join(sorted(known))}"


def _keys_of(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _model_at(path: Path, root: type[Model]) -> type[BaseModel] | None:
    """The model whose keys stand at `path`."""
    kind: Any = root
    for part in path:
        model = _model_in(kind)
        if isinstance(part, str) and model and part in _keys_of(model):
            kind = next(f.annotation for name, f in model.model_fields.items() if (f.alias or name) == part)
    return _model_in(kind)


def _model_in(kind: Any) -> type[BaseModel] | None:
    """The model inside an annotation: optional, list, mapping or annotated."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if get_origin(kind) is None:
        return None
    found = (_model_in(each) for each in get_args(kind))
    return next((each for each in found if each), None)
