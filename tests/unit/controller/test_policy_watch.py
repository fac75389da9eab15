"""A policy file that changes under a run: what becomes a revision, what is told, and how often."""

import os
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd import limits
from sandboxd.controller.policy_file import OutOfReachError, PolicyFile
from sandboxd.controller.policy_watch import PolicyWatch, Revision
from sandboxd.errors import UsageError

PATIENCE = 20.0


class Run:
    """`registered` and `said` hold what the watch did; a content that begins with `bad` can't be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.registered: queue.Queue[str] = queue.Queue()
        self.said: queue.Queue[str] = queue.Queue()
        self.refuses = False
        self.watch = PolicyWatch(PolicyFile(path), "one", self._read, self._register, self.said.put)

    def _read(self, content: bytes) -> Revision:
        text = content.decode()
        if text.startswith("bad"):
            raise UsageError(f"not a policy: {text}")
        hash_, _, later = text.partition(" ")
        return Revision((), hash_, (later,) if later else (), "may reach something")

    def _register(self, policies: object, hash: str) -> int:
        if self.refuses:
            raise UsageError("the gateway refused")
        self.registered.put(hash)
        return 2

    def write(self, text: str) -> None:
        """As an editor does."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)

    def heard(self) -> str:
        return self.said.get(timeout=PATIENCE)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(limits, "POLICY_LOOK", 0.01)
    path = tmp_path / "policy.yaml"
    path.write_text("one")
    made = Run(path)
    made.watch.start()
    yield made
    made.watch.close()


def test_a_replaced_and_an_overwritten_file_become_revisions(run: Run) -> None:
    run.write("two")
    assert run.registered.get(timeout=PATIENCE) == "two"
    assert "revision 2 holds now; may reach something" in run.heard()
    run.path.write_text("three")
    assert run.registered.get(timeout=PATIENCE) == "three"


def test_a_change_that_changes_nothing_is_no_revision(run: Run) -> None:
    run.write("one")
    run.write("two")
    assert run.registered.get(timeout=PATIENCE) == "two"


def test_an_invalid_one_changes_nothing_and_is_told_once(run: Run) -> None:
    run.write("bad thing")
    said = run.heard()
    assert "can't be used" in said
    assert "not a policy: bad thing" in said
    run.path.touch()
    run.write("two")
    assert run.registered.get(timeout=PATIENCE) == "two"
    assert "revision 2" in run.heard()


def test_a_file_that_is_gone_changes_nothing(run: Run) -> None:
    run.path.unlink()
    run.write("two")
    assert run.registered.get(timeout=PATIENCE) == "two"


def test_what_the_gateway_refuses_is_told_and_may_be_tried_again(run: Run) -> None:
    run.refuses = True
    run.write("two")
    assert "the gateway refused" in run.heard()
    run.refuses = False
    run.path.touch()
    assert run.registered.get(timeout=PATIENCE) == "two"


def test_what_takes_effect_later_is_said(run: Run) -> None:
    run.write("two image")
    assert "revision 2" in run.heard()
    assert "image: takes effect at the next start" in run.heard()


class TestAsAnotherUser:
    """The file was opened as root; root is given up then. Needs root."""

    pytestmark = pytest.mark.root

    @pytest.fixture
    def file(self, tmp_path: Path) -> Iterator[PolicyFile]:
        folder = tmp_path / "private"
        folder.mkdir(mode=0o700)
        (folder / "policy.yaml").write_text("one")
        made = PolicyFile(folder / "policy.yaml")
        os.seteuid(65534)
        yield made
        os.seteuid(0)
        made.close()

    def test_what_is_written_into_the_same_file_is_seen(self, file: PolicyFile) -> None:
        before = file.version()
        os.seteuid(0)
        file.path.write_text("two!")
        os.seteuid(65534)
        assert file.version() != before
        assert file.read() == b"two!"

    def test_a_replaced_one_is_out_of_reach_and_that_is_known(self, file: PolicyFile) -> None:
        os.seteuid(0)
        new = file.path.with_name("new")
        new.write_text("two")
        new.replace(file.path)
        os.seteuid(65534)
        with pytest.raises(OutOfReachError):
            file.version()
        with pytest.raises(OutOfReachError):
            file.read()

    def test_a_replaced_one_that_may_not_be_read_is_out_of_reach(self, file: PolicyFile) -> None:
        os.seteuid(0)
        file.path.parent.chmod(0o755)
        new = file.path.with_name("new")
        new.write_text("two")
        new.chmod(0o600)
        new.replace(file.path)
        os.seteuid(65534)
        assert file.version() is not None
        with pytest.raises(OutOfReachError):
            file.read()
