"""The demo's journey, after set-up: two real MCP servers under one policy, driven by the official Python client.

Prints what was tried and how it ended, then the audit table and a client's configuration. Exit 1 where anything ended
otherwise than it must. Called by `deploy/demo`.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from tests.kit.site import Site, open_site

ROOT = Path(__file__).parents[1]
SANDBOXD = str(ROOT / ".venv/bin/sandboxd")
EVERYTHING = "npm:@modelcontextprotocol/server-everything@2026.8.31"
FETCH = "pypi:mcp-server-fetch==2026.10.24"
ADDRESS = "127.83.0.1"  # this host's own, and nobody else's ports 80 and 443
ALLOWED, REFUSED = "docs.demo.test", "private.demo.test"

# mcp-server-fetch refuses by itself what is not a public address, the addresses that stand for names in a sandbox
# included; the gateway does that, and can't be asked not to: hence --allow-private-ips.
POLICY = f"""\
agent: {{name: demo}}
workspace: {{source: ., mode: ro}}
servers:
  everything:
    package: "{EVERYTHING}"
    workspace: none
  fetch:
    package: "{FETCH}"
    args: [--allow-private-ips, --ignore-robots-txt]
    env: {{SSL_CERT_FILE: /workspace/ca.pem}}
egress:
  rules:
    - {{id: docs-tls, action: allow, workloads: ["mcp:fetch"], to: {{hosts: [{ALLOWED}], ports: [443]}}, proto: tls}}
    - id: docs-http
      action: allow
      workloads: ["mcp:fetch"]
      to: {{hosts: [{ALLOWED}], ports: [80]}}
      proto: http
      http: [{{methods: [GET, HEAD]}}]
"""


class Report:
    """What was tried, one line each; `failed` counts what ended otherwise than it must."""

    def __init__(self) -> None:
        self.failed = 0

    def section(self, title: str) -> None:
        print(f"\n── {title}", flush=True)

    def check(self, what: str, seen: str, ok: bool) -> None:
        self.failed += not ok
        short = " ".join(seen.split())
        print(f"  {'ok  ' if ok else 'FAIL'} {what}: {short[:100]}{'…' if len(short) > 100 else ''}", flush=True)


def sandboxd(*arguments: str) -> str:
    """Run a command to its end; its output. Exits where it fails: its own message says what to do."""
    done = subprocess.run([SANDBOXD, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"deploy/demo: sandboxd {' '.join(arguments)} failed with {done.returncode}")
    return done.stdout


def server(policy: Path, name: str, pins: list[str]) -> StdioServerParameters:
    """What a client's configuration says."""
    options = [option for pin in pins for option in ("--pin", pin)]
    arguments = ["run", "--policy", str(policy), "--server", name, *options]
    return StdioServerParameters(command=SANDBOXD, args=arguments)


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


async def meet_everything(report: Report, parameters: StdioServerParameters) -> None:
    """Tools, progress and a call of the handshake era's reference server."""
    async with Client(parameters, mode="legacy", read_timeout_seconds=60) as client:
        tools = (await client.list_tools()).tools
        report.check("lists its tools", f"{len(tools)} tools", len(tools) > 10)
        steps: list[float] = []

        async def progress(done: float, _total: float | None, _message: str | None) -> None:
            steps.append(done)

        answer = text(await client.call_tool("get-sum", {"a": 40, "b": 2}))
        report.check("get-sum(40, 2)", answer, "42" in answer)
        arguments = {"duration": 1, "steps": 4}
        await client.call_tool("trigger-long-running-operation", arguments, progress_callback=progress)
        report.check("progress of a long call", str(steps), steps == [1, 2, 3, 4])


async def meet_fetch(report: Report, parameters: StdioServerParameters) -> None:
    """What it reaches and what it doesn't, in the modern era."""
    must_end = {
        f"https://{ALLOWED}/": True,
        f"http://{ALLOWED}/": True,
        f"https://{REFUSED}/": False,
        f"http://{REFUSED}/": False,
        "http://169.254.169.254/latest/meta-data/": False,
        "http://203.0.113.77/": False,
    }
    async with Client(parameters, mode="auto", read_timeout_seconds=60) as client:
        report.check("speaks", client.protocol_version, client.protocol_version == "2026-07-28")
        for url, allowed in must_end.items():
            result = await client.call_tool("fetch", {"url": url})
            reached = not result.is_error and "was fetched from" in text(result)
            report.check(f"fetch {url}", text(result), reached == allowed)


def check_site(report: Report, site: Site) -> None:
    """The other side's view."""
    names = sorted({arrival.name for arrival in site.since(0) if arrival.kind in ("hello", "request")})
    report.check("names that anyone asked the site for", ", ".join(names), names == [ALLOWED])


def configuration(policy: Path, pins: list[str]) -> str:
    """To paste into the configuration of an MCP client."""
    servers = {name: server(policy, name, pins) for name in ("everything", "fetch")}
    entries = {name: {"command": each.command, "args": each.args} for name, each in servers.items()}
    return json.dumps({"mcpServers": entries}, indent=2)


@contextmanager
def open_folder() -> Iterator[Path]:
    """The policy's folder, which the server sees read-only: it holds the site's certificate authority."""
    with tempfile.TemporaryDirectory(prefix="sandboxd-demo-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "policy.yaml").write_text(POLICY)
        yield folder


def main() -> int:
    """The whole journey; the exit code."""
    report, began = Report(), time.time()
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(began))
    report.section("package images (built inside a sealed container; a second time they are there)")
    for package in (EVERYTHING, FETCH):
        sandboxd("image", "build", package)
    with open_site([ALLOWED, REFUSED], ADDRESS, standard_ports=True) as site, open_folder() as folder:
        (folder / "ca.pem").write_bytes(site.ca_pem)
        # Pins are the operator's: where these names really are. The policy says which of them may be reached.
        pins = [f"{name}={ADDRESS}" for name in (ALLOWED, REFUSED)]
        report.section("the policy")
        print(POLICY, end="")
        policy = folder / "policy.yaml"
        sandboxd("policy", "check", str(policy))
        report.section("server-everything, sealed: nothing is open to it")
        anyio.run(meet_everything, report, server(policy, "everything", []))
        report.section(f"mcp-server-fetch, sealed: may reach {ALLOWED} only")
        anyio.run(meet_fetch, report, server(policy, "fetch", pins))
        check_site(report, site)
        report.section("sandboxd audit ls --agent demo (demo/probe: the seal, tried from inside before each start)")
        print(sandboxd("audit", "ls", "--agent", "demo", "--since", since), end="")
        report.section("the same in an MCP client's configuration, once that policy is in /etc/sandboxd/policy.yaml")
        print(configuration(Path("/etc/sandboxd/policy.yaml"), []))
    print(f"\n{'all as it must be' if not report.failed else f'{report.failed} ended otherwise than they must'}"
          f", {time.time() - began:.0f} s")  # fmt: skip
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
