"""What a client gave up before it gave up root: of what it could ask, only what it then named is left.

A controller reads what hostile servers say, as a user without privileges; taken over, it must not get through the
warden what its user could not have: any directory of the host, an image that others start from. Called by
`operations` and `sandboxes`, one object a client. Not here: what nobody may ask (`admission`).
"""

from sandboxd.errors import SandboxdError
from sandboxd.warden.protocol import Confine, ContainerSpec


class Confinement:
    """Open until `confine`; every refusal is a SandboxdError `confined`."""

    def __init__(self) -> None:
        self._left: Confine | None = None

    def confine(self, left: Confine) -> None:
        """Once."""
        if self._left is not None:
            raise _refused("this client is confined already")
        self._left = left

    def check_mounts(self, spec: ContainerSpec) -> None:
        """May its sandboxes see these directories?"""
        for mount in spec.mounts:
            if self._left is not None and mount.source not in self._left.directories:
                raise _refused(f"{mount.source} was not named when this client was confined")

    def check_commit(self, image: str) -> None:
        """May it make this image?"""
        if self._left is not None and image not in self._left.images:
            raise _refused(f"image {image[:80]!r} was not named when this client was confined")

    def check_removal(self) -> None:
        """May it remove images?"""
        if self._left is not None:
            raise _refused("a confined client removes no images")


def _refused(message: str) -> SandboxdError:
    return SandboxdError("confined", message, hint="what a client needs is named before it gives up root")
