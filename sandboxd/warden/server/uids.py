"""A user id of its own for every sandbox: with a shared one, inotify instances, message queues and pipe pages are
shared too (sealing.md).

A claim is an abstract Unix socket of the host's namespace, so two wardens never take the same, and a dead one's claims
are gone with it. Called by `sandboxes`.
"""

import errno
import os
import socket

from sandboxd.errors import SandboxdError

# Above every distribution's users and the usual subordinate ids, below 2^31, which some programs take as negative.
FIRST = 1_879_048_192
LAST = 2_147_352_575
_TRIES = 100


def claim_uid() -> tuple[int, socket.socket]:
    """A free id and its claim, which holds until the socket is closed. Raises SandboxdError `no_uid`."""
    for _ in range(_TRIES):
        uid = FIRST + int.from_bytes(os.urandom(8)) % (LAST - FIRST + 1)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0sandboxd/uid/{uid}")
            return uid, claim
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
    raise SandboxdError("no_uid", "no user id is free for a sandbox")
