"""The allow list of system calls, call by call, as a workload of the warden meets it."""

import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.warden.client import WardenClient
from tests.kit.warden import KIT, compile_static, import_image, run_to_end, spec_of

pytestmark = pytest.mark.docker

CALLS = """
    io_uring_setup io_uring_enter io_uring_register ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd bpf
    keyctl add_key request_key memfd_secret name_to_handle_at open_by_handle_at userfaultfd perf_event_open mount
    umount2 pivot_root chroot open_tree move_mount fsopen mount_setattr init_module finit_module delete_module
    kexec_load reboot swapon acct settimeofday clock_settime clock_adjtime fanotify_init quotactl syslog vhangup
    sethostname io_setup setns
"""
NAMESPACES = ["NEWNS", "NEWCGROUP", "NEWUTS", "NEWIPC", "NEWUSER", "NEWPID", "NEWNET"]
DENIED = [*CALLS.split(), *(f"unshare {name}" for name in ["NEWTIME", *NAMESPACES])]
DENIED += [f"clone {high}{name}" for name in NAMESPACES for high in ("", "high|")]
DENIED += ["personality no-randomize", "openat set-id", "openat tmpfile set-id", "fchmod set-id", "fchmodat set-id"]
DENIED += ["mknodat device", "mknodat fifo set-id"]
DENIED += ["attach filter", "attach filter high", "attach reuseport filter", "prctl seccomp", "prctl seccomp high"]
ABSENT = ["seccomp", "clone3", "openat2", "fchmodat2", "call 600"]
ALLOWED = ["clone", "personality ask", "memfd_create", "getpid", "pidfd_open", "inotify_init1", "epoll_create1"]
ALLOWED += ["membarrier", "openat", "openat stray mode", "fchmodat", "mknodat fifo"]
ALLOWED += ["reuse address", "detach filter", "only IPv6", "prctl name"]
if platform.machine() == "x86_64":
    DENIED += ["iopl", "ioperm", "modify_ldt", "mknod", "open set-id", "creat set-id", "chmod set-id", "chmod set-gid"]
    DENIED += ["chmod high set-id"]
    ALLOWED += ["open", "chmod"]
KILLED = ["i386 socketcall", "i386 socket", "i386 getpid", "x32 socket", "x32 getpid"]

STREAM, DGRAM, RAW, SEQPACKET = 1, 2, 3, 5


def expected_sockets() -> dict[str, str]:
    """Family, type and protocol that must work; all others must fail."""
    good = {f"socket {family} {STREAM} {protocol}": "ok" for family in (2, 10) for protocol in (0, 6)}
    good |= {f"socket {family} {DGRAM} {protocol}": "ok" for family in (2, 10) for protocol in (0, 17)}
    good |= {f"socket 1 {kind} 0": "ok" for kind in (STREAM, DGRAM, RAW, SEQPACKET)}  # RAW is made a DGRAM there
    return good | {"socketpair 1": "ok"}


@pytest.fixture(scope="module")
def calls_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = compile_static(KIT / "syscalls.c", tmp_path_factory.mktemp("calls") / "syscalls")
    name = f"sandboxd-test/syscalls:{program.stat().st_mtime_ns}"
    import_image(name, {"bin/syscalls": Path(program).read_bytes()})
    yield name
    subprocess.run(["docker", "image", "rm", "-f", name], check=True, capture_output=True)


def results(client: WardenClient, image: str, **more: object) -> dict[str, str]:
    lines = run_to_end(client, spec_of(image, **more), "syscalls").splitlines()
    return dict(line.split("\t") for line in lines)


def test_call_by_call(client: WardenClient, calls_image: str) -> None:
    seen = results(client, calls_image)
    expected = dict.fromkeys(DENIED, "EPERM") | dict.fromkeys(ABSENT, "ENOSYS") | dict.fromkeys(ALLOWED, "ok")
    if platform.machine() == "x86_64":
        expected |= dict.fromkeys(KILLED, "signal 31")
    assert {name: seen[name] for name in expected} == expected
    others = {name: result for name, result in seen.items() if name.startswith("socket")}
    works = {name: result for name, result in others.items() if result == "ok"}
    assert works == expected_sockets()
    # What the filter refuses is EPERM; what it lets through to the kernel may fail there (a raw unix socket).
    assert {result for name, result in others.items() if name not in works} <= {"EPERM", "ESOCKTNOSUPPORT"}
    assert set(seen) == set(expected) | set(others)


def test_without_unix_sockets(client: WardenClient, calls_image: str) -> None:
    seen = results(client, calls_image, unix_sockets=False)
    works = {name for name, result in seen.items() if name.startswith("socket") and result == "ok"}
    assert works == {name for name in expected_sockets() if not name.startswith("socket 1 ")}
