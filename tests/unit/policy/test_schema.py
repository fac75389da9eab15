"""The JSON Schema says what the models say."""

from pathlib import Path

import jsonschema
import pytest

from sandboxd.policy.schema import DIALECT, policy_schema
from sandboxd.policy.source import read_source

SCHEMA = policy_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
POLICIES = [p for p in (Path(__file__).parents[3] / "policies").glob("*.yaml") if ".cases." not in p.name]


def test_it_is_a_schema():
    assert SCHEMA["$schema"] == DIALECT
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.stem)
def test_examples_fit(policy):
    root, _ = read_source(policy.read_text(), policy.name)
    assert root is not None
    VALIDATOR.validate(root.plain())


@pytest.mark.parametrize(
    "document",
    [
        {"agnt": {}},
        {"egress": {"rules": [{"id": "a"}]}},
        {"egress": {"rules": [{"id": "a", "action": "allow", "to": {"hosts": []}}]}},
        {"egress": {"limits": {"idle": 10}}},
        {"servers": {"Not a name": {"command": "x"}}},
        {"servers": {"a": {"command": "x", "env": {"A": None}}}},
        {"workspace": None},
    ],
)
def test_it_refuses_what_loading_refuses(document):
    assert not VALIDATOR.is_valid(document)
