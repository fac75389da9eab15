"""Allowed names that resolve to where no name may lead: judged at connect time, on every answer."""

import pytest

from tests.escape.attempt import MARK, Attempt, attempt
from tests.escape.policies import RESOLVED
from tests.kit.box import Box

ATTEMPTS = [
    attempt(
        name.removesuffix(".test"), "tcp.fetch", name, 80, MARK, inside="http 403 resolved_to_floor",
        policy="resolving", records=(
            f"decision allow allowed resolving {name}:80", f"request deny resolved_to_floor resolving {name}:80",
        ),
    )
    for name in RESOLVED
]  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda case: case.id)
def test_resolved_address(box: Box, case: Attempt) -> None:
    box.check(case)
