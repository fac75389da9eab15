"""What a run is made of, settled before anything starts: out of a policy's server, or out of a command line.

Each thing is said once: by the policy or by a flag. Called by `run`; the egress policies it holds are the only models
in here. Not here: reading files and secrets (`run`), images that must be built first (`controller.packages`).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandboxd.controller.environment import HOME
from sandboxd.errors import UsageError
from sandboxd.warden.protocol import Mount, Resources, Runtime

if TYPE_CHECKING:
    from sandboxd.policy.egress import EgressPolicy
    from sandboxd.policy.models import PolicyDocument, Server
    from sandboxd.policy.models import Resources as PolicyResources
    from sandboxd.policy.shortform import AllowPolicy

AGENT = "run"
# By the name of the program: images that `images/` builds.
DEFAULT_IMAGES = {"python": "sandboxd/python", "node": "sandboxd/node", "npx": "sandboxd/node", "npm": "sandboxd/node"}
BASE_IMAGE = "sandboxd/base"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for; None or empty: not said. `secrets`: (name, environment variable) is settled by
    the plan, the values are read by the caller."""

    command: tuple[str, ...] = ()
    image: str | None = None
    package: str | None = None
    workspace: Mount | None = None
    env: tuple[str, ...] = ()
    runtime: str | None = None
    memory: int | None = None
    cpus: float | None = None
    pids: int | None = None
    unix_sockets: bool | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a run but its secrets' values. `package`: an image to be built from it first, `constraints` and
    `scripts` with it, and `command` the arguments of its `program` (None: its own). `secrets`: secret → variable.
    `command` empty without a package: the image's own. `tool_prefix`: what makes a tool's own name its final one.
    `held`: secrets that the gateway puts into requests, and of which the workload sees placeholders. `intercepts`:
    some of its TLS is read."""

    agent: str
    workload: str
    image: str | None
    command: tuple[str, ...]
    package: str | None = None
    program: str | None = None
    constraints: tuple[str, ...] = ()
    scripts: bool = False
    env: tuple[str, ...] = field(default=(), repr=False)
    secrets: tuple[tuple[str, str], ...] = ()
    held: tuple[str, ...] = ()
    intercepts: bool = False
    mounts: tuple[Mount, ...] = ()
    resources: Resources = field(default_factory=Resources)
    runtime: Runtime = "runc"
    unix_sockets: bool = True
    cwd: str = HOME
    policies: "tuple[EgressPolicy | AllowPolicy, ...]" = ()
    tool_prefix: str | None = None

    @property
    def wire(self) -> tuple[dict[str, Any], ...]:
        """The policies as the gateway takes them."""
        return tuple(policy.to_wire() for policy in self.policies)

    @property
    def hash(self) -> str:
        """Names this egress policy in the audit log; the same for the same rules, empty where there are none."""
        if not self.policies:
            return ""
        import hashlib  # late: four milliseconds that most runs wait for nothing

        text = json.dumps(self.wire, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan_command(
    wanted: Wanted,
    policies: "tuple[EgressPolicy | AllowPolicy, ...]",
    secrets: Sequence[str],
    document: "PolicyDocument | None",
) -> Plan:
    """A command line's run, `document` a policy without servers. Raises UsageError."""
    if not wanted.command and wanted.image is None and wanted.package is None:
        raise UsageError("nothing to run", hint="expected -- COMMAND, --image IMAGE or --package npm:NAME@VERSION")
    if wanted.package is not None and wanted.image is not None:
        raise UsageError("--package and --image exclude each other", hint="a package gets an image of its own")
    workspace = wanted.workspace
    mounts = (workspace,) if workspace else _mounts(document, "rw")
    image = wanted.image or (document.image if document else None)
    package, program, command = _settle(wanted.package, wanted.command, image)
    workload = f"mcp:{workload_name(package or (command or (wanted.image or ''))[0])}"
    held, intercepts = _interception(document.scopes() if document else (), workload)
    _check_secrets("the policy", held, secrets, needs_all=False)
    return Plan(
        agent=document.agent.name if document and document.agent else AGENT,
        workload=workload,
        image=None if package else image or default_image(command),
        command=command,
        package=package,
        program=program,
        env=wanted.env,
        secrets=tuple((name, name) for name in secrets),
        held=held,
        intercepts=intercepts,
        mounts=mounts,
        resources=_resources(document.resources if document else None, wanted),
        runtime=runtime_named(wanted.runtime or (document.runtime if document else None)),
        unix_sockets=_unix_sockets(wanted.unix_sockets, document.unix_sockets if document else None, mounts),
        cwd=mounts[0].target if mounts else HOME,
        policies=policies,
    )


def plan_server(document: "PolicyDocument", name: str, wanted: Wanted, secrets: Sequence[str]) -> Plan:
    """A policy's server. `secrets`: the names that were given values. Raises UsageError."""
    if wanted != Wanted():
        raise UsageError(
            "the policy says what runs and how", hint="leave COMMAND and the flags for image, env, bounds… out"
        )
    assert document.servers
    server = document.servers[name]
    needed = tuple((secret.secret, secret.env) for secret in server.secrets or ())
    held, intercepts = _interception(document.scopes(name), f"mcp:{name}")
    _check_secrets(f"server {name}", [*(secret for secret, _ in needed), *held], secrets)
    mounts = _mounts(document, server.workspace or "rw")
    command = (server.command, *(server.args or ())) if server.command else tuple(server.args or ())
    image = server.image or document.image
    package, program = server.package, None
    if package is None:
        package, program, command = _settle(None, command, image)
    return Plan(
        agent=document.agent.name if document.agent else AGENT,
        workload=f"mcp:{name}",
        image=None if package else image or default_image(command),
        command=command,
        package=package,
        program=program,
        constraints=server.constraints or (),
        scripts=bool(server.scripts),
        env=tuple(f"{key}={value}" for key, value in (server.env or {}).items()),
        secrets=needed,
        held=held,
        intercepts=intercepts,
        mounts=mounts,
        resources=_resources(server.resources or document.resources, wanted),
        runtime=runtime_named(server.runtime or document.runtime),
        unix_sockets=_unix_sockets(server.unix_sockets, document.unix_sockets, mounts),
        cwd=server.cwd or (mounts[0].target if mounts else HOME),
        policies=document.scopes(name),
        tool_prefix=server.tool_prefix(name),
    )


def plan_document(document: "PolicyDocument", server: str | None, wanted: Wanted, secrets: Sequence[str]) -> Plan:
    """A policy's run: of its only server, of the one that is named, or of the command line. Raises UsageError."""
    name = choose_server(document, server)
    if name is not None:
        return plan_server(document, name, wanted, secrets)
    return plan_command(wanted, document.scopes(), secrets, document)


def choose_server(document: "PolicyDocument", wanted: str | None) -> str | None:
    """The server to run: the only one, or the one that was named. None: the policy has none. Raises UsageError."""
    servers: dict[str, Server] = document.servers or {}
    if wanted is not None and wanted not in servers:
        known = ", ".join(sorted(servers)) or "none"
        raise UsageError(f"--server {wanted}: not in the policy", hint=f"its servers: {known}", code="no_server")
    if wanted is None and len(servers) > 1:
        raise UsageError("the policy has several servers", hint=f"--server, one of {', '.join(sorted(servers))}")
    return wanted or next(iter(servers), None)


def _settle(
    package: str | None, command: tuple[str, ...], image: str | None
) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Package, its program, and the command or the program's arguments. What `npx` and `uvx` would install is a
    package, unless an image is named that has them."""
    if package is not None:
        own = not command or command[0].startswith("-")
        return (package, None, command) if own else (package, command[0], command[1:])
    if image is None and command[:1] in (("npx",), ("uvx",), ("uv",)):
        from sandboxd.controller.packages import recognise

        if found := recognise(command):
            return str(found.package), found.program, found.arguments
    return None, None, command


def default_image(command: Sequence[str]) -> str:
    """The image for a command that names none."""
    program = command[0].rpartition("/")[2] if command else ""
    return DEFAULT_IMAGES.get(re.sub(r"[0-9.]+$", "", program), BASE_IMAGE)


def workload_name(text: str) -> str:
    """A name fit for `mcp:NAME` out of a command, an image or a package."""
    name = text.partition(":")[2] if text.startswith(("npm:", "pypi:")) else text
    name = re.split(r"==|(?<!^)@", name)[0].rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32].rstrip("-") or "command"


def _interception(policies: "Sequence[EgressPolicy]", workload: str) -> tuple[tuple[str, ...], bool]:
    """The secrets that the gateway puts into the workload's requests, and whether it reads any."""
    if not policies:
        return (), False
    from sandboxd.policy.interception import credential_names, intercepted_names

    return tuple(sorted(credential_names(policies, workload))), bool(intercepted_names(policies, workload))


def _check_secrets(who: str, needed: Sequence[str], given: Sequence[str], *, needs_all: bool = True) -> None:
    """Every needed secret was given; no other was, where the policy says all that is needed."""
    for name in needed:
        if name not in given:
            raise UsageError(
                f"{who} needs secret {name}",
                hint=f"--secret {name}=env:VARIABLE or --secret {name}=file:PATH",
                code="no_secret",
            )
    for name in given if needs_all else ():
        if name not in needed:
            raise UsageError(f"--secret {name}: {who} has no such secret", code="no_secret")


def _mounts(document: "PolicyDocument | None", mode: str) -> tuple[Mount, ...]:
    workspace = document.workspace if document else None
    if workspace is None or mode == "none":
        return ()
    return (Mount(workspace.source, workspace.target, read_only="ro" in (mode, workspace.mode)),)


def _resources(policy: "PolicyResources | None", wanted: Wanted) -> Resources:
    said = {name: getattr(policy, name) for name in ("memory", "cpus", "pids", "nofile", "tmp")} if policy else {}
    said |= {name: getattr(wanted, name) for name in ("memory", "cpus", "pids") if getattr(wanted, name) is not None}
    known = {name: value for name, value in said.items() if value is not None}
    if "cpus" in known:
        known["cpus"] = float(known["cpus"])
    return Resources(**known)


def runtime_named(name: str | None) -> Runtime:
    """Raises UsageError."""
    match name:
        case None | "runc":
            return "runc"
        case "runsc":
            return "runsc"
        case _:
            raise UsageError(f"--runtime {name}: unknown", hint="expected runc or runsc", code="bad_runtime")


def _unix_sockets(own: bool | None, wider: bool | None, mounts: Sequence[Mount]) -> bool:
    """Denied where nothing else is said and a directory of the host can be written: a socket made there would lead
    out (egress.md 9)."""
    said = own if own is not None else wider
    return said if said is not None else all(mount.read_only for mount in mounts)
