"""The three ways to start one server: bare, `docker run -i` of the image, `sandboxd run` of the image."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from tests.kit.command import SANDBOXD, Command

IMAGE = "sandboxd/python"
SERVER = (Path(__file__).parent / "echo_server.py").read_text()


class Client:
    """One server's pipes, one request at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._in, self._out = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
        self._number = 0

    def request(self, method: str) -> float:
        """Send one request, wait for its answer: seconds."""
        self._number += 1
        params = {"name": "echo", "arguments": {}} if method == "tools/call" else {}
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        data = json.dumps(message).encode() + b"\n"
        begin = time.perf_counter()
        self._in.write(data)
        self._in.flush()
        answer = self._out.readline()
        took = time.perf_counter() - begin
        assert json.loads(answer)["id"] == self._number
        return took


def argv(way: str) -> list[str]:
    """`bare`, `docker` or `run`."""
    inside = ["python3", "-c", SERVER]
    if way == "bare":
        return [sys.executable, "-c", SERVER]
    if way == "docker":
        return ["docker", "run", "-i", "--rm", "--network", "none", "--entrypoint", "", IMAGE, *inside]
    return [*SANDBOXD, "run", "--image", IMAGE, "--", *inside]


@contextmanager
def open_client(way: str, command: Command) -> Iterator[Client]:
    """The server started that way, until the block ends."""
    pipe = subprocess.PIPE
    with subprocess.Popen(argv(way), stdin=pipe, stdout=pipe, stderr=pipe, env=command.environment) as process:
        try:
            yield Client(process)
        finally:
            cast(IO[bytes], process.stdin).close()
            process.wait(60)
