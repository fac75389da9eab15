"""The environment, directory and workspace a workload gets: exactly what was listed, and the few basics below. Pure
but for one look at the directory that is to be its workspace. Called by `run` and `probe`."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from sandboxd.controller.secrets import Secret
from sandboxd.errors import UsageError
from sandboxd.warden.protocol import JAVA_ROOTS, ROOTS, Mount

HOME = "/home/sandbox"
WORKSPACE = "/workspace"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Nothing of the caller's environment is inherited; programs misbehave without these.
BASICS = {"PATH": PATH, "HOME": HOME, "USER": "sandbox", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108 (inside)

# Where programs look for whom to trust, in a sandbox that trusts an authority of its own.
_ROOTS_VARIABLES = (
    *(
        "SSL_CERT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "AWS_CA_BUNDLE",
    ),
    *("CARGO_HTTP_CAINFO", "DENO_CERT", "PIP_CERT", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
)
TRUST = dict.fromkeys(_ROOTS_VARIABLES, ROOTS) | {
    "JAVA_TOOL_OPTIONS": f"-Djavax.net.ssl.trustStore={JAVA_ROOTS} -Djavax.net.ssl.trustStoreType=PKCS12 "
    "-Djavax.net.ssl.trustStorePassword=changeit"
}

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def make_environment(
    image: Iterable[str], given: Iterable[str], secrets: Iterable[Secret], *, trusts: bool = False
) -> dict[str, str]:
    """`image`: the image's own K=V, of which PATH alone is taken (its programs stand there); `given`: K=V of the
    command line; the later wins. `trusts`: it has an authority of its own. Raises UsageError, which never holds a
    value."""
    environment = BASICS | (TRUST if trusts else {}) | dict(v.split("=", 1) for v in image if v.startswith("PATH="))
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not _VARIABLE.fullmatch(name) or "\0" in value:
            shown = f" {name}" if _VARIABLE.fullmatch(name) and equals else ""
            raise UsageError(f"--env{shown}: not a variable", hint="expected NAME=VALUE", code="bad_env")
        environment[name] = value
    return environment | {secret.name: secret.value for secret in secrets}


def parse_workspace(text: str) -> Mount:
    """`DIR` or `DIR:ro`, mounted at /workspace; `~` is the caller's home directory. The warden judges where it really
    is. Raises UsageError."""
    path, writable = text.removesuffix(":rw"), True
    if text.endswith(":ro"):
        path, writable = text.removesuffix(":ro"), False
    # No shell stands between an MCP client's configuration and this.
    where = os.path.expanduser(path)
    problem = _directory_problem(Path(where)) if path else "no directory is named"
    if problem:
        raise UsageError(f"--workspace {text}: {problem}", hint="expected a directory, or DIR:ro", code="bad_workspace")
    return Mount(os.path.abspath(where), WORKSPACE, read_only=not writable)


def _directory_problem(path: Path) -> str:
    try:
        if not path.is_dir():
            return "not a directory" if path.exists() else "there is no such directory"
        with os.scandir(path):
            return ""
    except OSError as error:
        return f"can't be read: {error.strerror}"
