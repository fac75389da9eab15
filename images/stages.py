"""Run by mmdebstrap as its customize hook (`python -m images.stages ROOT WORK`): one root grows stage by stage.

After each stage the root is written as WORK/IMAGE.tar, its packages as WORK/IMAGE.list. apt is the host's; none is
inside.
"""

import os
import subprocess
import sys
from pathlib import Path

from images import recipes
from images.console import say

# Made anew by the engine or by nobody, or the builder's own.
LEFT_OUT = (
    *("./dev/*", "./proc/*", "./sys/*", "./run/*", "./tmp/*", "./var/tmp/*", "./var/log/*", "./var/cache/*"),
    *("./etc/hostname", "./etc/resolv.conf", "./etc/machine-id", "./etc/apt", "./var/lib/apt", "./*/dpkg.cfg.d/*"),
    *("./etc/*-", "./var/lib/dpkg/*-old", "./root/.*"),
)


def main(root: Path, work: Path) -> None:
    """All stages. Any failure ends mmdebstrap, and with it the build."""
    _add_user(root)
    _snapshot(root, work, recipes.BASE.image)
    for stage in recipes.LATER:
        say(f"{stage.image}: {' '.join(stage.packages)}")
        _install(root, stage)
        _snapshot(root, work, stage.image)


def _add_user(root: Path) -> None:
    """The images' user. The warden overrides it with a uid a sandbox; this one is for whoever runs them plainly."""
    uid = recipes.USER
    with (root / "etc/passwd").open("a") as passwd, (root / "etc/group").open("a") as group:
        passwd.write(f"sandbox:x:{uid}:{uid}:sandbox:/home/sandbox:/bin/sh\n")
        group.write(f"sandbox:x:{uid}:\n")
    (root / "home/sandbox").mkdir()
    os.chown(root / "home/sandbox", uid, uid)
    (root / "workspace").mkdir()
    # Where a server's package is installed, by whatever uid its build has. At run time the root is read-only.
    (root / "opt/server").mkdir()
    (root / "opt/server").chmod(0o1777)


def _install(root: Path, stage: recipes.Stage) -> None:
    env = os.environ | {"APT_CONFIG": os.environ["MMDEBSTRAP_APT_CONFIG"]}
    apt = ["apt-get", "--yes", f"-oDPkg::Chroot-Directory={root}", "install"]
    subprocess.run([*apt, *stage.packages], check=True, env=env)


def _snapshot(root: Path, work: Path, image: str) -> None:
    # Nothing may change its user anyway (no-new-privileges); what isn't there needs no such guard.
    subprocess.run(
        ["find", root, "-xdev", "-type", "f", "-perm", "/6000", "-exec", "chmod", "ug-s", "{}", "+"], check=True
    )
    query = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Package} ${Version}\n"]
    with (work / f"{image}.list").open("wb") as listing:
        subprocess.run(query, stdout=listing, check=True)
    excludes = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    tar = ["tar", "-C", root, "--numeric-owner", "--one-file-system", "--sort=name", *excludes]
    subprocess.run([*tar, "-cf", work / f"{image}.tar", "."], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
