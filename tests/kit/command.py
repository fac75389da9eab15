"""The `sandboxd` command as tests start it: the code under test, settings of the test's own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters

from sandboxd.settings import load_settings
from tests.kit.left import Scope
from tests.kit.world import make_folders

ROOT = Path(__file__).parents[2]
SANDBOXD = (sys.executable, "-c", "import sys; from sandboxd.main import main; sys.exit(main())")

EVERYTHING = "npm:@modelcontextprotocol/server-everything@2026.8.31"
FILESYSTEM = "npm:@modelcontextprotocol/server-filesystem@2026.8.31"
FETCH = "pypi:mcp-server-fetch==2026.10.24"
TIME = "pypi:mcp-server-time==2026.10.19"
PACKAGES = (EVERYTHING, FILESYSTEM, FETCH, TIME)


@dataclass(frozen=True, slots=True)
class Command:
    """`sandboxd …` under one settings file."""

    settings: Path
    scope: Scope

    @property
    def environment(self) -> dict[str, str]:
        passed = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return passed | {"SANDBOXD_SETTINGS": str(self.settings), "PYTHONPATH": str(ROOT)}

    def server(self, *arguments: str) -> StdioServerParameters:
        """What an MCP client's configuration says: `sandboxd run …`."""
        command, *first = (*SANDBOXD, "run", *arguments)
        return StdioServerParameters(command=command, args=list(first), env=self.environment)

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
        """`sandboxd …` with pipes for all three streams."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen([*SANDBOXD, *arguments], env=self.environment, **(pipes | options))

    def call(self, *arguments: str, stdin: bytes = b"", **options: Any) -> "subprocess.CompletedProcess[str]":
        """`sandboxd …` to its end, with bounded patience."""
        done = subprocess.run(
            [*SANDBOXD, *arguments], env=self.environment, input=stdin, capture_output=True, timeout=600, **options
        )
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def audit(self, *arguments: str) -> list[dict[str, Any]]:
        """Records as `sandboxd audit ls --json` prints them, one an output line."""
        done = self.call("audit", "ls", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


def write_settings(folder: Path, *extra: str) -> Path:
    """A settings file with folders below `folder`; `extra` are more lines."""
    lines = [f'state_dir = "{folder}/state"', f'run_dir = "{folder}/run"', *extra]
    path = folder / "settings.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def open_command(folder: Path, *extra: str) -> Command:
    """A command whose runs are told from all others by `folder`."""
    folder.chmod(0o755)
    settings = write_settings(folder, *extra)
    make_folders(load_settings(settings))
    return Command(settings, Scope(settings, folder / "run"))
