"""Credentials of allowed requests: headers set, placeholders anywhere else refused (egress.md 4). Pure.

A header that carries a secret is the gateway's: what the workload put there is dropped, but for the scheme or the user
that it chose around its placeholder where the rule leaves the format open. Called by the HTTP flows. Not here: whether
a request is allowed.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes

from sandboxd.egress.vault import PLACEHOLDER_PREFIX, Scan, Vault
from sandboxd.egress.wire.http_messages import Header, RequestHead
from sandboxd.egress.wire.outcome import Refusal
from sandboxd.policy.credentials import PLACE, header_value
from sandboxd.policy.rules import Credential
from sandboxd.reasons import Reason

_PLACEHOLDER = rf"{PLACEHOLDER_PREFIX}[0-9a-f]+"
_OWN_SCHEME = re.compile(rf"([A-Za-z][A-Za-z0-9-]{{0,31}}) {_PLACEHOLDER}")
_OWN_USER = re.compile(rf"([ -9;-~]{{0,128}}):{_PLACEHOLDER}")
_BASIC = re.compile(rb"(?i:basic) +([A-Za-z0-9+/]+={0,2})")


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request with its credentials. `secrets`: the names of those that went in, for the record."""

    head: RequestHead
    secrets: tuple[str, ...] = ()


class Guard:
    """What an HTTP flow asks about requests that the policy allows. `credentials` are the connection's rule's."""

    def __init__(self, vault: Vault, credentials: Sequence[Credential] = ()) -> None:
        self.credentials = credentials
        self._vault = vault

    def admit(self, head: RequestHead) -> Admitted | Refusal:
        """The request as upstream gets it."""
        names = {each.header.lower().encode(): each for each in self.credentials}
        rest = tuple(field for field in head.headers if field[0] not in names)
        if self._misplaced(head, rest):
            return Refusal(Reason.PLACEHOLDER, "a secret's placeholder where no secret goes")
        if not names:
            return Admitted(head)
        if head.method == "TRACE":
            return Refusal(Reason.METHOD_PATH, "TRACE would send the credentials back")
        set_: list[Header] = []
        for name, credential in names.items():
            secret = self._vault.value(credential.secret)
            if secret is None:
                return Refusal(Reason.PLACEHOLDER, f"the gateway has no secret {credential.secret}")
            own = [value for field, value in head.headers if field == name]
            set_.append((name, header_value(_format(credential, own, self._vault), secret)))
        return Admitted(replace(head, headers=(*rest, *set_)), tuple(each.secret for each in self.credentials))

    def scan(self) -> Scan:
        """A look at a request's body as it passes."""
        return self._vault.scan()

    def _misplaced(self, head: RequestHead, headers: Sequence[Header]) -> bool:
        target = head.path.encode() + b"?" + (head.query or b"")
        parts = [target, unquote_to_bytes(target), *(part for field in headers for part in field)]
        parts += [pair for _, value in headers if (pair := _basic_pair(value))]
        return any(map(self._vault.in_bytes, parts))


def _format(credential: Credential, own: Sequence[bytes], vault: Vault) -> str:
    """The rule's format; where it leaves that open, the workload's, if it is a scheme or a user and a placeholder."""
    if credential.format != PLACE or len(own) != 1:
        return credential.format
    pair = _basic_pair(own[0])
    if pair is not None and vault.in_bytes(pair) and (user := _OWN_USER.fullmatch(pair.decode("latin-1"))):
        return f"Basic {user[1]}:{PLACE}" if PLACE not in user[1] else PLACE
    if vault.in_bytes(own[0]) and (scheme := _OWN_SCHEME.fullmatch(own[0].decode("latin-1"))):
        return f"{scheme[1]} {PLACE}"
    return credential.format


def _basic_pair(value: bytes) -> bytes | None:
    """User and password of a Basic credential (RFC 7617 2)."""
    match = _BASIC.fullmatch(value)
    try:
        return base64.b64decode(match[1], validate=True) if match else None
    except binascii.Error:
        return None
