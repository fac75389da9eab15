"""The gate's parser (`orders.h`) against the writer, against seeds, and fuzzed for a moment."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from images.gate import corpus
from sandboxd.warden.server.orders import encode_orders

GATE = Path(corpus.__file__).parent
Check = Callable[[bytes], bool]

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
name = text.filter(lambda value: value and "=" not in value)


@given(st.lists(text, min_size=1, max_size=30), st.dictionaries(name, text), text, st.integers(0, 65535))
def test_what_is_written_is_accepted(
    check_orders: Check, argv: list[str], env: dict[str, str], directory: str, port: int
):
    assert check_orders(encode_orders(argv, env, f"/{directory}", port)[4:])


@given(st.binary())
def test_any_bytes_are_survived(check_orders: Check, orders: bytes):
    check_orders(b"sandboxd1\0" + orders)


@given(st.data())
def test_one_changed_byte_never_breaks_the_parser(check_orders: Check, data: st.DataObject):
    orders = bytearray(data.draw(st.sampled_from(list(corpus.good()))))
    orders[data.draw(st.integers(0, len(orders) - 1))] = data.draw(st.integers(0, 255))
    check_orders(bytes(orders))


@pytest.mark.parametrize("orders", list(corpus.good()))
def test_good_seeds_and_every_cut_of_them(check_orders: Check, orders: bytes):
    assert check_orders(orders)
    assert not any(check_orders(orders[:cut]) for cut in range(len(orders)))


@pytest.mark.parametrize("orders", list(corpus.bad()))
def test_bad_seeds(check_orders: Check, orders: bytes):
    assert not check_orders(orders)


def test_a_moment_of_fuzzing(tmp_path: Path):
    """Bounded by runs; images/README.md says how to run it for hours."""
    corpus.write(tmp_path / "corpus")
    subprocess.run([GATE / "build", "fuzz", tmp_path / "fuzz"], check=True)
    flags = ["-runs=200000", "-max_len=512", "-seed=1", "-verbosity=0"]
    done = subprocess.run(
        [tmp_path / "fuzz", *flags, tmp_path / "corpus"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
