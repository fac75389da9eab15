"""`sandboxd run`: one MCP server in a sandbox, relayed to whoever started this. The hot path of every client's start.

`main` forks first: the other processes import what they need while this is imported and parses. What only the
caller's privileges can read (policy, secrets, workspace, its stdio) is read before they are given up.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandboxd import ids
from sandboxd.cli.processes import StateLeases, end_processes, give_up_root
from sandboxd.cli.run_calls import open_calls
from sandboxd.cli.run_options import RunOptions, parse_run
from sandboxd.controller.environment import make_environment, parse_workspace
from sandboxd.controller.plan import Plan, Wanted, plan_command, plan_document
from sandboxd.controller.ports import Leases
from sandboxd.controller.relay import ClientEnds, Relay, forwarded_signals, open_client_ends
from sandboxd.controller.sandbox import Sandbox, Scope, close_streams, open_sandbox
from sandboxd.controller.secrets import Secret, resolve_secret
from sandboxd.errors import UsageError
from sandboxd.settings import Pin, Settings
from sandboxd.warden.client import WardenClient
from sandboxd.warden.protocol import ContainerSpec, Exited, ImageInfo

if TYPE_CHECKING:
    from sandboxd.cli.run_reload import Reload
    from sandboxd.controller.builds import Order
    from sandboxd.controller.held_secrets import Held
    from sandboxd.controller.policy_file import PolicyFile
    from sandboxd.policy.egress import EgressPolicy, EgressRule
    from sandboxd.policy.models import PolicyDocument
    from sandboxd.policy.shortform import AllowPolicy, AllowRule


def run_command(arguments: Sequence[str], settings: Settings, warden: WardenClient) -> int:
    """Run until the workload ends; its exit code. `warden` is closed at the end. Raises SandboxdError."""
    try:
        options = parse_run(arguments)
        followed = _open_policy_file(options)
        plan, secrets, held = plan_run(options)
        pins = (*settings.pins, *map(Pin.parse, options.pin))
        scope = Scope(plan.wire, pins, hash=plan.hash, secrets=held.secrets if held else ())
        order = _order_package(plan, warden)
        client = open_client_ends()
        reload = _open_reload(options, plan, followed) if followed else None
        from sandboxd.state.store import open_state  # late, but while the interpreter's files can be read

        directories = (mount.source for mount in plan.mounts)
        give_up_root(settings, warden, directories=directories, images=(order.name,) if order else ())
        with open_state(settings.state_database) as state:
            leases, manner = StateLeases(state), _Manner(options)
            return _run(plan, secrets, held, scope, manner, client, leases, warden, order, reload)
    finally:
        end_processes(warden)


def plan_run(options: RunOptions) -> "tuple[Plan, tuple[Secret, ...], Held | None]":
    """Everything settled, secrets read: those of the workload's environment, and those that the gateway holds. Raises
    UsageError."""
    wanted = _wanted(options)
    names = [reference.partition("=")[0] for reference in options.secret]
    document = _read_policy(options)
    if document:
        plan = plan_document(document, options.server, wanted, names)
    else:
        plan = plan_command(wanted, _allowed(options), names, None)
    variables = dict(plan.secrets)
    secrets = tuple(
        resolve_secret(reference, variables[name], os.environ)
        for name, reference in zip(names, options.secret, strict=True)
        if name not in plan.held
    )
    if not plan.held:
        return plan, secrets, None
    from sandboxd.controller.held_secrets import hold_secrets

    held = hold_secrets(plan.held, options.secret, variables, os.environ)
    return plan, (*secrets, *held.variables), held


def _open_policy_file(options: RunOptions) -> "PolicyFile | None":
    if options.policy is None:
        return None
    from sandboxd.cli.run_reload import open_policy_file

    return open_policy_file(options.policy)


def _open_reload(options: RunOptions, plan: Plan, file: "PolicyFile") -> "Reload":
    """The policy file, to be followed while the workload runs."""
    from sandboxd.cli.run_reload import Reload

    wanted, names = _wanted(options), [reference.partition("=")[0] for reference in options.secret]
    return Reload(
        file,
        plan,
        lambda document: plan_document(document, options.server, wanted, names),
        lambda revised: _reach(revised.policies, revised.workload),
    )


def _read_policy(options: RunOptions) -> "PolicyDocument | None":
    if options.policy is None:
        if options.server is not None:
            raise UsageError("--server without --policy", hint="a server is one of a policy's")
        return None
    if options.allow:
        raise UsageError("--policy and --allow exclude each other", hint="add a rule to the policy")
    from pathlib import Path

    from sandboxd.policy.loading import read_policy

    return read_policy(Path(options.policy))


def _allowed(options: RunOptions) -> "tuple[AllowPolicy, ...]":
    """Without --allow nothing is allowed, and no model is imported to say so."""
    if not options.allow:
        return ()
    from sandboxd.policy.shortform import egress_from_allows

    return (egress_from_allows(options.allow),)


def _wanted(options: RunOptions) -> Wanted:
    return Wanted(
        command=options.command,
        image=options.image,
        package=options.package,
        workspace=parse_workspace(options.workspace) if options.workspace is not None else None,
        env=options.env,
        runtime=options.runtime,
        memory=_size(options.memory) if options.memory is not None else None,
        cpus=options.cpus,
        pids=options.pids,
        unix_sockets=options.unix_sockets,
    )


def _size(text: str) -> int:
    from sandboxd.policy.units import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError:
        raise UsageError(f"--memory {text}: not a size", hint="expected such as 512MiB or 2GiB") from None


class _Manner:
    """How the relay goes about it."""

    def __init__(self, options: RunOptions) -> None:
        self.raw = options.raw
        self.annotate = options.annotate
        self.short_form = options.policy is None


def _run(
    plan: Plan,
    secrets: tuple[Secret, ...],
    held: "Held | None",
    scope: Scope,
    manner: _Manner,
    client: ClientEnds,
    leases: Leases,
    warden: WardenClient,
    order: "Order | None",
    reload: "Reload | None",
) -> int:
    image, command = _build_package(plan, order, warden, leases, scope.pins) if order else _find_image(plan, warden)
    environment = make_environment(image.env, plan.env, secrets, trusts=plan.intercepts)
    spec = ContainerSpec(
        sandbox=ids.sandbox_id(),
        agent=plan.agent,
        workload=plan.workload,
        image=image.names[0] if image.names else image.id,
        runtime=plan.runtime,
        resources=plan.resources,
        mounts=plan.mounts,
        unix_sockets=plan.unix_sockets,
        trust=plan.intercepts,
    )
    with open_sandbox(warden, spec, scope, leases, say) as sandbox:
        say(describe(plan, spec.image, command))
        with reload.following(sandbox, say) if reload else contextlib.nullcontext(), _rotating(sandbox, held):
            return _relay(sandbox, plan, command, environment, manner, client)


def _rotating(sandbox: Sandbox, held: "Held | None") -> contextlib.AbstractContextManager[object]:
    """While it lasts the gateway is told of secrets whose files change."""
    if held is None:
        return contextlib.nullcontext()
    from sandboxd.controller.held_secrets import SecretWatch

    return SecretWatch(held.files, sandbox.rotate, say)


def _order_package(plan: Plan, warden: WardenClient) -> "Order | None":
    """The package's image, or all that its build needs of the caller's privileges."""
    if plan.package is None:
        return None
    from sandboxd.controller.builds import order_package
    from sandboxd.controller.packages import Recipe, parse_package

    order = order_package(warden, Recipe(parse_package(plan.package), plan.constraints, plan.scripts))
    if order.built is None:
        importlib.import_module("sandboxd.cli.text")  # for `_say_line`, while the interpreter's files can be read
    return order


def _say_line(line: str) -> None:
    """A line of an installer, which speaks from inside a container."""
    from sandboxd.cli.text import harmless

    say(harmless(line)[:1000])


def _build_package(
    plan: Plan, order: "Order", warden: WardenClient, leases: Leases, pins: tuple[Pin, ...]
) -> tuple[ImageInfo, tuple[str, ...]]:
    """The package's image, built the first time, and the command in it."""
    from sandboxd.controller.builds import build
    from sandboxd.controller.packages import choose_program, programs_of

    image = build(warden, leases, order, pins, say, _say_line)
    program = choose_program(programs_of(image.labels), order.recipe.package, plan.program)
    return image, (program, *plan.command)


def _find_image(plan: Plan, warden: WardenClient) -> tuple[ImageInfo, tuple[str, ...]]:
    """The image, and the command in it."""
    assert plan.image
    (image,) = warden.images(plan.image)
    command = plan.command or image.command
    if not command:
        raise UsageError(f"image {plan.image} names no command", hint="expected -- COMMAND")
    return image, command


def _relay(
    sandbox: Sandbox,
    plan: Plan,
    command: Sequence[str],
    environment: dict[str, str],
    manner: _Manner,
    client: ClientEnds,
) -> int:
    with open_calls(
        sandbox,
        client.stderr,
        prefix=plan.tool_prefix,
        annotate=manner.annotate,
        short_form=manner.short_form,
    ) as calls:
        streams = sandbox.launch(command, environment, plan.cwd)
        try:
            with forwarded_signals() as signals:
                exited = Relay(streams, client, sandbox, raw=manner.raw, calls=calls).run(signals)
        finally:
            close_streams(streams)
    sandbox.ended(exited)
    _say_end(exited, sandbox.spec)
    return exited.code


def _say_end(exited: Exited, spec: ContainerSpec) -> None:
    if exited.oom:
        limit = spec.resources.memory >> 20
        say(f"the workload was killed: it needed more than its {limit} MiB of memory (--memory, resources.memory)")


def describe(plan: Plan, image: str, command: Sequence[str]) -> str:
    """One line: what runs and what it may reach. Arguments are left out: some hold tokens."""
    parts = [f"{command[0]} in {image} as {plan.agent}/{plan.workload}"]
    parts += [f"workspace {m.source} {'read-only' if m.read_only else 'writable'}" for m in plan.mounts]
    parts.append(_reach(plan.policies, plan.workload))
    return "; ".join(parts)


def _reach(policies: "tuple[EgressPolicy | AllowPolicy, ...]", workload: str) -> str:
    """The narrowest scope's allow rules for this workload; every wider one must allow it too."""
    if policies and all(policy.mode in ("audit", "learn") for policy in policies):
        return f"may reach all but the address floor ({policies[-1].mode} mode: what the rules deny is recorded)"
    rules = policies[-1].all_rules if policies else ()
    allowed = [_target(rule) for rule in rules if rule.action == "allow" and _is_about(rule, workload)]
    if not allowed:
        return "no network"
    more = f" and {len(allowed) - 5} more" if len(allowed) > 5 else ""
    return f"may reach {', '.join(allowed[:5])}{more}"


def _is_about(rule: "EgressRule | AllowRule", workload: str) -> bool:
    from sandboxd.policy.shortform import AllowRule

    if isinstance(rule, AllowRule):
        return True
    from sandboxd.policy.matching import applies_to

    return applies_to(rule, workload)


def _target(rule: "EgressRule | AllowRule") -> str:
    where = [str(place) for place in (*(rule.to.hosts or ()), *(rule.to.cidrs or ()))]
    ports = "/".join(map(str, rule.to.ports or ()))
    return f"{' '.join(where)}:{ports} ({rule.proto})"


def say(text: str) -> None:
    """Our own words go to stderr only: stdout belongs to the messages."""
    print(f"sandboxd: {text}", file=sys.stderr, flush=True)
