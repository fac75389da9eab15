"""Attempts on the kernel, the engine and the processes around the workload, none of them over the network."""

import ctypes
import os
import signal
from typing import Any

from inside import wire

libc = ctypes.CDLL(None, use_errno=True)
CLONE = {"newns": 0x20000, "newuser": 0x10000000, "newnet": 0x40000000, "newpid": 0x20000000, "newuts": 0x4000000}
# x86_64 numbers, with arguments that would succeed or fail differently where the call is allowed.
CALLS: dict[str, tuple[int, ...]] = {
    "io_uring_setup": (425, 1, 0),
    "io_uring_register": (427, 0, 0, 0, 0),
    "bpf": (321, 0, 0, 0),
    "keyctl": (250, 0, -3, 0),
    "add_key": (248, 0, 0, 0, 0, -3),
    "userfaultfd": (323, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "memfd_secret": (447, 0),
    "name_to_handle_at": (303, -100, 0, 0, 0, 0),
    "open_by_handle_at": (304, -100, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "pivot_root": (155, 0, 0),
    "ptrace_traceme": (101, 0, 0, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
    "pidfd_getfd": (438, 0, 0, 0),
    "fanotify_init": (300, 0, 0),
    "swapon": (167, 0, 0),
    "reboot": (169, 0, 0, 0),
    "clone3_newnet": (435, 0, 0),
}


def _call(*numbers: int) -> str:
    ctypes.set_errno(0)
    result = libc.syscall(*(ctypes.c_long(number) for number in numbers))
    return f"returned {result}" if result >= 0 else wire.name_of(OSError(ctypes.get_errno(), ""))


def calls(names: list[str]) -> dict[str, str]:
    """System calls by name; how each failed."""
    return {name: _call(*CALLS[name]) for name in names}


def socket_call(family: int, kind: int, protocol: int) -> str:
    """`socket` with arguments as wide as the register."""
    return _call(41, family, kind, protocol)


def unshare(flags: list[str]) -> dict[str, str]:
    """Namespaces of one's own, each in a child so that one success doesn't change the next."""
    return {flag: _in_child(lambda value=CLONE[flag]: _call(272, value)) for flag in flags}


def _in_child(attempt: Any) -> str:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, attempt().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def opened(paths: list[str], flags: int = os.O_RDONLY) -> dict[str, str]:
    """Open each path; `opened`, or why not."""
    return {path: _open(path, flags) for path in paths}


def _open(path: str, flags: int) -> str:
    try:
        os.close(os.open(path, flags))
        return "opened"
    except OSError as error:
        return wire.name_of(error)


def writable(paths: list[str]) -> list[str]:
    """Those of the paths that open for writing."""
    return [path for path, seen in opened(paths, os.O_WRONLY).items() if seen == "opened"]


def readable(paths: list[str]) -> list[str]:
    """Those of the paths that give as much as one byte that isn't a zero (kernel addresses read as zeros)."""
    return [path for path in paths if _content(path).strip(b"0\n")]


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(16)
    except OSError:
        return b""


def writable_sysctls() -> list[str]:
    """Everything below /proc/sys and /sys that opens for writing."""
    found: list[str] = []
    for top in ("/proc/sys", "/sys"):
        for folder, _, files in os.walk(top):
            found += writable([os.path.join(folder, name) for name in files])
    return found


def enter(paths: list[str]) -> dict[str, str]:
    """setns to namespaces that /proc shows."""
    return {path: _enter(path) for path in paths}


def _enter(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        return wire.name_of(error)
    try:
        ctypes.set_errno(0)
        return "entered" if libc.setns(fd, 0) == 0 else wire.name_of(OSError(ctypes.get_errno(), ""))
    finally:
        os.close(fd)


def attach(pid: int) -> str:
    """ptrace attach to another process."""
    ctypes.set_errno(0)
    if libc.ptrace(16, pid, 0, 0) == 0:
        return "attached"
    return wire.name_of(OSError(ctypes.get_errno(), ""))


def signalled(pid: int) -> str:
    """SIGKILL to another process: to process 1 of its own namespace the kernel drops it."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        return wire.name_of(error)
    return "alive" if os.path.exists(f"/proc/{pid}") else "gone"


def become(uid: int) -> str:
    """setuid."""
    try:
        os.setuid(uid)
        return "became"
    except OSError as error:
        return wire.name_of(error)


def make_device(path: str) -> str:
    """A device node of the host's first disk."""
    try:
        os.mknod(path, 0o600 | 0o060000, os.makedev(254, 0))
        return "made"
    except OSError as error:
        return wire.name_of(error)


def devices() -> list[str]:
    """What /dev holds besides the plain ones."""
    plain = {"console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
             "stdout", "tty", "urandom", "zero"}  # fmt: skip
    return sorted(set(os.listdir("/dev")) - plain)


def environment() -> list[str]:
    """The names of the environment's variables, of the workload and, where it can be read, of process 1."""
    names = sorted(os.environ)
    try:
        with open("/proc/1/environ", "rb") as first:
            names.append(f"process 1: {len(first.read())} bytes")
    except OSError as error:
        names.append(f"process 1: {wire.name_of(error)}")
    return names


def run(program: str, arguments: list[str]) -> dict[str, Any]:
    """A program shipped as bytes (kit/box.py puts it at `program`): its exit code and output."""
    import subprocess

    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    return {"code": done.returncode, "out": done.stdout.strip()}


def tree(paths: list[str]) -> dict[str, list[str]]:
    """What each directory holds."""
    return {path: sorted(os.listdir(path)) for path in paths}


def fill(path: str, limit: int) -> str:
    """Write into a directory until it is full or `limit` bytes are there."""
    block, total = bytes(1 << 20), 0
    try:
        with open(os.path.join(path, "filler"), "wb", buffering=0) as file:
            while total < limit:
                total += file.write(block)
    except OSError as error:
        return wire.name_of(error)
    return "not bounded"
