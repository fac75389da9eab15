"""Text in a policy that looks like a credential. Pure; called by the models, which refuse it: secrets are named,
never written down."""

import re

_VALUES = re.compile(
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9_-]{16,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[A-Za-z0-9_-]{30,}|hf_[A-Za-z0-9]{30,}|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|(?i:\b(?:bearer|basic)\s+[a-z0-9._~+/=-]{8,})"
    r"|[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s:@]+@"
)
_HEADERS = re.compile(
    r"(?i:authorization|proxy-authorization|cookie|set-cookie|.*(?:token|secret|password|api-?key|access-?key).*)"
)
_VARIABLES = re.compile(r"(?i:(?:.*_)?(?:password|passwd|secret|api_?key|access_key|auth_token|access_token))")
_REFERENCE = re.compile(r"\$\{[^}]*\}")


def looks_like_credential(text: str) -> bool:
    """Whether some part of `text` has the form of a well-known kind of credential."""
    return _VALUES.search(text) is not None


def is_credential_header(name: str) -> bool:
    """Whether a header of this name carries a credential by its purpose."""
    return _HEADERS.fullmatch(name) is not None


def is_credential_variable(name: str) -> bool:
    """Whether an environment variable of this name holds a credential by its purpose."""
    return _VARIABLES.fullmatch(name) is not None


def has_reference(text: str) -> bool:
    """Whether `${…}` stands in `text`: nothing is expanded here."""
    return _REFERENCE.search(text) is not None
