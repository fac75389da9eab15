"""One HTTP request over Docker's Unix socket, or one hijacked stream.

Owns the connection and nothing of what is asked. HTTP/1.0: Docker then neither chunks nor keeps alive, so a body is
what comes until the end. The standard library's client costs 45 ms of import, this none. Called by `engine` only.
"""

import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sandboxd import limits
from sandboxd.errors import SandboxdError


@dataclass(frozen=True, slots=True)
class Answer:
    """Docker's answer: HTTP status and the whole body."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises SandboxdError: an end of the connection looks like the end of an answer."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise SandboxdError("docker_lost", "an answer of Docker broke off", hint="see Docker's log") from None

    def message(self) -> str:
        """Docker's own words about an error."""
        try:
            return str(json.loads(self.body)["message"])
        except (ValueError, KeyError, TypeError):
            return f"HTTP {self.status}"


def request(
    path: str, method: str, target: str, *, query: dict[str, str] | None = None, body: Any = None, wait: float
) -> Answer:
    """One request to the daemon at the Unix socket `path`; `body` is bytes (a tar) or goes as JSON.

    `wait` bounds each step in seconds. Raises SandboxdError where Docker can't be reached or stays silent.
    """
    sock = open_docker(path, wait)
    try:
        sock.sendall(_head(method, target, query, body))
        status, rest = _read_head(sock)
        return Answer(status, _read_rest(sock, rest))
    except TimeoutError:
        raise _silent(f"{method} {target}", wait) from None
    except OSError as error:
        raise _lost(error) from None
    finally:
        sock.close()


def hijack(path: str, target: str, query: dict[str, str], wait: float) -> tuple[Answer, socket.socket | None]:
    """A POST that turns into a raw two-way stream: its socket (blocking, the caller's), or Docker's refusal."""
    sock = open_docker(path, wait)
    try:
        sock.sendall(_head("POST", target, query, None, ("Connection: Upgrade", "Upgrade: tcp")))
        status, rest = _read_head(sock)
        if status in (101, 200) and not rest:
            sock.settimeout(None)
            return Answer(status, b""), sock.dup()
        return Answer(status, _read_rest(sock, rest)), None
    except TimeoutError:
        raise _silent(f"POST {target}", wait) from None
    except OSError as error:
        raise _lost(error) from None
    finally:
        sock.close()


def open_docker(path: str, wait: float) -> socket.socket:
    """A connection to Docker. Raises SandboxdError `docker_down` or `docker_denied`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(wait)
    try:
        sock.connect(path)
    except PermissionError:
        sock.close()
        raise SandboxdError("docker_denied", f"no permission for Docker's socket {path}", hint="run as root") from None
    except OSError as error:
        sock.close()
        raise SandboxdError(
            "docker_down",
            f"Docker is not running: {path}: {error.strerror or error}",
            hint="start it (systemctl start docker), or name its socket as docker_socket in the settings file",
        ) from None
    return sock


def _head(method: str, target: str, query: dict[str, str] | None, body: Any, more: tuple[str, ...] = ()) -> bytes:
    pairs = "&".join(f"{name}={quote(value, safe='')}" for name, value in (query or {}).items())
    # No version in the path: the daemon's own. No single one is known to Debian's oldest and Docker's newest daemon.
    lines = [f"{method} {target}{'?' + pairs if pairs else ''} HTTP/1.0", "Host: docker", *more]
    payload = b""
    if isinstance(body, bytes):
        payload = body
        lines.append("Content-Type: application/x-tar")
    elif body is not None:
        payload = json.dumps(body).encode()
        lines.append("Content-Type: application/json")
    if payload or method == "POST":
        lines.append(f"Content-Length: {len(payload)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + payload


def _read_head(sock: socket.socket) -> tuple[int, bytes]:
    """The status, and what came of the body with the head."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = sock.recv(65536)
        if not chunk or len(data) > limits.ENGINE_HEAD:
            raise SandboxdError("docker_lost", "Docker closed the connection", hint="see Docker's log")
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    fields = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(fields) < 2 or not fields[0].startswith(b"HTTP/1.") or not fields[1].isdigit():
        raise SandboxdError("docker_lost", "what listens on Docker's socket does not speak HTTP")
    return int(fields[1]), rest


def _read_rest(sock: socket.socket, start: bytes) -> bytes:
    parts, size = [start], len(start)
    while chunk := sock.recv(1 << 16):
        parts.append(chunk)
        size += len(chunk)
        if size > limits.ENGINE_BODY:
            raise SandboxdError("docker_lost", f"an answer of Docker exceeds {limits.ENGINE_BODY} bytes")
    return b"".join(parts)


def _silent(what: str, wait: float) -> SandboxdError:
    return SandboxdError("docker_silent", f"Docker did not answer {what} within {wait:g} s", hint="see Docker's log")


def _lost(error: OSError) -> SandboxdError:
    return SandboxdError("docker_lost", f"the connection to Docker broke: {error.strerror or error}")
