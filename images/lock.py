"""The lock: every package's version in every image, an architecture. Called by `images/build`."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from images import recipes
from images.debian import Packages
from images.node import NodeLock

FILE = Path(__file__).parent / "lock.json"


@dataclass(slots=True)
class Lock:
    """`packages`: architecture → image → package → version; an image's are those it adds to the stage before it."""

    node: NodeLock
    packages: dict[str, dict[str, Packages]] = field(default_factory=dict[str, dict[str, Packages]])

    def pins(self, architecture: str) -> Packages:
        """Package → version over all images of an architecture; empty where the lock has none."""
        images = self.packages.get(architecture, {})
        return {name: version for image in images.values() for name, version in image.items()}

    def differences(self, architecture: str, found: Mapping[str, Packages]) -> list[str]:
        """What was built and isn't what the lock says: `package locked → found`."""
        pins = self.pins(architecture)
        built = {name: version for image in found.values() for name, version in image.items()}
        names = sorted(pins.keys() | built.keys())
        changed = [name for name in names if pins.get(name) != built.get(name)]
        return [f"{name} {pins.get(name, '(none)')} → {built.get(name, '(none)')}" for name in changed]


def read() -> Lock:
    """The lock of the repo."""
    raw = json.loads(FILE.read_text())
    return Lock(NodeLock(raw["node"]["version"], raw["node"]["sha256"]), raw["packages"])


def write(lock: Lock) -> None:
    """Rewrites the lock of the repo."""
    node = {"package": recipes.NODE_PACKAGE, "version": lock.node.version, "sha256": dict(lock.node.sha256)}
    document = {"suite": recipes.SUITE, "node": node, "packages": lock.packages}
    FILE.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def fingerprint() -> str:
    """sha256 of the lock; an image that carries it was built from it."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()


def recipe_fingerprint() -> str:
    """sha256 of what says how images are built."""
    names = ("recipes.py", "stages.py", "debian.py", "node.py", "build")
    return hashlib.sha256(b"\0".join((FILE.parent / name).read_bytes() for name in names)).hexdigest()
