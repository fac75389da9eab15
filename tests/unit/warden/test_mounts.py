"""The tables that give a directory's owner to a sandbox's user."""

import pytest

from sandboxd.warden.server.mounts import id_table


@pytest.mark.parametrize(
    ("outside", "for_root", "table"),
    [
        (1000, False, "1000 1900000000 1\n"),
        (0, False, "0 1900000000 1\n"),
        (1000, True, "1000 1900000000 1\n65534 0 1\n"),
        (0, True, "0 1900000000 1\n65534 0 1\n"),
        (65534, True, "65534 1900000000 1\n65533 0 1\n"),
    ],
)
def test_tables(outside: int, for_root: bool, table: str) -> None:
    assert id_table(outside, 1_900_000_000, for_root=for_root) == table
