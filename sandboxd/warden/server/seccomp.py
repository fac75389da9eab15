"""The system calls a workload has: an allow list of our own (seccomp.json), with the arguments that matter. Pure.

Everything else fails with EPERM, whatever a newer kernel adds with ENOSYS, other architectures' calls kill. By
equality, never by exclusion: the kernel cuts a 64-bit argument down to 32, so "not 40" has bypasses (sealing.md).
Called by `sandboxes`.
"""

import functools
import json
import os
from pathlib import Path
from typing import Any

from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import Runtime

_TABLE = Path(__file__).with_name("seccomp.json")
_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}

_ENOSYS = 38
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_TYPES = 1, 2, 0xF
_IPPROTO_TCP, _IPPROTO_UDP = 6, 17
# Options that load a filter: SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF.
_SOL_SOCKET, _ATTACH_FILTERS, _PR_SET_SECCOMP = 1, (26, 50, 51, 52), 22
# Every CLONE_NEW* that clone takes (CLONE_NEWTIME goes through clone3 and unshare only).
_CLONE_NAMESPACES = 0x7E020000
_SET_ID_BITS = 0o6000
_S_IFMT, _S_IFIFO = 0o170000, 0o010000
# open's flags with which its mode counts: O_CREAT and the bit of O_TMPFILE.
_CREATES = 0o100 | 0o20000000
_PERSONALITIES = (0, 0xFFFFFFFF)  # plain Linux, and asking

Rule = dict[str, Any]


@functools.cache
def profile(*, unix_sockets: bool, runtime: Runtime = "runc", machine: str = "") -> str:
    """Docker's seccomp profile as JSON; `unix_sockets` False takes AF_UNIX's socket(), not socketpair(), away.

    Raises SandboxdError `seccomp_arch` on an architecture whose calls were never checked.
    """
    architecture = _ARCHITECTURES.get(machine or os.uname().machine)
    if architecture is None:
        raise SandboxdError("seccomp_arch", f"no list of system calls for {machine or os.uname().machine}")
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": [architecture],
            "syscalls": [*_listed(runtime), *_sockets(unix_sockets), *_filters(), *_processes(), *_modes()],
        },
        separators=(",", ":"),
    )


def _listed(runtime: Runtime) -> list[Rule]:
    table = json.loads(_TABLE.read_text())
    names = [name for group in table["allow"].values() for name in group]
    absent = [*table["absent"]]
    if runtime == "runsc":
        # Older builds know no errnoRet, and without ENOSYS a libc makes no thread. gVisor's namespaces are its own.
        absent.remove("clone3")
        names.append("clone3")
    return [_allow(names), {"names": absent, "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS}]


def _sockets(unix_sockets: bool) -> list[Rule]:
    """socket(family, type, protocol): TCP and UDP, and Unix sockets unless denied. No netlink: its unread answers are
    kernel memory that no control group is charged with, 250 KB a socket, so one sandbox could take all of the host's.
    """
    rules = [
        _allow(["socket"], _is(0, family), _masked(1, _SOCK_TYPES, kind), _is(2, protocol))
        for family in (_AF_INET, _AF_INET6)
        for kind, own in ((_SOCK_STREAM, _IPPROTO_TCP), (_SOCK_DGRAM, _IPPROTO_UDP))
        for protocol in (0, own)
    ]
    if unix_sockets:
        rules.append(_allow(["socket"], _is(0, _AF_UNIX), _is(2, 0)))
    return [*rules, _allow(["socketpair"], _is(0, _AF_UNIX), _is(2, 0))]


def _filters() -> list[Rule]:
    """No packet or system call filters. The compiled code of all filters that have no privilege comes out of one pool
    of the host, and with an empty one no other sandbox starts."""
    return [
        *(_allow(["setsockopt"], rule) for rule in _all_but(1, _SOL_SOCKET)),
        *(_allow(["setsockopt"], rule) for rule in _all_but(2, *_ATTACH_FILTERS)),
        *(_allow(["prctl"], rule) for rule in _all_but(0, _PR_SET_SECCOMP)),
    ]


def _processes() -> list[Rule]:
    return [
        _allow(["clone"], _masked(0, _CLONE_NAMESPACES, 0)),
        *(_allow(["personality"], _is(0, value)) for value in _PERSONALITIES),
    ]


def _modes() -> list[Rule]:
    """No set-id bits: on a mounted host directory they would count outside, for the directory's owner."""
    return [
        _allow(["chmod", "fchmod", "creat"], _masked(1, _SET_ID_BITS, 0)),
        _allow(["fchmodat"], _masked(2, _SET_ID_BITS, 0)),
        _allow(["open"], _masked(1, _CREATES, 0)),
        _allow(["open"], _masked(2, _SET_ID_BITS, 0)),
        _allow(["openat"], _masked(2, _CREATES, 0)),
        _allow(["openat"], _masked(3, _SET_ID_BITS, 0)),
        _allow(["mknod"], _masked(1, _S_IFMT | _SET_ID_BITS, _S_IFIFO)),
        _allow(["mknodat"], _masked(2, _S_IFMT | _SET_ID_BITS, _S_IFIFO)),
    ]


def _allow(names: list[str], *arguments: dict[str, Any]) -> Rule:
    rule: Rule = {"names": names, "action": "SCMP_ACT_ALLOW"}
    return rule | {"args": list(arguments)} if arguments else rule


def _is(index: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}


def _all_but(index: int, *excluded: int) -> list[dict[str, Any]]:
    """Conditions, of which every 32-bit number but these meets one: for each of these and each bit, the block of the
    numbers that begin alike and differ in that bit. Bits above are cut by the kernel, and don't count here either."""
    blocks = {
        (0xFFFFFFFF >> bit << bit, (value >> bit ^ 1) << bit): None for value in excluded for bit in range(32)
    }  # fmt: skip
    return [_masked(index, mask, start) for mask, start in blocks if all(value & mask != start for value in excluded)]


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
