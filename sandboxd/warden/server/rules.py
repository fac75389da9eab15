"""Loading nftables rules into the thread's namespace, through the library that `nft` itself is made of.

In the process it takes 1 ms, as a program 6. One call at a time: the library does not promise more. Called by `seal`.
"""

import ctypes
import functools
import threading

from sandboxd.errors import SandboxdError

_LIBRARY = "libnftables.so.1"
_one_at_a_time = threading.Lock()


def load_rules(text: bytes) -> None:
    """All of `text` in one transaction. Raises SandboxdError `already_sealed` where its table is there already,
    `seal_rules` for any other refusal, `seal_tools` without nftables on the host."""
    nft = _library()
    with _one_at_a_time:
        context = nft.nft_ctx_new(0)
        try:
            nft.nft_ctx_buffer_error(context)
            if nft.nft_run_cmd_from_buffer(context, text) == 0:
                return
            errors = (nft.nft_ctx_get_error_buffer(context) or b"").decode(errors="replace")
        finally:
            nft.nft_ctx_free(context)
    first = (errors.splitlines() or ["no reason given"])[0]
    if "File exists" in first:
        raise SandboxdError("already_sealed", "the namespace has our table already: another sealed it")
    raise SandboxdError("seal_rules", f"the rules were refused: {first}", hint="sandboxd doctor checks the host")


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        nft = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise SandboxdError(
            "seal_tools", f"no {_LIBRARY} on this host", hint="deploy/setup installs nftables"
        ) from None
    nft.nft_ctx_new.restype = ctypes.c_void_p
    nft.nft_ctx_new.argtypes = [ctypes.c_uint32]
    nft.nft_ctx_buffer_error.argtypes = [ctypes.c_void_p]
    nft.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    nft.nft_ctx_get_error_buffer.argtypes = [ctypes.c_void_p]
    nft.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    nft.nft_ctx_free.argtypes = [ctypes.c_void_p]
    return nft
