"""A controller that starts the processes, says so on stdout, and waits to be killed."""

import signal
from pathlib import Path

from sandboxd.settings import Settings
from sandboxd.warden.client import WardenClient
from sandboxd.warden.server.guardian import fork_processes
from tests.kit.gateway import run_refusing_gateway


def main(gate: str, run_dir: str) -> None:
    settings = Settings(gate=Path(gate), gateway_user="nobody", run_dir=Path(run_dir))
    client = WardenClient(fork_processes(settings, lambda: run_refusing_gateway))
    client.hello()
    print("started", flush=True)
    signal.pause()
