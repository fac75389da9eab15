"""The relay between a client and a workload that the test plays both: bytes, order, bounds, ends."""

import json
import os
import signal
import socket
import threading

import pytest

from sandboxd import channel, limits
from sandboxd.controller.relay import forwarded_signals, open_client_ends
from sandboxd.errors import SandboxdError
from sandboxd.mcp.connections.envelope import Envelope
from sandboxd.warden.protocol import Exited
from tests.kit.attach import PATIENCE, Bench, frame, open_bench


def request(id: int, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "x", "params": params}).encode() + b"\n"


def result(id: int, value: object = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": value}).encode() + b"\n"


def in_thread(function: object, *args: object) -> threading.Thread:
    thread = threading.Thread(target=function, args=args, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_messages_pass_unchanged_both_ways() -> None:
    odd = b' {"jsonrpc" : "2.0","method":"n", "params":{"x":"\\u00e9\xc3\xa9"} }\r\n'
    with open_bench() as bench:
        bench.says(odd)
        assert bench.reads(len(odd)) == odd
        bench.writes(odd)
        assert bench.hears_line() == odd


def test_messages_cut_anywhere_come_out_whole() -> None:
    lines = request(1) + request(2)
    with open_bench() as bench:
        for byte in lines:
            bench.says(bytes([byte]))
        assert bench.reads(len(lines)) == lines
        answers = result(1) + result(2)
        for byte in b"".join(frame(1, bytes([b])) for b in answers):
            bench.attach.sendall(bytes([byte]))
        assert bench.hears(len(answers)) == answers


def test_both_sides_ask_at_once_with_many_in_flight() -> None:
    ours, theirs = b"".join(map(request, range(5000))), b"".join(map(request, range(9000, 14000)))
    with open_bench() as bench:
        threads = [in_thread(bench.says, ours), in_thread(bench.attach.sendall, frame(1, theirs))]
        seen: list[bytes] = []
        reader = in_thread(lambda: seen.append(bench.reads(len(ours))))
        assert bench.hears(len(theirs)) == theirs
        for thread in (*threads, reader):
            thread.join(PATIENCE)
        assert seen == [ours]


def test_sixteen_mebibytes_pass_and_one_byte_more_does_not() -> None:
    empty = len(result(1, "")) - 1
    just, over = result(1, "x" * (limits.MCP_MESSAGE - empty)), result(2, "x" * (limits.MCP_MESSAGE - empty + 1))
    with open_bench() as bench:
        writer = in_thread(bench.writes, just + over)
        assert bench.hears(len(just)) == just
        error = json.loads(bench.hears_line())
        assert (error["id"], error["error"]["code"]) == (2, -32050)
        writer.join(PATIENCE)
        bench.writes(result(3))
        assert bench.hears_line() == result(3)
        assert "too long" in bench.hears_complaint()


def test_too_long_a_request_is_answered_and_never_reaches_the_workload() -> None:
    with open_bench() as bench:
        sender = in_thread(bench.says, request(5, blob="x" * limits.MCP_MESSAGE) + request(6))
        assert json.loads(bench.hears_line())["id"] == 5
        assert bench.reads(len(request(6))) == request(6)
        sender.join(PATIENCE)


def test_rubbish_is_dropped_counted_and_said_once() -> None:
    with open_bench() as bench:
        bench.writes(b"Listening...\n" * 3 + result(1) + b"bye")
        assert bench.hears_line() == result(1)
        bench.ends(0)
        assert bench.result() == Exited(0)
        said = os.read(bench.client_err, 4096).decode()
        assert said.count("not JSON-RPC") == 1
        assert "4 lines" in said
        assert "Listening" not in said
        assert bench.relay.dropped == 4


def test_the_tap_sees_every_envelope_that_passes() -> None:
    seen: list[tuple[str, Envelope]] = []
    with open_bench(tap=lambda side, envelope: seen.append((side, envelope))) as bench:
        bench.says(b"rubbish\n" + request(1))
        bench.reads(len(request(1)))
        bench.writes(result(1))
        bench.hears(len(result(1)))
        bench.ends(0)
        bench.result()
    assert [(side, e.kind, e.id) for side, e in seen] == [("client", "request", 1), ("server", "response", 1)]


def test_stderr_passes_and_its_end_is_kept() -> None:
    with open_bench() as bench:
        bench.complains(b"no newline, \xff bytes")
        assert os.read(bench.client_err, 100) == b"no newline, \xff bytes"
        bench.complains(b"a" * limits.STDERR_RING * 3 + b"the end\n")
        assert bench.hears_complaint().endswith("the end\n")
        assert bytes(bench.relay.last_stderr).endswith(b"the end\n")
        assert len(bench.relay.last_stderr) <= 2 * limits.STDERR_RING


def test_a_terminal_does_not_obey_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: True)
    said = "\x1b]52;c;ZXZpbA==\x07ok\t\u009b2J\u202egrün\r\n".encode() + b"\xff\n"
    with open_bench() as bench:
        for byte in said:
            bench.writes(bytes([byte]), stream=2)
        bench.ends(0)
        bench.result()
        shown = os.read(bench.client_err, 4096).decode()
    assert shown == "\\x1b]52;c;ZXZpbA==\\x07ok\t\\x9b2J\\u202egrün\\x0d\n\\xff\n"


def test_a_client_that_never_reads_stderr_does_not_block_messages() -> None:
    with open_bench() as bench:
        for _ in range(40):
            bench.complains(b"e" * 100_000)
        bench.writes(result(1))
        assert bench.hears_line() == result(1)
        assert bench.relay.client.stderr.pending <= limits.STREAM_BUFFER + 100_000


def test_a_client_that_does_not_read_makes_the_workload_wait_and_loses_nothing() -> None:
    message = result(1, "x" * 100_000)
    with open_bench() as bench:
        bench.attach.setblocking(False)
        sent = bytearray()
        wire = frame(1, message * 300)
        while len(sent) < len(wire):
            try:
                sent += wire[len(sent) : len(sent) + bench.attach.send(wire[len(sent) : len(sent) + 65536])]
            except BlockingIOError:
                if bench.relay.client.stdout.pending >= limits.STREAM_BUFFER:
                    break
        assert len(sent) < len(wire)
        assert bench.relay.client.stdout.pending <= limits.STREAM_BUFFER + len(message) + 65536
        # the other way still works, though nobody reads
        bench.says(request(1))
        bench.attach.settimeout(PATIENCE)
        assert bench.reads(len(request(1))) == request(1)
        rest = in_thread(bench.attach.sendall, wire[len(sent) :])
        assert bench.hears(300 * len(message)) == message * 300
        rest.join(PATIENCE)


def test_a_workload_that_does_not_read_makes_the_client_wait() -> None:
    with open_bench() as bench:
        os.set_blocking(bench.client_in, False)
        data = request(1, x="y" * 1000) * 20_000
        sent = 0
        while bench.relay._to_server.pending < limits.STREAM_BUFFER:
            try:
                sent += os.write(bench.client_in, data[sent : sent + 65536])
            except BlockingIOError:
                continue
        bench.writes(result(1))
        assert bench.hears_line() == result(1)
        writer = in_thread(bench.says, data[sent:])
        assert bench.reads(len(data)) == data
        writer.join(PATIENCE)


def test_answers_that_nobody_reads_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_MESSAGE", 10_000)
    monkeypatch.setattr(limits, "STREAM_BUFFER", 10_000)
    with open_bench() as bench:
        bench.says(b"x\n" * 5000)
        bench.says(request(1))
        assert bench.reads(len(request(1))) == request(1)
        assert bench.relay.client.stdout.pending <= 20_200


def test_end_of_stdin_closes_the_workloads_and_then_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STOP_EOF", 0.05)
    with open_bench() as bench:
        notice = b'{"jsonrpc":"2.0","method":"n"}\n'
        bench.says(notice)
        bench.hangs_up()
        assert bench.reads(1 << 20) == notice  # up to the end
        assert bench.control.stopped.wait(PATIENCE)
        assert bench.result() == Exited(143)


def test_who_still_listens_gets_the_answers_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STOP_EOF", 0.05)
    with open_bench() as bench:
        bench.says(request(1) + request(2))
        bench.hangs_up()
        assert bench.reads(1 << 20) == request(1) + request(2)
        assert bench.relay._deadline is not None
        bench.writes(result(1) + result(2))
        assert bench.hears(len(result(1)) * 2) == result(1) + result(2)
        assert bench.control.stopped.wait(PATIENCE)  # now that nothing is owed any more


def test_who_is_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STOP_EOF", 0.05)
    with open_bench() as bench:
        bench.says(request(1))
        bench.hangs_up()
        assert bench.reads(1 << 20) == request(1)
        os.close(bench.client_out)
        bench.client_out = -1
        assert bench.control.stopped.wait(PATIENCE)


def test_answers_that_never_come_are_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STOP_ANSWERS", 0.05)
    with open_bench() as bench:
        bench.says(request(1))
        bench.hangs_up()
        assert bench.control.stopped.wait(PATIENCE)


def test_a_workload_that_ends_on_its_own_is_not_stopped() -> None:
    with open_bench() as bench:
        bench.hangs_up()
        assert bench.reads(1) == b""
        bench.writes(result(1))
        bench.ends(3)
        assert bench.result() == Exited(3)
        assert not bench.control.stopped.is_set()
        assert bench.hears_line() == result(1)


def test_a_client_that_vanishes_stops_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STOP_EOF", 0.05)
    with open_bench() as bench:
        os.close(bench.client_out)
        bench.client_out = -1
        assert bench.control.stopped.wait(PATIENCE)
        assert bench.result() == Exited(143)


def test_output_written_before_the_end_arrives() -> None:
    data = result(1, "z" * 3_000_000)
    with open_bench() as bench:
        writer = in_thread(lambda: (bench.writes(data), bench.ends(0)))
        assert bench.hears(len(data)) == data
        writer.join(PATIENCE)
        assert bench.result() == Exited(0)


def test_the_exit_code_may_come_before_the_last_output() -> None:
    with open_bench() as bench:
        channel.send(bench.exit, Exited(4))
        bench.writes(result(1))
        assert bench.hears_line() == result(1)
        bench.attach.close()
        assert bench.result() == Exited(4)


def test_a_client_that_takes_nothing_after_the_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DRAIN", 0.05)
    with open_bench() as bench:
        bench.writes(result(1, "z" * 300_000))
        bench.ends(0)
        assert bench.result() == Exited(0)


def test_a_workload_that_can_not_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STOP_EOF", "STOP_TERM", "STOP_LOST"):
        monkeypatch.setattr(limits, name, 0.02)
    with open_bench() as bench:
        bench.control.on_stop = lambda: None
        bench.hangs_up()
        error = bench.result()
        assert isinstance(error, SandboxdError)
        assert error.code == "unstoppable"


def test_the_warden_dies() -> None:
    with open_bench() as bench:
        bench.exit.close()
        error = bench.result()
        assert isinstance(error, SandboxdError)
        assert (error.code, error.exit_code) == ("warden_gone", 125)


def test_a_stream_without_frames_is_an_error() -> None:
    with open_bench() as bench:
        bench.attach.sendall(b"HTTP/1.1 500 Oops\r\n")
        error = bench.result()
        assert isinstance(error, SandboxdError)
        assert error.code == "attach_stream"


def test_raw_passes_bytes_and_waits_for_the_workload() -> None:
    with open_bench(raw=True) as bench:
        bench.says(b"no line \0\xff")
        assert bench.reads(10) == b"no line \0\xff"
        bench.writes(b"neither here")
        assert bench.hears(12) == b"neither here"
        bench.hangs_up()
        assert bench.reads(1) == b""
        assert bench.relay._deadline is None  # the end of input is not the end of the work
        bench.writes(b"done")
        bench.ends(0)
        assert bench.result() == Exited(0)
        assert bench.hears(4) == b"done"


def test_signals_are_forwarded_and_the_second_one_stops() -> None:
    with open_bench() as bench:
        bench.signals.send(bytes([signal.SIGUSR1]))
        bench.signals.send(bytes([signal.SIGTERM]))
        bench.signals.send(bytes([signal.SIGINT]))
        assert bench.control.stopped.wait(PATIENCE)
        assert bench.control.signals == [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT]


def test_real_signals_become_bytes() -> None:
    before = signal.getsignal(signal.SIGHUP)  # ignored, where whoever started this said so (nohup)
    with forwarded_signals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.recv(10) == bytes([signal.SIGHUP])
    assert signal.getsignal(signal.SIGHUP) == before


def test_client_ends_stay_as_they_were_for_whoever_shares_them(tmp_path: object) -> None:
    reader, writer = os.pipe()
    a, b = socket.socketpair()
    file = os.open(f"{tmp_path}/out", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"before ")
    ends = open_client_ends(reader, writer, a.fileno())
    assert os.get_blocking(writer)
    assert a.getblocking()
    filled = 0
    while not ends.stdout.pending:
        ends.stdout.send(b"x" * 10_000)
        filled += 10_000
    while not ends.stderr.pending:
        ends.stderr.send(b"x" * 10_000)
    assert filled >= 65536
    open_client_ends(reader, file, 2).stdout.send(b"after")
    with open(f"{tmp_path}/out") as text:
        assert text.read() == "before after"
    for fd in (reader, writer, file, ends.stdout.fd):
        os.close(fd)
    a.close()
    b.close()


def test_a_closed_stdin_is_an_end() -> None:
    bench = Bench()
    try:
        bench.hangs_up()
        assert bench.reads(1) == b""
    finally:
        bench.close()
