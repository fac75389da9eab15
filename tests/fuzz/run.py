"""Fuzzes one target for so many seconds: `python -m tests.fuzz.run TARGET SECONDS [--seed N]`.

With atheris where it is installed (coverage-guided), else by mutating the corpus at random. Ends with exit code 1 and
the input as hex where a promise is broken; put that input into the corpus together with its fix.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
_LONGEST = 4096


def seeds(target: str) -> list[bytes]:
    """The corpus of a target, in the order of its names."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


def mutate(data: bytes, others: list[bytes], dice: random.Random) -> bytes:
    """A few changes to `data`: bytes, cuts, repeats, and pieces of other inputs."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 5)):
        at, end = sorted((dice.randint(0, len(changed)), dice.randint(0, len(changed))))
        end = min(end, at + 64)
        other = dice.choice(others)
        start = dice.randint(0, len(other))
        changed[at:end] = dice.choice(
            (
                b"",
                bytes((dice.randrange(256),)),
                dice.choice((b"\r\n", b"\n", b"\x00", b"\xff\xff", b":", b" ", b"0", b",", b"%2e", b"\x00\x00")),
                changed[at:end] * 2,
                other[start : start + dice.randint(0, 64)],
            )
        )
    return bytes(changed[:_LONGEST])


def run_random(one_input: Callable[[bytes], None], corpus: list[bytes], seconds: float, seed: int) -> int:
    """Inputs tried; raises what the target raised, after telling the input."""
    dice = random.Random(seed)
    pool = corpus or [b""]
    tried = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        data = mutate(dice.choice(pool), pool, dice)
        try:
            one_input(data)
        except BaseException:
            print(f"seed {seed}: broken by {data.hex()}", file=sys.stderr)
            raise
        tried += 1
    return tried


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    one_input = TARGETS[arguments.target]
    try:
        import atheris  # type: ignore[import-not-found]
    except ImportError:
        tried = run_random(one_input, seeds(arguments.target), arguments.seconds, arguments.seed)
        print(f"{arguments.target}: {tried} inputs, no promise broken (random mutation; atheris is not installed)")
        return
    found = tempfile.mkdtemp(prefix=f"fuzz-{arguments.target}-")  # what it learns and what it breaks, not the corpus
    options = [f"-max_total_time={int(arguments.seconds)}", f"-max_len={_LONGEST}", f"-artifact_prefix={found}/"]
    options += [found, str(CORPUS / arguments.target)]
    print(f"{arguments.target}: new inputs go to {found}")
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *options], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
