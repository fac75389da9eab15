"""docs/policy.md names every key of the schema and no other, and says which have no behaviour yet."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.policy.cases import run_cases
from sandboxd.policy.lint import SEVERITIES
from sandboxd.policy.loading import parse_policy
from sandboxd.policy.schema import policy_schema

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "policy.md").read_text()
SCHEMA = policy_schema()
TOP = "(document)"


def parts(schema: Any) -> Iterator[tuple[str, str]]:
    """Models that stand under a key: how the path goes on, and the model's name."""
    if "$ref" in schema:
        yield "", schema["$ref"].rpartition("/")[2]
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from parts(choice)
    named = schema.get("patternProperties", {}).values()
    for suffix, below in (("[]", schema.get("items")), *((".NAME", each) for each in named)):
        if isinstance(below, dict):
            yield from ((suffix + more, name) for more, name in parts(below))


def sections_of_schema() -> dict[str, dict[str, Any]]:
    """Each model once, under the shallowest of its paths: its keys."""
    found, queue, seen = {}, [("", SCHEMA)], set()
    for path, model in queue:
        found[path or TOP] = model["properties"]
        for key, schema in model["properties"].items():
            for suffix, name in parts(schema):
                if name not in seen:
                    seen.add(name)
                    queue.append((f"{path}.{key}{suffix}".removeprefix("."), SCHEMA["$defs"][name]))
    return found


def sections_of_page() -> dict[str, dict[str, str]]:
    """Each table under a `### path` heading: key → the rest of its row."""
    sections = {}
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        heading = re.match(r"`([^`]+)`", section)
        assert heading, section[:60]
        sections[heading[1]] = dict(re.findall(r"^\| `([^`]+)` \|(.*)$", section, flags=re.MULTILINE))
    return sections


def test_every_key_and_no_other():
    page = {path: set(keys) for path, keys in sections_of_page().items()}
    assert page == {path: set(keys) for path, keys in sections_of_schema().items()}


def test_what_is_not_supported_is_marked():
    page = sections_of_page()
    for path, keys in sections_of_schema().items():
        for key, schema in keys.items():
            row = page[path][key]
            assert ("*not supported yet*" in row) == bool(schema.get("x-not-supported-yet")), (path, key)
            for value in set(schema.get("enum", ())) - set(schema.get("x-supported-values", schema.get("enum", ()))):
                assert f"`{value}`" in row.partition("not supported yet: ")[2], (path, key, value)


def test_every_key_says_what_it_means():
    for path, keys in sections_of_schema().items():
        for key, schema in keys.items():
            assert schema.get("description"), (path, key)


@pytest.mark.parametrize("policy", re.findall(r"^```yaml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
def test_policies_in_the_text_are_valid(policy):
    parse_policy(policy, "docs/policy.md")


def test_cases_in_the_text_hold_for_the_first_policy():
    (policy, *_), (cases,) = (
        re.findall(rf"^```{kind}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL) for kind in ("yaml", "cases")
    )
    assert all(outcome.ok for outcome in run_cases(parse_policy(policy, "docs/policy.md"), cases, "docs/policy.md"))


def test_every_finding_of_lint_is_listed_with_its_severity():
    rows = re.findall(r"^\| `([a-z_]+)` \| (error|warning|info) \|", PAGE, flags=re.MULTILINE)
    assert dict(rows) == SEVERITIES
