"""manifest.yaml ties the promises of docs/threat-model.md to tests, both ways."""

import re
import subprocess
import sys
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
MANIFEST: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / "manifest.yaml").read_text())
FOLDERS = ("escape", "scenarios", "contract", "unit/audit", "unit/egress", "unit/warden")


@cache
def collected() -> list[str]:
    """The ids of all tests that the manifest may name, as it writes them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-o", "addopts=--import-mode=importlib", "-q"]
    done = subprocess.run(
        [*command, *(f"tests/{folder}" for folder in FOLDERS)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:]
    ids = [line for line in done.stdout.splitlines() if "::" in line]
    return [re.sub(r"\[(.*)\]$", r"::\1", line.removeprefix("tests/")) for line in ids]


def test_every_promise_has_tests_and_nothing_else_is_promised() -> None:
    page = (ROOT / "docs" / "threat-model.md").read_text().partition("\n## Promises\n")[2].partition("\n## ")[0]
    assert sorted(MANIFEST) == sorted(re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE))
    assert all(MANIFEST.values())


def test_every_pattern_names_tests_that_exist() -> None:
    patterns = {pattern for patterns in MANIFEST.values() for pattern in patterns}
    assert [p for p in sorted(patterns) if not any(fnmatchcase(one, p) for one in collected())] == []


def test_every_attempt_shows_a_promise() -> None:
    patterns = {pattern for patterns in MANIFEST.values() for pattern in patterns}
    attempts = [one for one in collected() if one.startswith("escape/") and "test_manifest" not in one]
    assert len(attempts) >= 40
    assert [one for one in attempts if not any(fnmatchcase(one, p) for p in patterns)] == []
