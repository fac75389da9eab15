"""What goes wrong before or while a server runs: a clear error with the next step, a stable exit code, nothing left."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.command import Command, open_command
from tests.kit.left import wait_until_nothing

pytestmark = pytest.mark.docker
PYTHON = ("--image", "sandboxd/python", "--", "python3", "-c")
MIB = 1024 * 1024


@pytest.fixture
def bare(folder: Path) -> Iterator[Command]:
    """A command that needs no package image; nothing of it may be left."""
    command = open_command(folder)
    yield command
    assert wait_until_nothing(command.scope, 10) == set()


def policy(folder: Path, text: str) -> str:
    path = folder / "policy.yaml"
    path.write_text(text)
    return str(path)


BAD_POLICIES = {
    "unknown key": ("egress:\n  rules: []\n  alow: []\n", "alow"),
    "unknown key in a rule": (
        "egress:\n  rules:\n    - {id: a, action: allow, to: {hosts: [a.test], ports: [443]}, proto: tls, host: b}\n",
        "host",
    ),
    "empty hosts": ("egress:\n  rules:\n    - {id: a, action: allow, to: {hosts: []}}\n", "hosts"),
    "bare wildcard": (
        'egress:\n  rules:\n    - {id: a, action: allow, to: {hosts: ["*"], ports: [443]}, proto: tls}\n', "*"
    ),
    "unknown mode": ("egress:\n  mode: relaxed\n  rules: []\n", "mode"),
    "two rules of one id": (
        "egress:\n  rules:\n"
        + "    - {id: a, action: allow, to: {hosts: [a.test], ports: [443]}, proto: tls}\n" * 2,
        "a",
    ),
    "duplicate key": ("egress:\n  rules: []\negress:\n  rules: []\n", "egress"),
    "not yaml": ("egress: [\n", "policy.yaml"),
    "empty": ("", "policy.yaml"),
    "a capability": ("capabilities: [NET_ADMIN]\negress: {rules: []}\n", "capabilities"),
    "not supported yet": (
        "egress:\n  rules:\n"
        "    - {id: a, action: ask, to: {hosts: [a.test], ports: [443]}, proto: tls}\n",
        "not supported yet",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_POLICIES)
def test_a_policy_that_fails_to_load_starts_nothing(bare: Command, tmp_path: Path, name: str) -> None:
    text, expected = BAD_POLICIES[name]
    done = bare.call("run", "--policy", policy(tmp_path, text), *PYTHON, "print('started')")
    assert (done.returncode, done.stdout) == (2, "")
    assert "policy.yaml" in done.stderr
    assert expected in done.stderr


def test_policy_file_missing(bare: Command, tmp_path: Path) -> None:
    done = bare.call("run", "--policy", str(tmp_path / "none.yaml"), *PYTHON, "print('started')")
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.yaml" in done.stderr


def test_unknown_option(bare: Command) -> None:
    done = bare.call("run", "--allow-all", *PYTHON, "print('started')")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--allow-all" in done.stderr


def test_image_missing(bare: Command) -> None:
    done = bare.call("run", "--image", "no-such-image:here", "--", "true")
    assert (done.returncode, done.stdout) == (125, "")
    assert "no-such-image:here" in done.stderr


def test_engine_not_running(folder: Path) -> None:
    command = open_command(folder, f'docker_socket = "{folder}/no-docker.sock"')
    done = command.call("run", *PYTHON, "print('started')")
    assert (done.returncode, done.stdout) == (125, "")
    assert "docker" in done.stderr.lower()


def test_without_privileges(bare: Command) -> None:
    # Not by starting as another user: the interpreter may lie where only root can read.
    code = (
        "import os, sys, tomllib; from sandboxd.main import main; import sandboxd.cli.run; os.setuid(65534); "
        "sys.exit(main(['run', '--image', 'sandboxd/python', '--', 'true']))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=bare.environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (125, "")
    assert "root" in done.stderr


def test_workspace_missing(bare: Command, tmp_path: Path) -> None:
    done = bare.call("run", "--workspace", str(tmp_path / "none"), *PYTHON, "print('started')")
    assert (done.returncode, done.stdout) == (2, "")
    assert str(tmp_path / "none") in done.stderr


@pytest.mark.parametrize("forbidden", ["/", "/proc", "/etc", "/run", "/var/lib/docker", "/dev"])
def test_workspace_forbidden(bare: Command, forbidden: str) -> None:
    done = bare.call("run", "--workspace", forbidden, *PYTHON, "print('started')")
    assert (done.returncode in (2, 125), done.stdout) == (True, "")
    assert f"{forbidden} can't be mounted" in done.stderr


def test_workspace_with_a_socket(bare: Command, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "deep").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "deep" / "agent.sock"))
        done = bare.call("run", "--workspace", str(tmp_path), *PYTHON, "print('started')")
    assert (done.returncode in (2, 125), done.stdout) == (True, "")
    assert "deep/agent.sock" in done.stderr


def test_command_not_found(bare: Command) -> None:
    done = bare.call("run", "--image", "sandboxd/python", "--", "no-such-command")
    assert (done.returncode, done.stdout) == (127, "")
    assert "no-such-command" in done.stderr


def test_command_not_executable(bare: Command) -> None:
    done = bare.call("run", "--image", "sandboxd/python", "--", "/etc/passwd")
    assert (done.returncode, done.stdout) == (126, "")
    assert "/etc/passwd" in done.stderr


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(0)", 0), ("raise SystemExit(77)", 77)])
def test_exit_code_is_the_servers(bare: Command, code: str, expected: int) -> None:
    assert bare.call("run", *PYTHON, code).returncode == expected


def test_death_by_signal_is_told(bare: Command) -> None:
    assert bare.call("run", *PYTHON, "import os; os.kill(os.getpid(), 15)").returncode == 143


def test_signals_are_forwarded(bare: Command) -> None:
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(9)); print('{}', flush=True); signal.pause()"
    with bare.start("run", "--raw", *PYTHON, code) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"{}\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait() == 9


def test_rubbish_on_stdout_is_dropped_and_counted(bare: Command) -> None:
    message = json.dumps({"jsonrpc": "2.0", "method": "notifications/fine"})
    code = f"import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\n[1]\\nhello\\n'); print({message!r}); print('{{}}')"
    done = bare.call("run", *PYTHON, code)
    assert (done.returncode, done.stdout) == (0, message + "\n")
    assert "not JSON-RPC" in done.stderr


def test_rubbish_passes_with_raw(bare: Command) -> None:
    done = bare.call("run", "--raw", *PYTHON, "print('hello')")
    assert (done.returncode, done.stdout) == (0, "hello\n")


def test_stderr_passes_and_messages_of_our_own_go_there_only(bare: Command) -> None:
    done = bare.call("run", *PYTHON, "import sys; print('from the server', file=sys.stderr)")
    assert (done.returncode, done.stdout) == (0, "")
    assert "from the server" in done.stderr


def test_a_server_that_never_answers_ends_with_its_client(bare: Command) -> None:
    with bare.start("run", *PYTHON, "import time; time.sleep(3600)") as running:
        assert running.stdin is not None
        running.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}\n')
        running.stdin.close()
        assert running.wait(60) != 0


def test_a_line_of_100_mb_from_the_server(bare: Command) -> None:
    """Memory stays bounded; what comes after it still passes."""
    message = json.dumps({"jsonrpc": "2.0", "method": "notifications/after"})
    code = (
        "import sys\nfor _ in range(100): sys.stdout.write('x' * 1048576)\n"
        f"print(); print({message!r}, flush=True); sys.stdin.read()"
    )
    with bare.start("run", *PYTHON, code) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline().decode() == message + "\n"
        assert peak_memory(running.pid) < 128 * MIB
        running.stdin.close()
        running.wait()


def test_a_line_of_100_mb_from_the_client(bare: Command) -> None:
    """It is answered with an error or dropped; the session goes on."""
    message = json.dumps({"jsonrpc": "2.0", "method": "notifications/after"})
    code = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    with bare.start("run", *PYTHON, code) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for _ in range(100):
            running.stdin.write(b"x" * MIB)
        running.stdin.write(b"\n" + message.encode() + b"\n")
        running.stdin.flush()
        while (line := running.stdout.readline()) != message.encode() + b"\n":
            assert line, "the session ended"
        assert peak_memory(running.pid) < 128 * MIB
        running.stdin.close()
        running.wait()


def peak_memory(pid: int) -> int:
    """The largest resident size so far, in bytes."""
    with open(f"/proc/{pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def test_client_killed(bare: Command) -> None:
    with bare.start("run", *PYTHON, "import sys; print('{}', flush=True); sys.stdin.read()", "--raw") as running:
        bare.scope.look()
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
