"""The three processes behind a command that starts sandboxes, and giving up root once they run.

What is imported here comes before the fork and delays every start: no more than all sides share. The others import
their own afterwards, at the same time. Called by `main` for `run`, and by the commands that build or probe.
"""

import contextlib
import importlib
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from sandboxd import limits, pids
from sandboxd.errors import SandboxdError
from sandboxd.settings import Settings

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

    from sandboxd.state.store import State
    from sandboxd.warden.client import WardenClient


def start_processes(settings: Settings, *, intercepts: bool = False) -> "WardenClient":
    """Fork guardian, warden and gateway; they end when the client's connection does. Needs a single thread.
    `intercepts`: some policy may. Raises SandboxdError `no_privileges` where this isn't root."""
    if os.geteuid() != 0:
        raise SandboxdError(
            "no_privileges",
            "this needs root: it makes sealed namespaces and talks to Docker",
            hint="start it as root, for instance with sudo; sandboxd doctor shows what else is missing",
        )
    make_directories(settings)
    from sandboxd.warden.server.guardian import fork_processes

    sock = fork_processes(settings, lambda: _load_gateway(settings, intercepts=intercepts))
    from sandboxd.warden.client import WardenClient

    return WardenClient(sock)


def make_directories(settings: Settings) -> None:
    """The databases' folders, each its process's own. As root; what is there stays as it is. Raises SandboxdError."""
    owners = {settings.audit_dir: settings.gateway_user, settings.controller_dir: settings.controller_user}
    for path, name in owners.items():
        if path.is_dir():
            continue
        import pwd

        try:
            owner = pwd.getpwnam(name)
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
            os.chown(path, owner.pw_uid, owner.pw_gid)
        except KeyError:
            raise SandboxdError("no_user", f"no user {name!r} on this host", hint="deploy/setup makes it") from None
        except FileExistsError:
            continue  # another start was faster
        except OSError as error:
            raise SandboxdError(
                "state_dir", f"can't make {path}: {error.strerror}", hint="state_dir in the settings file says where"
            ) from None


def _load_gateway(settings: Settings, *, intercepts: bool) -> "Callable[[socket.socket], int]":
    from sandboxd.egress.gateway.process import run_gateway

    if intercepts:  # a tenth of a second that others need not wait for
        for module in ("sandboxd.egress.gateway.authority", "sandboxd.egress.h2_flow"):
            importlib.import_module(module)
    return partial(run_gateway, settings=settings)


def end_processes(warden: "WardenClient") -> None:
    """Everything made is removed and the processes end; wait for that, within bounds, so that nothing is left when
    the command's own process is gone."""
    warden.close()
    waiter = threading.Thread(target=_wait_for_guardian, daemon=True)
    waiter.start()
    waiter.join(limits.PROCESSES_END)


def _wait_for_guardian() -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)


def give_up_root(
    settings: Settings, warden: "WardenClient", *, directories: "Iterable[str]" = (), images: "Iterable[str]" = ()
) -> None:
    """Become the controller's user for good; nobody of that user may read this process's memory. Of the host, `warden`
    gives it these directories only from now on, and makes these images only."""
    from sandboxd.warden.server import prctl

    warden.confine(directories=directories, images=images)
    prctl.forget_environment()  # what a workload is to have of it was read
    prctl.become_user(settings.controller_user)
    prctl.forbid_new_privileges()
    prctl.be_undumpable()


class StateLeases:
    """The state database as `controller.ports.Leases`; this process is the owner."""

    def __init__(self, state: "State") -> None:
        self._state = state

    def begin(self, sandbox: str, agent: str, workload: str, container: str, image: str) -> None:
        """Raises SandboxdError."""
        from sandboxd.state.store import Lease

        owner, start = os.getpid(), pids.own_start_ticks()
        self._state.begin(Lease(sandbox, agent, workload, container, image, owner, start, time.time()))

    def end(self, sandbox: str, *, failed: bool) -> None:
        """Nothing where there is no living lease. Those of runs that were killed are ended too, old ones forgotten: no
        daemon does, and an end is never waited for as a start is."""
        now = time.time()
        self._state.end(sandbox, "failed" if failed else "exited", now)
        self._state.reap(now, pids.lives)
        self._state.forget_ended(now - limits.LEASES_KEPT)
