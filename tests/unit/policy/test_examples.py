"""Every policy in `policies/` is valid and decides as its file of cases says."""

from pathlib import Path

import pytest

from sandboxd.policy.cases import run_cases
from sandboxd.policy.loading import read_policy

FOLDER = Path(__file__).parents[3] / "policies"
POLICIES = sorted(p for p in FOLDER.glob("*.yaml") if not p.name.endswith(".cases.yaml"))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.stem)
def test_cases(policy: Path) -> None:
    file = policy.with_suffix(".cases.yaml")
    outcomes = run_cases(read_policy(policy), file.read_text(), file.name)
    assert [outcome for outcome in outcomes if not outcome.ok] == []


def test_every_case_file_has_its_policy() -> None:
    names = {file.name.removesuffix(".cases.yaml") for file in FOLDER.glob("*.cases.yaml")}
    assert names == {policy.stem for policy in POLICIES}
    assert len(names) >= 6
