"""Every input of the corpus keeps the promises of its target, and so do a few hundred mutations of each corpus."""

import random
from pathlib import Path

import pytest

from tests.fuzz.run import CORPUS, mutate, seeds
from tests.fuzz.targets import TARGETS

INPUTS = sorted(path for path in CORPUS.rglob("*") if path.is_file())


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {path.parent.name for path in INPUTS} == set(TARGETS)


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_known_inputs(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_mutations(target: str) -> None:
    dice = random.Random(0)
    pool = seeds(target)
    for _ in range(300):
        TARGETS[target](mutate(dice.choice(pool), pool, dice))
