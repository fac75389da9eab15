"""`sandboxd probe`: break-out attempts from inside a sandbox like any other; exit 1 if one got through."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandboxd.cli.text import harmless
from sandboxd.errors import ExitCode, SandboxdError

if TYPE_CHECKING:
    from sandboxd.controller.probing import Outcome
    from sandboxd.policy.egress import EgressPolicy
    from sandboxd.settings import Settings
    from sandboxd.warden.client import WardenClient


def probe(
    policy: Annotated[Path | None, typer.Option(help="Under this policy; default: no network.")] = None,
    server: Annotated[str | None, typer.Option(help="As this server of the policy.")] = None,
    image: Annotated[str, typer.Option(help="An image with python3.")] = "sandboxd/python",
    runtime: Annotated[str, typer.Option(help="runc or runsc.")] = "runc",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Try to break out of a sandbox, and say what each attempt proves. Exit 1 if one got through."""
    from sandboxd.cli.processes import end_processes, start_processes
    from sandboxd.settings import load_settings

    settings = load_settings()
    warden = start_processes(settings)
    try:
        scopes = _scopes(policy, server)
        outcomes = _probe(warden, settings, scopes, image, runtime)
    finally:
        end_processes(warden)
    _print_json(outcomes) if as_json else _print(outcomes)
    if not all(outcome.ok for outcome in outcomes):
        raise typer.Exit(ExitCode.FAILED)


def _scopes(policy: Path | None, server: str | None) -> "tuple[EgressPolicy, ...]":
    if policy is None:
        return ()
    from sandboxd.controller.plan import choose_server
    from sandboxd.policy.loading import read_policy

    document = read_policy(policy)
    return document.scopes(choose_server(document, server))


def _probe(
    warden: "WardenClient", settings: "Settings", scopes: "tuple[EgressPolicy, ...]", image: str, runtime: str
) -> "list[Outcome]":
    from sandboxd import ids
    from sandboxd.cli.processes import StateLeases, give_up_root
    from sandboxd.cli.run import say
    from sandboxd.controller.environment import BASICS
    from sandboxd.controller.plan import runtime_named
    from sandboxd.controller.probing import open_host_listener, run_attempts
    from sandboxd.controller.sandbox import Scope, open_sandbox
    from sandboxd.state.store import open_state
    from sandboxd.warden.protocol import ContainerSpec

    addresses = host_addresses()
    scope = Scope(tuple(policy.to_wire() for policy in scopes), settings.pins)
    spec = ContainerSpec(ids.sandbox_id(), "probe", "mcp:probe", image, runtime_named(runtime), unix_sockets=True)
    give_up_root(settings, warden)
    with open_state(settings.state_database) as state, open_host_listener() as listener:
        with open_sandbox(warden, spec, scope, StateLeases(state), say) as sandbox:
            return run_attempts(sandbox, listener, addresses, dict(BASICS))


def host_addresses() -> list[str]:
    """This host's IPv4 addresses but loopback's. Raises SandboxdError."""
    try:
        found: Any = json.loads(subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        raise SandboxdError("no_ip", "the host's addresses can't be read", hint="install iproute2") from None
    addresses = [entry["local"] for link in found for entry in link.get("addr_info", [])]
    return [address for address in addresses if not address.startswith("127.")]


def _print(outcomes: "list[Outcome]") -> None:
    width = max(len(outcome.name) for outcome in outcomes)
    for outcome in outcomes:
        word = "held " if outcome.ok else "BROKE"
        typer.echo(f"{word}  {outcome.name:<{width}}  {outcome.promise:<18}  {harmless(outcome.seen)}")
    broke = sum(not outcome.ok for outcome in outcomes)
    typer.echo(f"{len(outcomes)} attempts, {broke} got through" + ("" if broke else ": the sandbox holds"))


def _print_json(outcomes: "list[Outcome]") -> None:
    broke = sum(not outcome.ok for outcome in outcomes)
    typer.echo(json.dumps({"attempts": [asdict(o) for o in outcomes], "broke": broke}, indent=2))
