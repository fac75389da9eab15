"""A policy file as a checked `PolicyDocument`, or everything that is wrong with it, each with its place in the text.

`read_policy` is the one function of this package that does I/O. Called by the commands and, for a new revision, by
the controller.
"""

import gc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path as FilePath

from sandboxd import limits
from sandboxd.errors import UsageError
from sandboxd.policy.checks import check_document
from sandboxd.policy.models import PolicyDocument
from sandboxd.policy.problems import PolicyError, Problem
from sandboxd.policy.source import read_source
from sandboxd.policy.validation import Document, placed, validate


def read_policy(path: FilePath) -> PolicyDocument:
    """The policy in the file; a relative `workspace.source` is made absolute, from the file's directory.

    Raises PolicyError with all problems, UsageError where the file can't be read.
    """
    return placed_in(path.resolve().parent, parse_policy(read_text(path), str(path)))


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


def parse_policy(text: str, name: str) -> PolicyDocument:
    """The policy in `text`; `name` stands for the file in problems. Raises PolicyError with all problems."""
    if len(text) > limits.POLICY_FILE:
        raise PolicyError([Problem(f"larger than {limits.POLICY_FILE // limits.MIB} MiB", "", "", name)])
    with _without_collection():
        root, problems = read_source(text, name)
        if root is None:
            raise PolicyError(
                problems or [Problem("the policy is empty", "egress: {mode: offline} opens nothing", "", name)]
            )
        source = Document(root, name, PolicyDocument)
        document: PolicyDocument | None = validate(source, problems)
        if document is not None and not problems:
            problems += [placed(problem, source) for problem in check_document(document)]
    if problems or document is None:
        raise PolicyError(sorted(problems, key=lambda p: (p.line, p.column)))
    return document


@contextmanager
def _without_collection() -> Generator[None, None, None]:
    """Loading makes many objects and no garbage: looking for it again and again would take as long as the rest."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def place_in(text: str, paths: Sequence[str]) -> list[tuple[int, int]]:
    """Line and column (from 1) of each path in the text of a policy that could be loaded."""
    root, _ = read_source(text, "")
    assert root is not None, "it was loaded"
    source = Document(root, "", PolicyDocument)
    problems = [placed(Problem("", path=path), source) for path in paths]
    return [(problem.line, problem.column) for problem in problems]
