"""Real programs under the allow list of system calls, in both of its variants, in our own images."""

import re

import pytest

from sandboxd.warden.client import WardenClient, read_exit
from tests.kit.warden import launch, spec_of

pytestmark = pytest.mark.docker
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PYTHON = """
import asyncio, hashlib, json, mmap, multiprocessing, os, sqlite3, ssl, subprocess, tempfile, threading
def square(x): return x * x
async def main():
    process = await asyncio.create_subprocess_exec("/bin/echo", "child", stdout=subprocess.PIPE)
    assert (await process.communicate())[0] == b"child\\n"
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await r.read() == b""
    try:
        await asyncio.open_connection("192.0.2.1", 443, ssl=ssl.create_default_context())
    except OSError as error:
        print(type(error).__name__)
asyncio.run(main())
threads = [threading.Thread(target=hashlib.sha256, args=(b"x",)) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
with sqlite3.connect(tempfile.mktemp()) as db: db.execute("create table t(x)")
with mmap.mmap(-1, 4096) as m: m[0] = 1
assert multiprocessing.get_context("spawn")
assert subprocess.run(["/bin/sh", "-c", "exit 3"]).returncode == 3
pid = os.fork()
if pid == 0: os._exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
print("python works")
"""
NODE = """
const {Worker} = require('worker_threads'), {execFileSync} = require('child_process');
const fs = require('fs'), net = require('net');
fs.writeFileSync('/tmp/x', 'y'); fs.chmodSync('/tmp/x', 0o755); fs.watch('/tmp').close();
if (execFileSync('/bin/echo', ['child']).toString() !== 'child\\n') throw 1;
const worker = new Worker('require("worker_threads").parentPort.postMessage(1)', {eval: true});
worker.on('message', () => {
  const server = net.createServer(s => s.end()).listen(0, '127.0.0.1', () => {
    net.connect(server.address().port).on('close', () => {
      server.close();
      fetch('http://192.0.2.1/').catch(e => { console.log(e.cause.code); console.log('node works'); });
    }).resume();
  });
});
"""
SHELL = """
set -e
cd /tmp; mkdir r; cd r; git init -q .; git config user.email a@b; git config user.name n
echo hi > f; git add f; git commit -qm m; git log --oneline | wc -l; git gc -q; git clone -q /tmp/r /tmp/s
tar -C /tmp -czf /tmp/r.tgz r; tar -C /tmp/s -xzf /tmp/r.tgz; find . -name f | xargs cat
seq 100 | sort -rn | head -1; cat <(echo process substitution); mkfifo p; (echo through > p &) ; cat p
(sleep 0.01 & wait); ulimit -n; curl -sS --max-time 5 http://192.0.2.1/ || echo curl $?
echo shell works
"""


def output(client: WardenClient, image: str, *argv: str, unix_sockets: bool = True) -> tuple[str, str]:
    spec = spec_of(image, unix_sockets=unix_sockets)
    running = launch(client, spec, *argv, env={"PATH": PATH, "HOME": "/home/sandbox"}, cwd="/home/sandbox")
    out = running.read_all().decode()
    errors = running.output[2].decode()
    assert read_exit(running.exit).code == 0, out + errors
    client.remove(spec.sandbox)
    return out, errors


@pytest.mark.parametrize("unix_sockets", [True, False])
def test_python(client: WardenClient, unix_sockets: bool) -> None:
    out, errors = output(client, "sandboxd/python:latest", "python3", "-c", PYTHON, unix_sockets=unix_sockets)
    assert out.endswith("python works\n"), errors
    assert errors == ""


@pytest.mark.parametrize("unix_sockets", [True, False])
def test_node(client: WardenClient, unix_sockets: bool) -> None:
    out, errors = output(client, "sandboxd/node:latest", "node", "-e", NODE, unix_sockets=unix_sockets)
    assert out.endswith("node works\n"), errors
    assert "ECONNRESET" in out or "UND_ERR_SOCKET" in out


def test_shell(client: WardenClient) -> None:
    out, errors = output(client, "sandboxd/shell:latest", "bash", "-c", SHELL)
    assert out.endswith("shell works\n"), out + errors
    assert "process substitution" in out
    assert re.search("curl (7|52|56)", out)  # a reset, seen at connect or after
