"""Allowed names that resolve to where no name may lead: judged at connect time, on every answer."""

import pytest

from tests.escape.attempt import MARK, Attempt, attempt
from tests.escape.policies import ELSEWHERE, RESOLVED
from tests.kit.box import Box

HELLO = "data hello from elsewhere\n"


def allowed(name: str) -> tuple[str, ...]:
    return (f"decision allow allowed lan {name}:80",)


def denied(name: str) -> tuple[str, ...]:
    return (f"decision deny resolved_to_floor lan {name}:80",)


ATTEMPTS = [
    attempt(
        name.removesuffix(".test"), "tcp.fetch", name, 80, MARK, inside="http 403 resolved_to_floor",
        policy="resolving", records=(
            f"decision allow allowed resolving {name}:80", f"request deny resolved_to_floor resolving {name}:80",
        ),
    )
    for name in RESOLVED
] + [
    attempt("private-where-a-rule-says-so", "tcp.several", "lan.test", 80, 2, policy="lan", records=allowed("lan.test"),
            inside=[HELLO, HELLO]),
    attempt("private-beside-the-block", "tcp.several", "outside-the-block.test", 80, 1, policy="lan",
            inside=["ECONNRESET"], records=denied("outside-the-block.test")),
    attempt("flips-to-loopback", "tcp.several", "flip.test", 80, 4, policy="lan",
            inside=[HELLO, "ECONNRESET", HELLO, "ECONNRESET"], records=(*allowed("flip.test"), *denied("flip.test"))),
    attempt("flips-from-metadata", "tcp.several", "flip-back.test", 80, 2, policy="lan",
            inside=["ECONNRESET", HELLO], records=(*allowed("flip-back.test"), *denied("flip-back.test"))),
    attempt("answers-both", "tcp.several", "both.test", 80, 2, policy="lan", records=allowed("both.test"),
            inside=[HELLO, HELLO]),
    attempt("private-literal-of-it", "tcp.several", ELSEWHERE, 80, 1, policy="lan", inside=["ECONNRESET"],
            records=(f"decision deny floor_private - {ELSEWHERE}:80",)),
]  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda case: case.id)
def test_resolved_address(box: Box, case: Attempt) -> None:
    box.check(case)
