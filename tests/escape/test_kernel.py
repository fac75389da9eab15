"""Around the network: the kernel's other doors, the engine, the processes beside the workload."""

import pytest

from tests.escape.attempt import Attempt, attempt
from tests.kit.box import Box

EPERM = "EPERM"
CALLS = ["io_uring_setup", "io_uring_register", "bpf", "keyctl", "add_key", "userfaultfd", "perf_event_open",
         "memfd_secret", "name_to_handle_at", "open_by_handle_at", "kexec_load", "init_module", "mount", "pivot_root",
         "process_vm_readv", "pidfd_getfd", "fanotify_init", "swapon", "reboot"]  # fmt: skip
VSOCK = 40
DETOURS = "/tmp/attempt/detours"

# Below every library that honours a proxy's variables: the number of the error that ends it (104: reset).
RAW = """
import socket
s = socket.socket()
try:
    s.connect(("203.0.113.77", 80)); s.recv(1)
except OSError as error:
    print(error.errno)
"""

ATTEMPTS = [
    *(
        attempt(f"vsock-{way}", "kernel.run", DETOURS, [way], inside={"code": 1, "out": EPERM})
        for way in ("plain", "truncated", "pair", "io_uring")
    ),
    # Numbers of another system call table: the filter ends the process (SIGSYS).
    *(
        attempt(f"vsock-{way}", "kernel.run", DETOURS, [way], inside={"code": -31, "out": ""})
        for way in ("socketcall", "socket32", "x32")
    ),
    attempt("vsock-from-python", "kernel.socket_call", VSOCK, 1, 0, inside=EPERM),
    attempt("vsock-high-bits", "kernel.socket_call", (1 << 63) | VSOCK, 1, 0, inside=EPERM),
    attempt("system-calls", "kernel.calls", CALLS, inside=dict.fromkeys(CALLS, EPERM)),
    attempt("clone3", "kernel.calls", ["clone3_newnet"], inside={"clone3_newnet": "ENOSYS"}),
    attempt("unshare", "kernel.unshare", ["newns", "newuser", "newnet", "newpid", "newuts"],
            inside=dict.fromkeys(["newns", "newuser", "newnet", "newpid", "newuts"], EPERM)),
    attempt("setns", "kernel.enter", ["/proc/1/ns/net", "/proc/self/ns/net"],
            inside={"/proc/1/ns/net": "EACCES", "/proc/self/ns/net": EPERM}),
    attempt("first-process", "kernel.opened",
            ["/proc/1/root/", "/proc/1/mem", "/proc/1/environ", "/proc/1/fd/0", "/proc/1/maps"],
            inside=dict.fromkeys(["/proc/1/root/", "/proc/1/mem", "/proc/1/environ", "/proc/1/fd/0", "/proc/1/maps"],
                                 "EACCES")),
    attempt("ptrace-first-process", "kernel.attach", 1, inside=EPERM),
    attempt("kill-first-process", "kernel.signalled", 1, inside="alive"),
    attempt("become-root", "kernel.become", 0, inside=EPERM),
    attempt("become-neighbour", "kernel.become", 1879048192, inside=EPERM),
    attempt("sysctls", "kernel.writable_sysctls", inside=[]),
    attempt("root-file-system", "kernel.writable", ["/", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf",
                                                    "/.sandboxd/gate", "/usr/bin/env"], inside=[]),
    attempt("kernel-files", "kernel.readable", ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug",
                                                "/proc/kmsg", "/proc/kallsyms", "/sys/firmware", "/proc/sysrq-trigger",
                                                "/dev/mem", "/dev/kmsg", "/dev/vhost-vsock", "/dev/net/tun",
                                                "/dev/fuse", "/dev/kvm", "/dev/vda"], inside=[]),
    attempt("devices", "kernel.devices", inside=[]),
    attempt("make-device", "kernel.make_device", "/tmp/disk", inside=EPERM),
    attempt("empty-environment", "kernel.run", "/usr/bin/env", ["-i", "NO_PROXY=*", "/usr/bin/python3", "-c", RAW],
            inside={"code": 0, "out": "104"}, records=("decision deny floor_documentation - 203.0.113.77:80",)),
    attempt("environment", "kernel.environment", inside=["HOME", "LANG", "PATH", "process 1: EACCES"]),
    attempt("what-it-is", "other.facts", inside={"capabilities": ["0000000000000000"], "no_new_privileges": "1",
                                                 "seccomp": "2", "root": False}),
]  # fmt: skip


@pytest.mark.docker
@pytest.mark.parametrize("case", ATTEMPTS, ids=lambda case: case.id)
def test_kernel(box: Box, case: Attempt) -> None:
    box.check(case)
