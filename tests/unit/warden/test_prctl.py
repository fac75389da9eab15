"""What a forked process drops of the process it came from."""

import subprocess
import sys

CODE = """
import os, subprocess; secret = b"hunter" + b"2"
from sandboxd.warden.server import prctl
os.environ["LATER"] = "also-" + secret.decode()
prctl.forget_environment()
stack = next(line for line in open("/proc/self/maps") if "[stack]" in line).split()[0]
begin, end = (int(part, 16) for part in stack.split("-"))
with open("/proc/self/mem", "rb") as memory:
    memory.seek(begin)
    print("on the stack:", memory.read(end - begin).count(secret))
print("environ:", open("/proc/self/environ", "rb").read().count(secret), sorted(os.environ))
print("child:", subprocess.run(["env"], capture_output=True).stdout.count(secret))
"""


def test_the_callers_environment_is_forgotten() -> None:
    environment = {"TOKEN": "hunter2", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["on the stack: 0", "environ: 0 ['LANG', 'PATH']", "child: 0"]
