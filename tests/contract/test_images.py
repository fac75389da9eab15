"""The built images do what they are for: `images/build --smoke`, command by command."""

import subprocess

import pytest

from images import recipes

pytestmark = pytest.mark.docker

HARDENED = (
    *("docker", "run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL"),
    *("--security-opt=no-new-privileges", "--user=65534:65534", "--tmpfs=/tmp", "--env=HOME=/tmp"),
)


@pytest.mark.parametrize("image", recipes.IMAGES)
def test_smoke(image: str):
    script = "\n".join(("set -e", *recipes.SMOKE[image]))
    done = subprocess.run([*HARDENED, f"sandboxd/{image}", "/bin/sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("image", recipes.IMAGES)
def test_nothing_in_it_changes_its_user_or_installs_packages(image: str):
    script = "find / -xdev -type f -perm /6000; ls /usr/bin/apt* /var/lib/apt 2>/dev/null; true"
    done = subprocess.run([*HARDENED, f"sandboxd/{image}", "/bin/sh", "-c", script], capture_output=True, text=True)
    assert done.stdout == ""
