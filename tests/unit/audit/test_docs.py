"""docs/audit.md says what the code does: its tables list exactly the fields, events and words that records may hold."""

import re
import typing
from pathlib import Path

import pytest

from sandboxd import limits
from sandboxd.audit import records
from sandboxd.audit.events import Event, EventName, Subject
from sandboxd.reasons import Layer, Reason, Verdict

PAGE = (Path(__file__).parents[3] / "docs" / "audit.md").read_text()


def first_column(heading: str) -> list[str]:
    section = re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    return re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE)


def field_names() -> list[str]:
    empty = records.Record(Event("", 0.0, "dns", Subject("", "", "", "")), "", 1, records.GENESIS)
    return list(records.as_dict(empty))


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("Events", typing.get_args(EventName)),
        ("Fields", field_names()),
        ("Verdicts", list(Verdict)),
        ("Layers", list(Layer)),
        ("Reasons", list(Reason)),
    ],
)
def test_tables(heading: str, words: list[str]) -> None:
    assert sorted(first_column(heading)) == sorted(str(word) for word in words)


def test_numbers() -> None:
    assert f"{limits.AUDIT_TEXT} characters" in PAGE
    assert f"{limits.AUDIT_RECORD // limits.KIB} KiB" in PAGE
    assert f"{limits.AUDIT_COMMIT * 1000:.0f} ms" in PAGE
    assert f"At most {limits.AUDIT_QUEUE} records" in PAGE
    assert f"at most {limits.NEW_FLOWS_PER_SECOND} new" in PAGE
    assert (limits.DATABASE_BUSY, limits.AUDIT_RETRY) == (5.0, 1.0), "five seconds, every second"
