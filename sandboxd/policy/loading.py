"""A policy file as a checked `PolicyDocument`, or everything that is wrong with it, each with its place in the text.

Files are read here and nowhere else in this package. Called by the commands and, for a new revision, by
the controller.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from sandboxd import limits
from sandboxd.errors import UsageError
from sandboxd.policy.checks import check_document
from sandboxd.policy.extending import Layered, extend
from sandboxd.policy.models import PolicyDocument
from sandboxd.policy.problems import PolicyError, Problem
from sandboxd.policy.source import read_source
from sandboxd.policy.validation import Document, validate


def read_policy(path: FilePath) -> PolicyDocument:
    """The policy in the file, with those that it extends; a relative `workspace.source` is made absolute, from the
    directory of the file it stands in. Raises PolicyError with all problems, UsageError where a file can't be read."""
    with _without_collection():
        return load_policy(path).document


def load_policy(path: FilePath) -> Layered:
    """The same, and where its parts stand."""
    file = path.resolve()
    return _checked(_load(read_text(path), str(path), file.parent, _Files([file], {file})))


def parse_policy(text: str, name: str, directory: FilePath | None = None) -> PolicyDocument:
    """The policy in `text`; `name` stands for the file in problems, `directory` is where `extends` begins. Raises
    PolicyError with all problems, UsageError where a file that it extends can't be read."""
    with _without_collection():
        return _checked(_load(text, name, directory, _Files([], set()))).document


def placed_in(directory: FilePath, document: PolicyDocument) -> PolicyDocument:
    """The document with a relative `workspace.source` made absolute, from the directory of its file."""
    if document.workspace is None:
        return document
    source = directory / document.workspace.source
    return document.model_copy(update={"workspace": document.workspace.model_copy(update={"source": str(source)})})


def read_text(path: FilePath) -> str:
    """The file's text, a byte order mark dropped. Raises PolicyError where it isn't UTF-8, UsageError where it can't
    be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(limits.POLICY_FILE + 1)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", hint="expected a readable policy file", code="no_policy"
        ) from None
    return decode_text(raw, str(path))


def decode_text(raw: bytes, name: str) -> str:
    """A policy's bytes as text, a byte order mark dropped; `name` stands for the file. Raises PolicyError."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise PolicyError([Problem("not UTF-8", "expected text in UTF-8", "", name, line, 1)]) from None


@dataclass(slots=True)
class _Files:
    """Those that were read. `trail`: the ones that led to the one being read."""

    trail: list[FilePath]
    read: set[FilePath]


def _load(text: str, name: str, directory: FilePath | None, files: _Files) -> Layered:
    """One file in its form, over those that it extends; of those the last one is the nearest."""
    own = _validated(text, name)
    if directory is not None:
        own = replace(own, document=placed_in(directory, own.document))
    bases = [_base(own, number, directory, files) for number in range(len(own.document.extends or ()))]
    for base in reversed(bases):
        own = extend(own, base) if base is not None else own
    return own


def _base(own: Layered, number: int, directory: FilePath | None, files: _Files) -> Layered | None:
    """None where another way led to the same file already."""
    path, where = (own.document.extends or ())[number], f"extends[{number}]"
    if directory is None:
        raise PolicyError([own.place(Problem("only a file can extend others", "write the policy out", where))])
    file = (directory / path).resolve()
    if file in files.trail:
        raise PolicyError([own.place(Problem(f"{path} extends this file", "leave one of them out", where))])
    if file in files.read:
        return None
    if len(files.read) > limits.POLICY_BASES:
        raise PolicyError([own.place(Problem("too many files", f"expected {limits.POLICY_BASES} at most", where))])
    files.read.add(file)
    files.trail.append(file)
    try:
        return _load(read_text(file), str(directory / path), file.parent, files)
    except PolicyError:
        raise
    except UsageError as error:
        raise PolicyError([own.place(Problem(error.message, error.hint, where))]) from None
    finally:
        files.trail.pop()


def _validated(text: str, name: str) -> Layered:
    if len(text) > limits.POLICY_FILE:
        raise PolicyError([Problem(f"larger than {limits.POLICY_FILE // limits.MIB} MiB", "", "", name)])
    root, problems = read_source(text, name)
    if root is None:
        raise PolicyError(
            problems or [Problem("the policy is empty", "egress: {mode: offline} opens nothing", "", name)]
        )
    source = Document(root, name, PolicyDocument)
    document: PolicyDocument | None = validate(source, problems)
    if problems or document is None:
        raise PolicyError(sorted(problems, key=lambda p: (p.line, p.column)))
    return Layered(document, source)


def _checked(loaded: Layered) -> Layered:
    """What its parts say about each other. Raises PolicyError."""
    problems = [loaded.place(problem) for problem in check_document(loaded.document)]
    if problems:
        raise PolicyError(sorted(problems, key=lambda p: (p.file != loaded.source.name, p.file, p.line, p.column)))
    return loaded


@contextmanager
def _without_collection() -> Generator[None, None, None]:
    """Loading makes many objects and no cycles: looking for those again and again would take as long as the rest."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
