"""Rules that every file of the repository keeps: size, docstrings, no leftovers, nothing of one machine."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 400


@cache
def files() -> tuple[Path, ...]:
    """Everything that is or would be committed."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def python(folder: str) -> list[Path]:
    return [p for p in files() if p.suffix == ".py" and p.is_relative_to(ROOT / folder)]


def test_there_are_files() -> None:
    assert len(files()) > 20


def test_no_file_is_too_long() -> None:
    long = [str(p.relative_to(ROOT)) for p in python("sandboxd") if len(text(p).splitlines()) > LONGEST]
    assert not long, f"past {LONGEST} lines a file asks to be two: {long}"


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(p.relative_to(ROOT))
        for p in python(".")
        if not ast.get_docstring(ast.parse(text(p))) and (p.name != "__init__.py" or text(p).strip())
    ]
    assert not silent, f"no docstring: {silent}"


def joined(*parts: str) -> str:
    """A pattern that this file itself does not match."""
    return re.escape("".join(parts))


# Package indexes and mirrors come from the host's own configuration, never from here.
HOSTS = (
    joined("pypi", ".", "org"),
    joined("pythonhosted", ".", "org"),
    joined("npmjs", ".", "org"),
    joined("npmjs", ".", "com"),
    joined("deb", ".", "debian", ".", "org"),
    joined("security", ".", "debian", ".", "org"),
    joined("snapshot", ".", "debian", ".", "org"),
)
# Folders of a machine that this was written on.
PLACES = (
    r"(?<![\w.])" + joined("/wo", "rk/"),
    joined("/tmp/", "v/"),
    joined("/tmp/", "wt"),
)
LEFTOVERS = (
    joined("TO", "DO"),
    joined("FIX", "ME"),
    joined("Not", "ImplementedError"),
    joined("is", "sue ") + r"#?\d",
)


@pytest.mark.parametrize("pattern", [*HOSTS, *PLACES, *LEFTOVERS])
def test_no_text_says(pattern: str) -> None:
    wanted = re.compile(pattern)
    found = [str(p.relative_to(ROOT)) for p in files() if wanted.search(text(p))]
    assert not found, f"{pattern} in {found}"


def test_nothing_expects_roots_home() -> None:
    home = re.compile(
        r"(?<![\w.])" + joined("/ro", "ot/") + r"(?!\.)"
    )  # its dot files may be named: no workspace is there
    assert not [str(p) for p in files() if not p.is_relative_to(ROOT / "tests") and home.search(text(p))]


def test_attempts_are_never_skipped() -> None:
    """In the folders that prove something a skip would look like a pass."""
    skips = re.compile(joined("pytest.", "skip") + "|" + joined("mark.", "skip") + "|" + joined("mark.", "xfail"))
    proofs = [p for folder in ("tests/escape", "tests/scenarios") for p in python(folder)]
    assert not [str(p) for p in proofs if skips.search(text(p))]


def test_nothing_sleeps_where_it_could_wait() -> None:
    sleeps = re.compile(joined("time.", "sleep"))
    assert not [str(p) for p in python("sandboxd") if sleeps.search(text(p))]
