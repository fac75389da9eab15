"""Node for the node image, out of a wheel that carries its binary and npm. Called by `images/build`.

pip fetches it with the host's own settings, and checks it against the lock's hashes.
"""

import hashlib
import io
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from images import recipes
from images.console import BuildError, say

LEFT_OUT = ("lib/node_modules/npm/docs/", "lib/node_modules/npm/man/", "lib/node_modules/corepack/")
LINKS = {"npm": "npm-cli.js", "npx": "npx-cli.js"}


@dataclass(frozen=True, slots=True)
class NodeLock:
    """The wheel's version, and its sha256 an architecture."""

    version: str
    sha256: Mapping[str, str] = field(default_factory=dict[str, str])


def fetch(folder: Path, lock: NodeLock, *, locked: bool) -> tuple[Path, NodeLock]:
    """The locked wheel; unless `locked` the series' newest when the index no longer has it. Raises BuildError."""
    say(f"node: {recipes.NODE_PACKAGE} {lock.version} (60 MB)")
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in lock.sha256.values())
    requirement = folder / "node.txt"
    requirement.write_text(f"{recipes.NODE_PACKAGE}=={lock.version} {hashes}\n")
    wheel, why = _download(folder, "--require-hashes", "-r", str(requirement))
    if wheel:
        return wheel, lock
    if locked or "DO NOT MATCH THE HASHES" in why:
        raise BuildError(f"the locked Node can't be had; pip says\n  {why}", "--refresh writes a new lock")
    say(f"WARNING node: {lock.version} is not to be had, taking the newest of {recipes.NODE_SERIES}")
    return newest(folder)


def newest(folder: Path, architecture: str = "") -> tuple[Path, NodeLock]:
    """The series' newest wheel of `architecture` ("": this machine's), and what a lock says of it."""
    platform = ["--platform", recipes.NODE_PLATFORMS[architecture]] if architecture else []
    wheel, why = _download(folder, *platform, f"{recipes.NODE_PACKAGE}=={recipes.NODE_SERIES}.*")
    if not wheel:
        raise BuildError(f"Node can't be had; pip says\n  {why}", "does `pip download` work on this host?")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return wheel, NodeLock(wheel.name.split("-")[1], {architecture: digest})


def _download(folder: Path, *what: str) -> tuple[Path | None, str]:
    """The one wheel that pip fetched, or None and pip's last words."""
    target = folder / f"wheel-{len(list(folder.glob('wheel-*')))}"
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "-q"]
    done = subprocess.run(
        [_python_with_pip(), "-m", "pip", "download", *options, "-d", target, *what], capture_output=True, text=True
    )
    if done.returncode:
        errors = [line[:300] for line in done.stderr.splitlines() if not line.startswith("WARNING: Location")]
        return None, "\n  ".join(errors[-8:])
    return next(target.glob("*.whl")), ""


def _python_with_pip() -> str:
    for python in (sys.executable, str(Path(__file__).parents[1] / ".venv/bin/python"), "/usr/bin/python3"):
        if Path(python).exists() and not subprocess.run([python, "-m", "pip", "-V"], capture_output=True).returncode:
            return python
    raise BuildError("no Python here has pip", "run deploy/setup, which makes .venv, or install python3-pip")


def add_to(root: Path, wheel: Path) -> None:
    """Node, npm and npx into the tar `root`, under /usr/local."""
    with tarfile.open(root, "a") as tar, zipfile.ZipFile(wheel) as archive:
        for name, entry in _members(archive):
            data = archive.read(entry)
            executable = name.startswith("bin/") or "/bin/" in name
            member = _member(f"./usr/local/{name}", tarfile.REGTYPE, 0o755 if executable else 0o644)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for link, script in LINKS.items():
            member = _member(f"./usr/local/bin/{link}", tarfile.SYMTYPE, 0o777)
            member.linkname = f"../lib/node_modules/npm/bin/{script}"
            tar.addfile(member)


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    for entry in archive.infolist():
        _, _, name = entry.filename.partition("/")
        wanted = name == "bin/node" or name.startswith(("lib/node_modules/", "share/licenses"))
        if wanted and not entry.is_dir() and not name.startswith(LEFT_OUT):
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise BuildError(f"a link in the Node wheel: {entry.filename}", "this version needs a look by hand")
            yield name, entry


def _member(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = kind, mode
    return member
