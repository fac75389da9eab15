"""What every wire parser answers besides its own events: "more bytes, please" and "no"."""

from dataclasses import dataclass

from sandboxd.reasons import Reason


@dataclass(frozen=True, slots=True)
class NeedMore:
    """Nothing can be said yet."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The bytes are not what they must be. Final: a parser that refused says the same to all that follows.

    `detail`: one short sentence of ours for the audit log; never holds bytes of the peer.
    """

    reason: Reason
    detail: str


NEED_MORE = NeedMore()
