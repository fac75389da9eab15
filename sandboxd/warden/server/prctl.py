"""What a process says of itself to the kernel, and giving up root for good. Called by our own processes only."""

import ctypes
import os
import pwd
import signal

from sandboxd.errors import SandboxdError

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_NO_NEW_PRIVS = 1, 4, 15, 38
_libc = ctypes.CDLL(None, use_errno=True)


def forbid_new_privileges() -> None:
    """No program started from here gains anything by set-id bits."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


# What a process of ours may need of the environment, and by which settings file an operator tells whose it is.
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "SANDBOXD_SETTINGS")


def forget_environment() -> None:
    """Drop the environment that came with the fork: it may hold the caller's secrets, and this process needs none.
    The text that the kernel put on the stack is overwritten too."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    block = ctypes.POINTER(ctypes.c_void_p).in_dll(_libc, "environ")
    texts: list[int] = []
    while text := block[len(texts)]:
        texts.append(text)
    os.environ.clear()
    for text in texts:
        content = ctypes.string_at(text)
        if content.partition(b"=")[0].decode(errors="replace") not in kept:
            ctypes.memset(text, 0, len(content))
    os.environ.update(kept)


def be_undumpable() -> None:
    """No core, and nobody of equal uid reads our memory through /proc or ptrace."""
    _prctl(_PR_SET_DUMPABLE, 0)


def set_name(name: str) -> None:
    """What `ps` shows (15 bytes)."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def die_with_parent(parent: int) -> None:
    """SIGKILL when the parent (its pid) ends, also if it has already. A change of user clears this: call it after."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def become_user(name: str) -> None:
    """Give up root for good: that user's ids, no other group. Raises SandboxdError `no_user`."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise SandboxdError("no_user", f"no user {name!r} on this host", hint="deploy/setup makes it") from None
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)


def _prctl(option: int, argument: object) -> None:
    if _libc.prctl(option, argument, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")
