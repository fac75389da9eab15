"""Docker Engine's API as the few calls the warden makes, errors turned into ours with the next step.

Not here: what a container may be (`hardening`) or when a call is allowed (`sandboxes`). Called by the warden and,
for reaping, by the guardian.
"""

import re
import socket
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

from sandboxd import limits
from sandboxd.errors import SandboxdError
from sandboxd.warden.server import docker_http
from sandboxd.warden.server.docker_http import Answer

Json = dict[str, Any]
# A name or id of an image, never a path to another part of the API: no component of a name begins with a dot.
_IMAGE = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")


@dataclass(frozen=True, slots=True)
class Engine:
    """The daemon at one Unix socket. Every method raises SandboxdError: `docker_down`, `docker_silent`,
    `docker_refused`, `no_container`, `image_missing`; waits are bounded by `limits.ENGINE` seconds."""

    socket_path: str

    def version(self) -> Json:
        """Docker's version and that of its API."""
        return self._json("GET", "/version")

    def info(self) -> Json:
        """What the daemon tells about itself: runtimes, cgroups, storage."""
        return self._json("GET", "/info")

    def create(self, name: str, body: Json) -> str:
        """A new container's full id; it does not run."""
        answer = self._call("POST", "/containers/create", query={"name": name}, body=body)
        if answer.status == 404:
            raise _image_missing(str(body["Image"]))
        return str(self._good(answer, f"create {name}").json()["Id"])

    def start(self, container: str) -> None:
        """Start it; the first process runs when this returns."""
        self._good(self._call("POST", f"/containers/{container}/start"), "start")

    def attach(self, container: str) -> socket.socket:
        """The raw stream of stdin, stdout and stderr (Docker's 8-byte frames), from its first byte on."""
        query = {"stream": "1", "stdin": "1", "stdout": "1", "stderr": "1"}
        answer, sock = docker_http.hijack(self.socket_path, f"/containers/{container}/attach", query, limits.ENGINE)
        if sock is None:
            self._good(answer, "attach")
            raise SandboxdError("docker_refused", "Docker sent no stream to attach to")
        return sock

    def inspect(self, container: str) -> Json:
        """All that Docker knows of a container."""
        return self._json("GET", f"/containers/{container}/json")

    def inspect_or_none(self, container: str) -> Json | None:
        """The same, None where there is no such container."""
        answer = self._call("GET", f"/containers/{container}/json")
        return None if answer.status == 404 else cast(Json, self._good(answer, "inspect").json())

    def kill(self, container: str) -> None:
        """SIGKILL to its first process; nothing where it does not run."""
        answer = self._call("POST", f"/containers/{container}/kill", query={"signal": "KILL"})
        if answer.status not in (404, 409):
            self._good(answer, "kill")

    def remove(self, container: str) -> None:
        """Kill and remove, with its anonymous volumes; returns once it is gone. Idempotent."""
        answer = self._call("DELETE", f"/containers/{container}", query={"force": "1", "v": "1"})
        if answer.status in (404, 204):
            return
        if answer.status != 409:  # 409: it is being removed already (AutoRemove)
            self._good(answer, "remove")
        self.wait_removed(container)

    def wait_removed(self, container: str) -> None:
        """Wait until it is gone."""
        answer = self._call("POST", f"/containers/{container}/wait", query={"condition": "removed"})
        if answer.status != 404:
            self._good(answer, "wait")

    def containers(self, label: str) -> list[Json]:
        """All containers, running or not, that carry `label`."""
        query = {"all": "1", "filters": f'{{"label":["{label}"]}}'}
        return cast(list[Json], self._good(self._call("GET", "/containers/json", query=query), "list").json())

    def put_archive(self, container: str, tar: bytes) -> None:
        """Unpack `tar` at the container's root."""
        answer = self._call("PUT", f"/containers/{container}/archive", query={"path": "/"}, body=tar)
        self._good(answer, "put files")

    def inspect_image(self, name: str) -> Json:
        """All that Docker knows of an image. Raises SandboxdError `image_missing`."""
        answer = self._call("GET", f"{_image_path(name)}/json")
        if answer.status in (400, 404):
            raise _image_missing(name)
        return cast(Json, self._good(answer, "inspect image").json())

    def images(self, label: str) -> list[Json]:
        """Images that carry `label`."""
        query = {"filters": f'{{"label":["{label}"]}}'}
        return cast(list[Json], self._good(self._call("GET", "/images/json", query=query), "list images").json())

    def remove_image(self, name: str) -> None:
        """Remove a name, and the image with its last one. Raises SandboxdError `image_in_use`."""
        answer = self._call("DELETE", _image_path(name))
        if answer.status == 404:
            raise _image_missing(name)
        if answer.status == 409:
            raise SandboxdError("image_in_use", answer.message(), hint="remove the containers that use it first")
        self._good(answer, "remove image")

    def commit(self, container: str, repository: str, tag: str, config: Json) -> str:
        """The new image's id; the container is paused meanwhile."""
        query = {"container": container, "repo": repository, "tag": tag, "pause": "1"}
        answer = self._call("POST", "/commit", query=query, body=config, wait=limits.ENGINE_COMMIT)
        return str(self._good(answer, "commit").json()["Id"])

    def _json(self, method: str, target: str) -> Json:
        return cast(Json, self._good(self._call(method, target), target.strip("/")).json())

    def _call(
        self,
        method: str,
        target: str,
        *,
        query: dict[str, str] | None = None,
        body: Json | bytes | None = None,
        wait: float = limits.ENGINE,
    ) -> Answer:
        return docker_http.request(self.socket_path, method, target, query=query, body=body, wait=wait)

    def _good(self, answer: Answer, what: str) -> Answer:
        if answer.status < 300 or answer.status == 304:  # 304: it is so already
            return answer
        if answer.status == 404 and "No such container" in answer.message():
            raise SandboxdError("no_container", "the container is gone", hint="something else removed it; start again")
        if "nknown runtime" in answer.message() or "nknown or invalid runtime" in answer.message():
            hint = "deploy/setup registers runsc, sandboxd doctor tells what is missing; runc needs nothing"
            raise SandboxdError("no_runtime", f"Docker has no such runtime: {answer.message()}", hint=hint)
        raise SandboxdError(
            "docker_refused", f"Docker refused to {what}: {answer.message()}", hint="sandboxd doctor checks the host"
        )


def _image_path(name: str) -> str:
    if not _IMAGE.fullmatch(name):
        raise _image_missing(name)
    return f"/images/{quote(name, safe='')}"


def _image_missing(name: str) -> SandboxdError:
    return SandboxdError(
        "image_missing",
        f"no image {name[:300]!r} on this host",
        hint="`sandboxd image ls` lists what is there, `sandboxd image build` makes one",
    )
