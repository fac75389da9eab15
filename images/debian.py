"""Debian roots by mmdebstrap: mirrors from the host's own apt configuration, versions pinned by the lock.

Called by `images/build`. No mirror is written down anywhere: which ones this host may use is its apt's business.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from images import recipes
from images.console import PROGRESS, BuildError, say

Packages = dict[str, str]
# Links instead of the package that makes them, which brings all of Perl along.
MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr"
CARRIED_SETTINGS = ("Acquire::http", "Acquire::https", "Acquire::Check-")


def architecture() -> str:
    """Debian's name of this machine's architecture."""
    return _output("dpkg", "--print-architecture").strip()


def sources() -> list[str]:
    """One-line apt sources of this host's Debian mirrors, for the suite that the images have. Raises BuildError."""
    targets = _index_targets()
    if not targets:
        say("apt's lists are empty: apt-get update")
        subprocess.run(["apt-get", "update", "-q"], stdout=sys.stderr, check=False)
        targets = _index_targets()
    lines = {line for target in targets if (line := _source(*target))}
    if not lines:
        raise BuildError("apt knows no Debian mirror", "expected an entry for Debian's main in /etc/apt/sources.list*")
    return sorted(lines)


def _index_targets() -> list[tuple[str, str, str]]:
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    text = _output("apt-get", "indextargets", "--format", form, "Created-By: Packages", "Origin: Debian")
    return [(uri, release, component) for uri, release, component in map(str.split, text.splitlines())]


def _source(uri: str, release: str, component: str) -> str | None:
    """The host's own suite replaced by the images'; backports and the like are none of them."""
    _, dash, pocket = release.partition("-")
    if component != "main" or pocket not in ("", "updates", "security"):
        return None
    return f"deb [signed-by={recipes.KEYRING}] {uri} {recipes.SUITE}{dash}{pocket} main"


def preferences(pins: Mapping[str, str]) -> str:
    """apt preferences that hold each package at its locked version, as long as a mirror has it."""
    return "\n".join(f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n" for name, version in pins.items())


def build(work: Path, pins: Mapping[str, str]) -> dict[str, Packages]:
    """All stages as `IMAGE.tar` in `work`; what each adds, package → version. Raises BuildError."""
    (work / "preferences").write_text(preferences(pins))
    command = ["mmdebstrap", "--mode=root", "--variant=essential", "--format=null"]
    command += [f"--include={','.join(recipes.BASE.packages)}"]
    command += [f"--dpkgopt=path-exclude={path}" for path in recipes.EXCLUDED]
    command += [f"--dpkgopt=path-include={path}" for path in recipes.INCLUDED]
    command += ["--dpkgopt=force-unsafe-io", *(f"--aptopt={option}" for option in _carried())]
    command += [f"--hook-dir={MERGED_USR}"]
    command += ['--setup-hook=mkdir -p "$1/etc/apt/preferences.d"']
    command += [f'--setup-hook=cp "{work}/preferences" "$1/etc/apt/preferences.d/lock"']
    command += [f'--customize-hook="{sys.executable}" -m images.stages "$1" "{work}"']
    command += [recipes.SUITE, "/dev/null", *sources()]
    say(f"Debian {recipes.SUITE}: essential packages (about half a minute)")
    _run(command, work / "mmdebstrap.log")
    return dict(_additions(work))


def _additions(work: Path) -> Iterator[tuple[str, Packages]]:
    before: set[str] = set()
    for stage in (recipes.BASE, *recipes.LATER):
        lines = (work / f"{stage.image}.list").read_text().splitlines()
        yield stage.image, dict(line.split(" ") for line in lines if line not in before)
        before.update(lines)


def _run(command: list[str], log: Path) -> None:
    """mmdebstrap, its output in a log; the stages' own progress lines pass."""
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    pipe = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with log.open("wb") as kept, subprocess.Popen(command, env=env, **pipe) as process:
        for line in process.stdout or ():
            kept.write(line)
            if line.startswith(PROGRESS.encode()):
                say(line.decode().removeprefix(PROGRESS).strip())
    if process.returncode:
        last = "\n  ".join(line[:200] for line in log.read_text(errors="replace").splitlines()[-15:])
        hint = f"can this host's mirrors be reached, and do they carry {recipes.SUITE}? `apt-get update` tells"
        raise BuildError(f"mmdebstrap failed with {process.returncode}; it ended with\n  {last}", hint)


def _carried() -> Iterable[str]:
    """The host's own ways to its mirrors (proxies, certificates, clocks), which mmdebstrap doesn't read."""
    for line in _output("apt-config", "dump").splitlines():
        if line.startswith(CARRIED_SETTINGS) and not line.endswith('"";'):
            yield line.removesuffix(";")


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise BuildError(
            f"{command[0]} is missing", "images are built on a Debian host, set up by deploy/setup"
        ) from None
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{' '.join(command)} failed: {error.stderr.strip()}", "see apt's own message") from None
