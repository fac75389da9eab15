"""What Docker tells of a container is judged line by line; each refusal has its code."""

import copy
from typing import Any

import pytest

from sandboxd.errors import SandboxdError
from sandboxd.warden.server.first_process import check_runsc_arguments
from sandboxd.warden.server.identity import check_inspection

ID = "c" * 64
GOOD: dict[str, Any] = {
    "Id": ID,
    "RestartCount": 0,
    "Path": "/.sandboxd/gate",
    "Args": [],
    "State": {
        "Running": True,
        "Paused": False,
        "Restarting": False,
        "Pid": 4711,
        "Status": "running",
        "FinishedAt": "0001-01-01T00:00:00Z",
    },
    "Config": {"Healthcheck": {"Test": ["NONE"]}},
    "HostConfig": {
        "NetworkMode": "none",
        "PidMode": "",
        "Privileged": False,
        "CapAdd": None,
        "CapDrop": ["ALL"],
        "Sysctls": None,
        "Devices": [],
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
    },
}


def test_ours_passes() -> None:
    check_inspection(GOOD, ID)


@pytest.mark.parametrize(
    ("where", "value", "code"),
    [
        ("Id", "d" * 64, "container_id"),
        ("HostConfig.NetworkMode", "bridge", "network_mode"),
        ("HostConfig.NetworkMode", "host", "network_mode"),
        ("HostConfig.NetworkMode", f"container:{ID}", "network_mode"),
        ("HostConfig.PidMode", "host", "pid_mode"),
        ("HostConfig.Privileged", True, "privileged"),
        ("HostConfig.CapAdd", ["NET_ADMIN"], "cap_add"),
        ("HostConfig.CapDrop", None, "cap_drop"),
        ("HostConfig.CapDrop", ["CHOWN"], "cap_drop"),
        ("HostConfig.Sysctls", {"net.ipv4.ip_forward": "1"}, "sysctls"),
        ("Mounts", [{"Type": "bind"}, {"Type": "volume", "Destination": "/data"}], "volumes"),
        ("HostConfig.Devices", [{"PathOnHost": "/dev/net/tun"}], "devices"),
        ("HostConfig.RestartPolicy", {"Name": "always"}, "restart_policy"),
        ("Config.Healthcheck", {"Test": ["CMD", "/evil"]}, "health_check"),
        ("Config.Healthcheck", None, "health_check"),
        ("Path", "/bin/sh", "entrypoint"),
        ("Args", ["more"], "entrypoint"),
        ("State.Running", False, "not_running"),
        ("State.Paused", True, "not_running"),
        ("State.Restarting", True, "not_running"),
        ("State.Pid", 0, "not_running"),
        ("State.FinishedAt", "2024-01-01T00:00:00Z", "ran_before"),
        ("RestartCount", 1, "ran_before"),
    ],
)
def test_each_refusal_has_its_code(where: str, value: object, code: str) -> None:
    found = copy.deepcopy(GOOD)
    place = found
    *parents, last = where.split(".")
    for name in parents:
        place = place[name]
    place[last] = value
    with pytest.raises(SandboxdError) as refused:
        check_inspection(found, ID)
    assert refused.value.code == code


RUNSC = ["runsc-sandbox", "--root=/r", "--network=host", "--oci-seccomp=true", "boot", "--io-fds=4", ID, ""]


def test_gvisors_command_line() -> None:
    check_runsc_arguments(RUNSC, ID)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["/bin/workload", *RUNSC[1:]], "not_runsc"),
        ([word for word in RUNSC if word != "boot"], "not_runsc"),
        ([word for word in RUNSC if word != ID], "not_runsc"),
        ([word for word in RUNSC if word != "--network=host"], "runsc_network"),
        ([word for word in RUNSC if word != "--oci-seccomp=true"], "runsc_seccomp"),
        (["runsc-sandbox", "boot", "--network=host", "--oci-seccomp=true", ID], "runsc_network"),
        ([""], "not_runsc"),
    ],
)
def test_gvisor_that_is_not_as_it_must_be(words: list[str], code: str) -> None:
    with pytest.raises(SandboxdError) as refused:
        check_runsc_arguments(words, ID)
    assert refused.value.code == code
