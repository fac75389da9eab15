"""TLS that is read: programs inside trust their sandbox's authority; a secret reaches only the host it is for."""

import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import servers
from tests.kit.command import Command, open_command
from tests.kit.h2_peers import H2Server
from tests.kit.https_server import Upstream
from tests.kit.left import wait_until_nothing
from tests.kit.site import Authority

pytestmark = pytest.mark.docker

NAME = "api.read.test"
SECRET = "s3cr3t-0f-th3-t3st"
POLICY = f"""
egress:
  rules:
    - id: api
      action: allow
      to: {{hosts: [{NAME}], ports: [443]}}
      proto: tls
      tls: {{handling: intercept}}
      http: [{{methods: [GET, POST], paths: ["/open/**"]}}]
      credentials: [{{secret: API_TOKEN, header: Authorization, format: "Bearer {{}}"}}]
"""
PYTHON = """
import json, os, sys, urllib.request, urllib.error
def ask(path, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(f"https://NAME/{path}", headers=headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return json.load(error)["reason"]
    except urllib.error.URLError as error:
        return type(error.reason).__name__
""".replace("NAME", NAME)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def place(authority: Authority) -> Iterator[Path]:
    """A folder that other users may pass through, with the roots that the operator adds and the policy."""
    path = Path(tempfile.mkdtemp(prefix="sandboxd-test-", dir="/var/tmp"))
    path.chmod(0o755)
    (path / "roots.pem").write_bytes(authority.pem)
    (path / "policy.yaml").write_text(POLICY)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def command(place: Path) -> Iterator[Command]:
    command = open_command(place, f'upstream_ca = "{place}/roots.pem"')
    command.scope.look()
    yield command
    assert wait_until_nothing(command.scope, 10) == set()


@pytest.fixture
def upstream(authority: Authority) -> Upstream:
    return Upstream(authority.server_context([NAME]))


@pytest.fixture
def run(place: Path, upstream: Upstream) -> Iterator[list[str]]:
    """`sandboxd run` up to the image."""
    secret = place / "token"
    secret.write_text(SECRET + "\n")
    with servers.open_server(upstream.serve) as port:
        yield [
            *("run", "--raw", "--policy", f"{place}/policy.yaml", "--pin", f"{NAME}=127.0.0.1:{port}"),
            *("--secret", f"API_TOKEN=file:{secret}"),
        ]


CURL = f"""
curl -sS -o /dev/null -w '%{{http_code}}\\n' https://{NAME}/open/a
curl -sS -w '%{{http_code}}\\n' https://{NAME}/closed | grep -o 'method_path\\|403'
curl -sS -w '%{{http_code}}\\n' -H "X-Other: $API_TOKEN" https://{NAME}/open/a | grep -o '"placeholder"\\|403'
"""
NODE = f"""
const ask = async (path, headers) => {{
  const answer = await fetch("https://{NAME}" + path, {{headers}});
  const text = await answer.text();
  console.log(answer.status === 200 ? 200 : JSON.parse(text).reason);
}};
(async () => {{
  await ask("/open/a", {{Authorization: "Bearer " + process.env.API_TOKEN}});
  await ask("/closed", {{}});
  await ask("/open/a", {{"X-Other": process.env.API_TOKEN}});
}})();
"""
PROGRAMS = {
    "curl": (["--image", "sandboxd/shell", "--", "sh", "-c", CURL], '200\nmethod_path\n403\n"placeholder"\n403\n'),
    "node": (["--image", "sandboxd/node", "--", "node", "-e", NODE], "200\nmethod_path\nplaceholder\n"),
    "python": (
        [
            *("--image", "sandboxd/python", "--", "python3", "-c"),
            PYTHON + "print(ask('open/a', Authorization='Bearer ' + os.environ['API_TOKEN']))\n"
            "print(ask('closed'))\nprint(ask('open/a', X_Other=os.environ['API_TOKEN']))",
        ],
        "200\nmethod_path\nplaceholder\n",
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_trust_it_and_have_only_a_placeholder(
    command: Command, run: list[str], upstream: Upstream, program: str
) -> None:
    arguments, expected = PROGRAMS[program]
    done = command.call(*run, *arguments)
    assert done.stdout == expected, done.stderr
    assert upstream.asked.count(b"GET ") == 1
    assert f"authorization: Bearer {SECRET}\r\n".encode() in upstream.asked
    records = command.audit()
    assert SECRET not in json.dumps(records) + done.stderr
    reasons = [record["reason"] for record in records if record["event"] == "request"][-3:]
    assert reasons == ["allowed", "method_path", "placeholder"]


def test_curl_speaks_http2(command: Command, place: Path, authority: Authority) -> None:
    server = H2Server(authority.server_context([NAME]))
    (place / "token").write_text(SECRET)
    curl = f"curl -sS -o /dev/null -w '%{{http_version}} %{{http_code}}\\n' https://{NAME}"
    ask = f"for path in open/a closed open/b; do {curl}/$path; done"
    with servers.open_server(server.serve) as port:
        done = command.call(
            *("run", "--raw", "--policy", f"{place}/policy.yaml", "--pin", f"{NAME}=127.0.0.1:{port}"),
            *("--secret", f"API_TOKEN=file:{place}/token", "--image", "sandboxd/shell", "--", "sh", "-c", ask),
        )
    assert done.stdout == "2 200\n2 403\n2 200\n", done.stderr
    assert [got.headers["authorization"] for got in server.asked] == [f"Bearer {SECRET}"] * 2


def test_the_secret_is_nowhere_inside(command: Command, run: list[str]) -> None:
    look = (
        "import glob, os\n"
        "ours = ['/proc/self/environ', '/proc/1/environ', *glob.glob('/.sandboxd/*'), *glob.glob('/etc/ssl/**')]\n"
        "for path in ours:\n"
        "    try: data = open(path, 'rb').read()\n"
        "    except OSError: continue\n"
        f"    print(path, {SECRET.encode()!r} in data)\n"
        "print(os.environ['API_TOKEN'])\n"
    )
    done = command.call(*run, "--image", "sandboxd/python", "--", "python3", "-c", look)
    assert "True" not in done.stdout
    assert "sandboxd-placeholder-" in done.stdout, done.stderr


def test_a_secret_rotates_and_a_new_gateway_is_trusted(
    command: Command, run: list[str], upstream: Upstream, place: Path
) -> None:
    script = PYTHON + "print('ready', flush=True)\nfor line in sys.stdin: print(ask(line.strip()), flush=True)\n"
    process = command.start(*run, "--image", "sandboxd/python", "--", "python3", "-c", script)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    said: list[str] = []
    rotated = threading.Event()

    def listen() -> None:
        for line in process.stderr:
            said.append(line.decode())
            if "new value holds" in said[-1]:
                rotated.set()

    listener = threading.Thread(target=listen)
    listener.start()

    def ask() -> str:
        process.stdin.write(b"open/a\n")
        process.stdin.flush()
        return process.stdout.readline().decode().strip()

    assert process.stdout.readline() == b"ready\n"
    assert ask() == "200"
    replaced = place / "token.new"
    replaced.write_text("another-v4lue\n")
    replaced.rename(place / "token")
    assert rotated.wait(20), said
    assert ask() == "200"
    assert b"Bearer another-v4lue" in upstream.asked
    os.kill(command.scope.roles(process.pid)["gateway"], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while (answer := ask()) != "200":
        assert time.monotonic() < deadline, (answer, said)
    process.stdin.close()
    assert process.wait(30) == 0
    listener.join(20)
    assert SECRET not in "".join(said)
    process.stdout.close()
    process.stderr.close()
