"""Policy text as plain values with positions: a strict subset of YAML, in which text means what it looks like.

JSON's scalars and nothing else: YAML 1.1's yes/no, octal and sexagesimal numbers and dates are errors that say to
quote them. No anchors, aliases, tags, merge keys, duplicate keys or second document; bounded in size, depth and
count. Not here: what the keys mean. Called by `loading`.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml import events

from sandboxd import limits
from sandboxd.policy.problems import Problem

Path = tuple[str | int, ...]

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?")
_WORDS = re.compile(r"(?i:yes|no|on|off|y|n|true|false)")
_NULLS = re.compile(r"(?i:null)|~|")
_OTHER_NUMBERS = re.compile(
    r"[-+]?(?:0[xXoObB][0-9a-fA-F_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
    r"|(?=\.?[0-9])(?:[0-9][0-9_]*)?\.?[0-9_]*(?:[eE][-+]?[0-9]+)?|\.(?i:inf|nan))"
)
# What a plain scalar begins with that is not text.
_SUSPECT = frozenset("+-.~0123456789nNyYoOtTfF")
_SUSPECT_KEY = _SUSPECT | {"<"}
_DATES = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?")
# libyaml's parser where the wheel has it: the other one takes seconds for a large policy.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Node:
    """A value and where it begins (from 1): a mapping's `entries`, a sequence's `items`, else a `scalar`. `keys`:
    where each key stands. `broken`: a problem was reported; whatever else is wrong with it follows from that."""

    line: int
    column: int
    scalar: Any = None
    entries: "dict[str, Node] | None" = None
    items: "list[Node] | None" = None
    keys: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    broken: bool = False

    def plain(self) -> Any:
        """The value without positions."""
        if self.entries is not None:
            return {key: node.plain() for key, node in self.entries.items()}
        return self.scalar if self.items is None else [node.plain() for node in self.items]

    def child(self, part: str | int) -> "Node | None":
        """The node under a key or an index."""
        if isinstance(part, str):
            return (self.entries or {}).get(part)
        return self.items[part] if self.items is not None and part < len(self.items) else None


class _Reader:
    """Turns parser events into nodes; collects problems and goes on where it can."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.count = 0
        self.loader: Any = _LOADER(text)
        self.next: Callable[[], Any] = self.loader.get_event

    def report(self, event: Any, path: Path, message: str, expected: str = "") -> None:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        self.problems.append(Problem(message, expected, render(path), self.file, line, column))

    def document(self) -> Node | None:
        """The one document's root; None where there is none."""
        root = None
        while (event := self.next()) is not None:
            if isinstance(event, events.DocumentStartEvent):
                if root is not None:
                    self.report(event, (), "a second document", "expected one policy a file")
                    return root
                root = self.node(self.next(), ())
        return root

    def node(self, event: Any, path: Path, *last: str | int) -> Node:
        """The value at `path`, `last` being its end: few values are reported, so that few paths are made."""
        self.count += 1
        if self.count > limits.POLICY_NODES or len(path) >= limits.POLICY_DEPTH:
            expected = f"expected {limits.POLICY_NODES} values at most, {limits.POLICY_DEPTH} levels"
            self.report(event, path[:8], "the policy is too large or too deep", expected)
            raise _TooMuchError
        mark = event.start_mark
        made = Node(mark.line + 1, mark.column + 1)
        if type(event) is events.ScalarEvent:
            if event.anchor is not None or event.tag is not None:
                made.broken = self.decorated(event, (*path, *last))
            text = event.value
            if event.style or (text and text[0] not in _SUSPECT):  # quoted, a block, or nothing but text: text
                made.scalar = text
            else:
                made.scalar = self.plain(event, (*path, *last), made)
        else:
            self.collection(event, (*path, *last), made)
        return made

    def collection(self, event: Any, path: Path, made: Node) -> None:
        made.broken = self.decorated(event, path)
        if isinstance(event, events.MappingStartEvent):
            made.entries = {}
            self.mapping(made, made.entries, path)
        elif isinstance(event, events.SequenceStartEvent):
            made.items = []
            while not isinstance(item := self.next(), events.SequenceEndEvent):
                made.items.append(self.node(item, path, len(made.items)))

    def decorated(self, event: Any, path: Path) -> bool:
        """Anchors, aliases and tags: reported, True."""
        if isinstance(event, events.AliasEvent):
            self.report(event, path, "aliases (*name) are not allowed", "write the value again")
        elif getattr(event, "anchor", None) is not None:
            self.report(event, path, "anchors (&name) are not allowed")
        elif getattr(event, "tag", None) is not None:
            self.report(event, path, "tags (!name) are not allowed")
        else:
            return False
        return True

    def mapping(self, made: Node, entries: dict[str, Node], path: Path) -> None:
        while not isinstance(event := self.next(), events.MappingEndEvent):
            key = self.key(event, path)
            value = self.node(self.next(), path, key or "?")
            if key is None:
                made.broken = True
            elif key in entries:
                first = made.keys[key][0]
                self.report(event, (*path, key), f"key {key!r} stands twice", f"the first is on line {first}")
            else:
                mark = event.start_mark
                made.keys[key] = (mark.line + 1, mark.column + 1)
                entries[key] = value

    def key(self, event: Any, path: Path) -> str | None:
        if not isinstance(event, events.ScalarEvent):
            self.report(event, path, "a key is not text")
            self.skip(event)
            return None
        if event.anchor is not None or event.tag is not None:
            self.decorated(event, path)
            return None
        if event.style or (event.value and event.value[0] not in _SUSPECT_KEY):
            return event.value
        if event.value == "<<":
            self.report(event, path, "merge keys (<<) are not allowed", "write the keys out")
            return None
        scratch = Node(0, 0)
        value = self.plain(event, path, scratch)
        if not scratch.broken and not isinstance(value, str):
            self.report(event, path, "a key is not text", "quote it")
            return None
        return None if scratch.broken else value

    def skip(self, event: Any) -> None:
        """Read past a collection."""
        depth = int(isinstance(event, events.CollectionStartEvent))
        while depth:
            event = self.next()
            depth += isinstance(event, events.CollectionStartEvent) - isinstance(event, events.CollectionEndEvent)

    def plain(self, event: Any, path: Path, made: Node) -> Any:
        """What unquoted text is that may be something else."""
        text: str = event.value
        for form, read in _PLAIN:
            if form.fullmatch(text):
                try:
                    return read(text)
                except ValueError as error:
                    made.broken = True
                    self.report(event, path, str(error))
                    return None
        return text


def _null(text: str) -> Any:
    raise ValueError(f"{text} is not a value here; leave the key out" if text else "the value is missing")


def _ambiguous(text: str) -> Any:
    raise ValueError("this can be read as a number, a time or a date; quote it if it is text")


def _word(text: str) -> Any:
    raise ValueError(f'{text} can be read in two ways; write true or false, or quote it ("{text}") if it is text')


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("the number is too large")
    return value


_PLAIN: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (_NULLS, _null),
    (re.compile("true|false"), lambda text: text == "true"),
    (_WORDS, _word),
    (_INTEGER, int),
    (_FLOAT, _float),
    (_DATES, _ambiguous),
    (_OTHER_NUMBERS, _ambiguous),
)


class _TooMuchError(Exception):
    """The reader stopped; the problem is recorded."""


def render(path: Path) -> str:
    """`egress.rules[2].to`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def read_source(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """The document's root and what is wrong with the text. Where the root is None there was nothing to read."""
    reader = None
    try:
        reader = _Reader(text, file)
        return reader.document(), reader.problems
    except _TooMuchError:
        return None, reader.problems if reader else []
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        problem, expected = error.problem or "", error.context or ""
        if mark and "\n".join(text.split("\n")[mark.line : mark.line + 1])[mark.column :].startswith("\t"):
            problem, expected = "a tab where only spaces may indent", "write spaces"
        found = Problem(f"not YAML: {problem}", expected, "", file, line, column)
        return None, [*(reader.problems if reader else []), found]
    except UnicodeError:  # half of a surrogate pair
        return None, [Problem("not Unicode text", "expected text in UTF-8", "", file)]
    except yaml.YAMLError as error:
        return None, [Problem(f"not YAML: {str(error).splitlines()[0]}", "expected text in UTF-8", "", file)]
