"""The forms of `credentials`: which headers may carry a secret, and the value that a format and a secret make. Pure.

Called by the models and by `egress.injection`. Not here: where a secret comes from, when it is put in.
"""

import base64
import re

from sandboxd.policy.literals import has_reference, looks_like_credential

PLACE = "{}"
_BASIC = "Basic "
_TEXT = re.compile(r"[\x20-\x7e]*")
# They frame a message, say for whom it is, or belong to one connection: a secret in them would change the request.
_TAKEN = frozenset(
    (
        *("connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade"),
    )
)

Problem = tuple[str, str]  # what is wrong, what was expected


def header_problem(name: str) -> Problem | None:
    """A header that frames the message carries no secret."""
    if name.lower() in _TAKEN:
        return f"{name} can't carry a secret", "expected such as Authorization or X-Api-Key"
    return None


def format_problem(text: str) -> Problem | None:
    """A format is a header's value with one place for the secret, and no secret itself."""
    expected = "expected such as Bearer {}, token {} or Basic USER:{}"
    if text.count(PLACE) != 1 or not _TEXT.fullmatch(text) or text != text.strip():
        return "a format has printable ASCII and one {} for the secret", expected
    rest = text.removeprefix(_BASIC).replace(PLACE, "")
    if has_reference(rest) or looks_like_credential(rest):
        return "this looks like a credential; secrets are named, never written down", expected
    return None


def header_value(form: str, secret: str) -> bytes:
    """What the header says, as sent. `Basic USER:{}` is encoded as RFC 7617 2 says."""
    if form.startswith(_BASIC):
        pair = form.removeprefix(_BASIC).replace(PLACE, secret)
        return _BASIC.encode() + base64.b64encode(pair.encode())
    return form.replace(PLACE, secret).encode()
