"""The gate as an ordinary process: orders, failures, the lifeline, reaping, streams.

Outside a container it isn't PID 1, so it kills the workload's process group instead of everything.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.warden.server.orders import encode_orders

WAIT = 20.0  # far longer than anything here takes; a hang fails instead of hanging the run
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def orders(*argv: str, env: dict[str, str] | None = None, cwd: str = "/", port: int = 0) -> bytes:
    return encode_orders(argv, PATH if env is None else env, cwd, port)


def run(gate: Path, data: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([gate], input=data, capture_output=True, timeout=WAIT)


@contextmanager
def started(gate: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A gate that waits for its orders; killed at the end whatever happened."""
    pipe = subprocess.PIPE
    with subprocess.Popen([gate], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def lifeline() -> Iterator[socket.socket]:
    """The warden's listener; accepting it, and closing what was accepted, is the test's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT)
        yield listener


@contextmanager
def alive(gate: Path, *argv: str) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A workload running under a lifeline, and the warden's end of that."""
    with lifeline() as listener, started(gate) as process:
        assert process.stdin
        process.stdin.write(orders(*argv, port=listener.getsockname()[1]))
        process.stdin.flush()
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(WAIT)
            yield process, connection


def exit_code(connection: socket.socket) -> int:
    """The four bytes that the gate reports, and then the end."""
    report = b""
    while len(report) < 4 and (more := connection.recv(4 - len(report))):
        report += more
    assert len(report) == 4
    assert connection.recv(1) == b""
    return int.from_bytes(report)


def test_good_orders_run_with_exactly_this_environment_and_directory(gate: Path):
    env = {**PATH, "A": "one two", "EMPTY": ""}
    done = run(gate, orders("sh", "-c", 'env | grep -v "^_=\\|^PWD=\\|^SHLVL="; pwd', env=env, cwd="/usr"))
    assert done.returncode == 0
    assert sorted(done.stdout.decode().splitlines()) == sorted([f"PATH={PATH['PATH']}", "A=one two", "EMPTY=", "/usr"])


def test_environment_is_exact_to_the_byte(gate: Path):
    done = run(gate, orders("/bin/cat", "/proc/self/environ", env={"B": "2", "A": "é"}))
    assert done.stdout == "B=2\0A=é\0".encode()


def test_no_path_means_the_usual_one(gate: Path):
    assert run(gate, orders("true", env={})).returncode == 0


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_code_is_the_workloads(gate: Path, code: int):
    assert run(gate, orders("sh", "-c", f"exit {code}")).returncode == code


def test_death_by_signal_is_128_and_the_signal(gate: Path):
    assert run(gate, orders("sh", "-c", "kill -SEGV $$")).returncode == 128 + signal.SIGSEGV


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "the input ended"),
        (b"\0\0", "the input ended"),
        (orders("true")[:-1], "the input ended"),
        ((1 << 20 | 1).to_bytes(4), "longer than 1 MiB"),
        (b"\xff\xff\xff\xff", "longer than 1 MiB"),
        (b"\0\0\0\0", "don't begin with"),
        (orders("true").replace(b"xd1", b"xd2"), "don't begin with"),
    ],
)
def test_bad_orders_are_125(gate: Path, data: bytes, says: str):
    done = run(gate, data)
    assert done.returncode == 125
    assert done.stderr.startswith(b"sandboxd: bad orders: ")
    assert says in done.stderr.decode()
    assert done.stdout == b""


def test_missing_directory_is_126(gate: Path):
    done = run(gate, orders("true", cwd="/nowhere"))
    assert (done.returncode, done.stderr) == (126, b"sandboxd: /nowhere: No such file or directory\n")


@pytest.mark.parametrize("command", ["no-such-command", "/no/such/command", "/etc/passwd/x", ""])
def test_command_not_found_is_127(gate: Path, command: str):
    done = run(gate, orders(command))
    assert done.returncode == 127
    assert done.stderr == f"sandboxd: {command}: command not found in the image\n".encode()


@pytest.mark.parametrize("content", ["#!/bin/sh\n", "not a program\n"])
def test_not_executable_is_126(gate: Path, tmp_path: Path, content: str):
    program = tmp_path / "program"
    program.write_text(content)
    program.chmod(0o644 if content.startswith("#!") else 0o755)
    for command in (str(program), "program"):
        done = run(gate, orders(command, env={"PATH": f"{tmp_path}:/usr/bin"}))
        assert done.returncode == 126
        assert done.stderr.startswith(f"sandboxd: {command}: ".encode())


def test_a_missing_interpreter_is_named(gate: Path, tmp_path: Path):
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    done = run(gate, orders(str(program)))
    assert done.returncode == 127
    assert b"interpreter is not in the image" in done.stderr


def test_no_listener_for_the_lifeline_is_125(gate: Path):
    with lifeline() as listener:
        port = listener.getsockname()[1]
    done = run(gate, orders("true", port=port))
    assert done.returncode == 125
    assert done.stderr.startswith(b"sandboxd: no lifeline: ")


def test_input_behind_the_orders_reaches_the_workload_and_so_does_its_end(gate: Path):
    done = run(gate, orders("cat") + b"first\nsecond")
    assert (done.returncode, done.stdout) == (0, b"first\nsecond")


def test_output_ends_when_the_workload_closes_it_though_it_lives_on(gate: Path):
    with alive(gate, "sh", "-c", "echo out; exec >&- 2>&-; read line; exit 3") as (process, connection):
        assert process.stdin
        assert process.stdout
        assert process.stderr
        assert process.stdout.read() == b"out\n"
        assert process.stderr.read() == b""
        assert process.poll() is None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert exit_code(connection) == 3
        assert process.wait(WAIT) == 3


def test_exit_code_is_reported_over_the_lifeline(gate: Path):
    with alive(gate, "sh", "-c", "exit 9") as (process, connection):
        assert exit_code(connection) == 9
        assert process.wait(WAIT) == 9


def test_a_failed_start_is_reported_over_the_lifeline(gate: Path):
    with alive(gate, "no-such-command") as (process, connection):
        assert exit_code(connection) == 127
        assert process.wait(WAIT) == 127


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGKILL])
def test_bytes_on_the_lifeline_are_signals_for_the_workload(gate: Path, number: signal.Signals):
    with alive(gate, "sh", "-c", "echo ready; exec sleep 600") as (process, connection):
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        connection.send(bytes([0, 200]))  # no signals: ignored
        connection.send(bytes([number]))
        assert exit_code(connection) == 128 + number
        assert process.wait(WAIT) == 128 + number


def test_signals_go_to_the_whole_process_group(gate: Path):
    script = "trap 'wait; exit 5' TERM; sh -c 'trap \"echo inner; exit\" TERM; echo ready; sleep 600 & wait' & wait"
    with alive(gate, "sh", "-c", script) as (process, connection):
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        connection.send(bytes([signal.SIGTERM]))
        assert process.stdout.readline() == b"inner\n"
        assert exit_code(connection) == 5


def test_a_signal_to_the_gate_is_the_workloads(gate: Path):
    with alive(gate, "sh", "-c", "trap 'exit 6' TERM; echo ready; while :; do sleep 1 & wait; done") as (process, _):
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 6


def test_the_end_of_the_lifeline_kills_the_workload(gate: Path):
    with alive(gate, "sh", "-c", "trap '' TERM HUP INT; echo ready; sleep 600 & wait") as (process, connection):
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        connection.close()
        assert process.wait(WAIT) == 137
        assert process.stdout.read() == b""  # the pipe's end: nobody is left to hold it


def test_what_the_workload_leaves_behind_is_killed(gate: Path):
    done = run(gate, orders("sh", "-c", "sleep 600 & exit 4"))  # returns only when the pipes are closed
    assert done.returncode == 4


def test_orphans_are_reaped(gate: Path):
    script = "(true & true & true &) ; echo ready; read line"
    with alive(gate, "sh", "-c", script) as (process, _):
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert _becomes(lambda: len(children.read_text().split()) == 1)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait(WAIT) == 0


def _becomes(condition: Callable[[], bool]) -> bool:
    """Orphans end without an event that a test could wait for: ask, letting them run, a bounded number of times."""
    return any(condition() or os.sched_yield() for _ in range(1_000_000))


def test_the_workload_gets_no_descriptor_but_its_streams(gate: Path):
    with alive(gate, sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))") as (process, _):
        assert process.stdout
        # the fourth is the listing's own
        assert process.stdout.read() == b"['0', '1', '2', '3']\n"


def test_signals_are_reset_and_unblocked_in_the_workload(gate: Path):
    show = "grep -E '^Sig(Blk|Ign):' /proc/self/status"
    done = run(gate, orders("sh", "-c", f"exec {show}"))
    assert done.stdout.split() == [b"SigBlk:", b"0" * 16, b"SigIgn:", b"0" * 16]


def test_the_gate_is_undumpable(gate: Path):
    with alive(gate, "sh", "-c", "trap 'echo forwarded' USR1; echo ready; read line; read line") as (process, lifeline):
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        lifeline.send(bytes([signal.SIGUSR1]))
        assert process.stdout.readline() == b"forwarded\n", "the gate is past its start, its descriptors are closed"
        assert Path(f"/proc/{process.pid}/comm").read_text() == "sandboxd-gate\n"
        assert os.stat(f"/proc/{process.pid}/environ").st_uid == 0
        assert set(os.listdir(f"/proc/{process.pid}/fd")).isdisjoint({"0", "1", "2"})
