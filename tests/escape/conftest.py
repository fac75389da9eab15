"""One world, one site and one packet capture for all attempts; the capture is judged again at the very end."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.escape.attempt import MARK
from tests.escape.policies import ELSEWHERE, FLIPPING, HOSTS_OWN, PINNED, RESOLVED
from tests.kit.box import Box
from tests.kit.capture import open_capture
from tests.kit.elsewhere import open_elsewhere
from tests.kit.no_skips import pytest_runtest_makereport  # noqa: F401 (a hook)
from tests.kit.site import open_site
from tests.kit.world import open_folders, open_world

# Addresses that exist only inside a sandbox, and those that attempts try to reach. Not 192.0.2.0/24: some machines
# are numbered out of it.
INSIDE_ONLY = ("10.0.0.2/32", "198.18.0.0/15", "198.51.100.77/32", "203.0.113.77/32", "10.77.0.9/32", "240.0.0.1/32",
               "168.63.129.16/32", "100.100.100.200/32", "2001:db8::77/128", "fd00:77::9/128")  # fmt: skip


@contextmanager
def open_address(address: str) -> Iterator[None]:
    """One more address of this host, on its loopback."""
    command = ["ip", "address", "replace", f"{address}/32", "dev", "lo"]
    subprocess.run(command, check=True)
    try:
        yield
    finally:
        subprocess.run([word.replace("replace", "del") for word in command], check=True)


@pytest.fixture(scope="session")
def box() -> Iterator[Box]:
    """Where attempts are made."""
    with (
        open_address(HOSTS_OWN),
        open_elsewhere(ELSEWHERE, b"hello from elsewhere\n"),
        open_folders() as settings,
        open_world(settings, RESOLVED | FLIPPING) as world,  # before the others: it forks, and they bring threads
        open_capture(MARK, INSIDE_ONLY) as capture,
        open_site([*PINNED]) as site,
    ):
        running = Box(world, site, capture)
        yield running
        running.close()
    assert capture.packets > 0, "the capture saw nothing at all, not even the site's own packets"
    assert capture.sightings == []
