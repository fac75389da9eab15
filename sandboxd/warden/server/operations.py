"""One client's connection: each request, its one answer. The closed list of operations meets the code here.

A refusal is an answer; a bug is refused as `internal` and told on stderr without any value. Called by `process`.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

from sandboxd import channel
from sandboxd.errors import SandboxdError
from sandboxd.warden import protocol as p
from sandboxd.warden.server import images, reap
from sandboxd.warden.server.sandboxes import ClientSandboxes, Host

# A reply and the sockets whose descriptors go with it; those are closed here once sent.
Reply = tuple[Any, Sequence[socket.socket]]


class Operations:
    """The operations as one client may call them."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.sandboxes = ClientSandboxes(host)
        self._table: dict[type[Any], Callable[[Any], Reply]] = {
            p.Hello: self._hello,
            p.Confine: lambda r: _done(self.sandboxes.confinement.confine(r)),
            p.Create: lambda r: (self.sandboxes.create(r.spec), ()),
            p.Start: lambda r: _done(self.sandboxes.get(r.sandbox).start()),
            p.Seal: lambda r: _done(self.sandboxes.get(r.sandbox).seal()),
            p.Trust: lambda r: _done(self.sandboxes.get(r.sandbox).trust(r.authority, r.store)),
            p.Probe: lambda r: (p.Probed(self.sandboxes.get(r.sandbox).probe(r.canary)), ()),
            p.Launch: self._launch,
            p.Connect: lambda r: (p.Done(), [self.sandboxes.get(r.sandbox).connect(r.port)]),
            p.Signal: lambda r: _done(self.sandboxes.get(r.sandbox).signal(r.number)),
            p.Stop: lambda r: _done(self.sandboxes.get(r.sandbox).stop(r.grace)),
            p.Remove: lambda r: _done(self.sandboxes.remove(r.sandbox)),
            p.Commit: lambda r: (p.Committed(self.sandboxes.commit(r.sandbox, r.name, r.labels)), ()),
            p.List: lambda _: (p.Listing(reap.list_containers(host.engine)), ()),
            p.Images: lambda r: (p.ImageListing(images.list_images(host.engine, r.name)), ()),
            p.RemoveImage: self._remove_image,
            p.Gateway: lambda _: (p.Done(), [host.gateway.session()]),
        }

    def perform(self, request: Any) -> Reply:
        """The reply to any request; never raises."""
        try:
            return self._table[type(request)](request)
        except SandboxdError as error:
            return p.Refused(error.code, error.message, error.hint), ()
        except Exception as error:  # noqa: BLE001 (a bug in one operation must not end the others' sandboxes)
            report_bug(type(request).__name__, error)
            return p.Refused("internal", f"a fault in the warden: {type(error).__name__}", "see its stderr"), ()

    def _hello(self, request: p.Hello) -> Reply:
        if request.version != p.VERSION:
            raise SandboxdError("version", f"the warden speaks version {p.VERSION}, not {request.version}")
        info = self._host.engine.info()
        return p.HelloReply(p.VERSION, str(info["ServerVersion"]), tuple(sorted(info["Runtimes"]))), ()

    def _remove_image(self, request: p.RemoveImage) -> Reply:
        self.sandboxes.confinement.check_removal()
        images.remove_image(self._host.engine, request.name)
        return p.Done(), ()

    def _launch(self, request: p.Launch) -> Reply:
        sandbox = self.sandboxes.get(request.sandbox)
        stream, workload = sandbox.launch(request.argv, request.env, request.cwd)
        return p.Launched(), (stream, workload.exit_reader)


def serve_client(client: socket.socket, host: Host) -> None:
    """Answer one client until its connection ends, then remove whatever it made."""
    operations = Operations(host)
    try:
        while received := _next_request(client):
            request, fds = received
            for fd in fds:  # no request brings any
                os.close(fd)
            _answer(client, *operations.perform(request))
    except OSError:
        pass  # the client is gone
    finally:
        operations.sandboxes.remove_all()


def _answer(client: socket.socket, reply: Any, socks: Sequence[socket.socket]) -> None:
    try:
        channel.send(client, reply, [sock.fileno() for sock in socks])
    except channel.ChannelError as error:  # too long, so nothing of it was sent
        channel.send(client, p.Refused(error.code, error.message, "ask for less: one image by its name"))
    finally:
        for sock in socks:
            sock.close()


def _next_request(client: socket.socket) -> tuple[Any, list[int]] | None:
    try:
        return channel.receive(client, p.REQUESTS)
    except channel.ChannelError as error:
        with contextlib.suppress(OSError):
            channel.send(client, p.Refused(error.code, error.message, "the connection ends here"))
        return None


def _done(_: None) -> Reply:
    return p.Done(), ()


def report_bug(where: str, error: BaseException) -> None:
    """A fault's kind and place on stderr; never a value, which could be a secret."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "unknown place"
    with contextlib.suppress(OSError):  # a closed stderr must not end the others' sandboxes
        os.write(2, f"sandboxd: warden: {where}: {type(error).__name__} at {place}\n".encode())
