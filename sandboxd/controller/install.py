"""The commands that install a package inside its sealed container. Text only; `packages` and `builds` use it.

Everything that a tool says goes to stderr. Stdout carries one line: MARK and a JSON object of what was installed. Then
the installer waits for its stdin to end, since a container is committed while it runs. Its files in SCRATCH (settings,
certificates, caches) are not part of the image.
"""

import hashlib
from collections.abc import Sequence

ROOT = "/opt/server"
SCRATCH = "/opt/build"
CERTIFICATES = f"{SCRATCH}/ca.pem"
CONSTRAINTS = f"{SCRATCH}/constraints.txt"
NPM_SETTINGS = f"{SCRATCH}/npmrc"
MARK = b"sandboxd-package "

_PIP = r"""
set -eu
umask 022
requirement=$1 name=$2 collect=$3
shift 3
mkdir -p /opt/build/tmp
export TMPDIR=/opt/build/tmp
python3 -m venv --without-pip /opt/server >&2
pip --python /opt/server/bin/python install --no-input --no-cache-dir --disable-pip-version-check \
    --require-virtualenv --progress-bar off --report /opt/build/report.json "$@" -- "$requirement" >&2
# by the image's interpreter: that of the environment runs code of what was installed (.pth files) as it starts
python3 -I -c "$collect" "$name" /opt/build/report.json /opt/server/lib/python3*/site-packages >/opt/build/result
rm -rf /opt/build/tmp /opt/build/report.json
cat /opt/build/result
rm /opt/build/result
exec cat >/dev/null
"""

_PIP_COLLECT = r"""
import json, sys
from importlib.metadata import distributions
wanted, report, packages = sys.argv[1:]
lock = []
for item in json.load(open(report))["install"]:
    archive = item["download_info"].get("archive_info", {})
    digest = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").partition("sha256=")[2]
    name, version = item["metadata"]["name"], item["metadata"]["version"]
    lock.append({"name": name, "version": version, "hash": "sha256:" + digest if digest else ""})
(package,) = distributions(name=wanted, path=[packages])
scripts = [entry.name for entry in package.entry_points if entry.group == "console_scripts"]
result = {"lock": lock, "programs": {script: "/opt/server/bin/" + script for script in scripts}}
print("sandboxd-package " + json.dumps(result))
"""

_NPM = r"""
set -eu
umask 022
requirement=$1 name=$2 collect=$3
shift 3
mkdir -p /opt/build/tmp
export TMPDIR=/opt/build/tmp
cd /opt/server
npm install --cache /opt/build/tmp/npm --no-audit --no-fund --omit=dev --save-exact "$@" -- \
    "$requirement" >&2
node -e "$collect" "$name" >/opt/build/result
rm -rf /opt/build/tmp
cat /opt/build/result
rm /opt/build/result
exec cat >/dev/null
"""

_NPM_COLLECT = r"""
const fs = require("fs");
const name = process.argv[1];
const read = (file) => JSON.parse(fs.readFileSync(file, "utf8"));
const packages = Object.entries(read("/opt/server/package-lock.json").packages).filter(([path]) => path);
const lock = packages.map(([path, entry]) => ({
  name: entry.name ?? path.split("node_modules/").pop(), version: entry.version ?? "", hash: entry.integrity ?? "",
}));
const bin = read(`/opt/server/node_modules/${name}/package.json`).bin ?? {};
const names = typeof bin === "string" ? [name.split("/").pop()] : Object.keys(bin);
const programs = Object.fromEntries(names.map((bin) => [bin, `/opt/server/node_modules/.bin/${bin}`]));
console.log("sandboxd-package " + JSON.stringify({ lock, programs }));
"""

FINGERPRINT = hashlib.sha256("\0".join((_PIP, _PIP_COLLECT, _NPM, _NPM_COLLECT)).encode()).hexdigest()[:12]


def pip_command(requirement: str, name: str, *, constrained: bool, scripts: bool, trusted: Sequence[str]) -> list[str]:
    """Into a virtual environment, of wheels alone unless `scripts`: a source distribution runs code. `trusted`: hosts
    that the host's own pip speaks plain HTTP to."""
    flags = ["-c", CONSTRAINTS] if constrained else []
    flags += [] if scripts else ["--only-binary", ":all:"]
    flags += [word for host in trusted for word in ("--trusted-host", host)]
    return ["/bin/sh", "-c", _PIP, "install", requirement, name, _PIP_COLLECT, *flags]


def npm_command(requirement: str, name: str, *, scripts: bool) -> list[str]:
    """Into a project of its own, without install scripts unless `scripts`."""
    return [
        "/bin/sh",
        "-c",
        _NPM,
        "install",
        requirement,
        name,
        _NPM_COLLECT,
        *([] if scripts else ["--ignore-scripts"]),
    ]
