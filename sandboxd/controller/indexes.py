"""Where this host gets packages: its own pip and npm configuration, read when it is needed and written down nowhere.

What comes out is what a sealed container needs to reach the same places and nothing else: origins to allow, where
their names really are, certificates, settings. Called by `image` and `run` before they give up root. Not here: what is
installed (`packages`).
"""

import ast
import html.parser
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from sandboxd import limits
from sandboxd.controller import install
from sandboxd.controller.packages import Package
from sandboxd.errors import SandboxdError
from sandboxd.settings import Pin

SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_DEFAULT_INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What this host's own client would use. `url` None: it says nothing. May hold a credential of the index."""

    url: str | None = field(repr=False)
    certificates: str = field(repr=False)
    extra: tuple[str, ...] = field(default=(), repr=False)
    trusted: tuple[str, ...] = ()
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class Index:
    """`allows`: origins in the short form of policies, nothing else may be reached. `pins`: where this host finds
    them. `env` and `files` may hold a credential of the index: never shown, never in an image."""

    allows: tuple[str, ...]
    pins: tuple[Pin, ...]
    env: dict[str, str] = field(repr=False)
    files: dict[str, str] = field(repr=False)
    trusted: tuple[str, ...] = ()


def read_configuration(package: Package) -> Configuration:
    """The host's own settings, as its user has them: with that user's privileges. Raises SandboxdError."""
    if package.registry == "pypi":
        return _pip_configuration(pip_settings(_pip("config", "list")), os.environ)
    return _npm_configuration(package, read_npmrc(_npmrc_files()), os.environ)


def find_index(package: Package, found: Configuration) -> Index:
    """Asks the index where the package's files are. Needs no privilege. Raises SandboxdError: no such package, no
    answer, no index known."""
    if not found.url:
        raise _error(f"no {package.registry} index is configured on this host", "npm config set registry URL")
    find = _find_pypi if package.registry == "pypi" else _find_npm
    return find(package, found, found.url)


# --- PyPI ----------------------------------------------------------------------------------------------------


def pip_settings(listing: str) -> dict[str, str]:
    """`pip config list` as pip's `install` command takes it: its own section over the global one, variables over
    both. Pure."""
    found: dict[tuple[int, str], str] = {}
    for line in listing.splitlines():
        key, equals, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if equals and section in _PIP_SECTIONS:
            found[_PIP_SECTIONS.index(section), name] = str(ast.literal_eval(value))
    return {name: found[rank, name] for rank, name in sorted(found)}


_PIP_SECTIONS = ("global", "install", ":env:")


def _pip_configuration(settings: Mapping[str, str], environ: Mapping[str, str]) -> Configuration:
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        raise _error("the host's pip uses no index (no-index)", "pip config list shows where that is set")
    extra = settings.get("extra-index-url", "").split()
    return Configuration(
        url=settings.get("index-url") or _pip_python("-c", _DEFAULT_INDEX).strip(),
        certificates=_certificates(settings.get("cert"), environ, "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
        extra=tuple(
            url for url in extra if url.startswith(("https://", "http://"))
        ),  # a folder is not to be seen there
        trusted=tuple(settings.get("trusted-host", "").split()),
    )


def _find_pypi(package: Package, found: Configuration, main: str) -> Index:
    places: dict[str, None] = {}
    for url in (main, *found.extra):
        page = f"{url.rstrip('/')}/{package.name}/"
        places |= dict.fromkeys((url, *_links(page, found.certificates, required=not found.extra)))
    return Index(
        allows=_allows(places),
        pins=_pins(places),
        env={
            "PIP_INDEX_URL": main,
            **({"PIP_EXTRA_INDEX_URL": " ".join(found.extra)} if found.extra else {}),
            "PIP_CERT": install.CERTIFICATES,
            "PIP_CONFIG_FILE": "/dev/null",
        },
        files={install.CERTIFICATES: found.certificates},
        trusted=found.trusted,
    )


def _links(page: str, certificates: str, *, required: bool) -> list[str]:
    """Where the package's files are, by its page in the index (PEP 691, or PEP 503's HTML)."""
    found = _get(page, _SIMPLE_JSON, certificates, required=required)
    if found is None:
        return []
    url, kind, body = found
    if "json" not in kind:
        return [url, *(urljoin(url, link) for link in html_links(body.decode(errors="replace")))]
    document = _json_object(body, page)
    files = cast(Iterable[Mapping[str, Any]], document.get("files", ()))
    return [url, *(urljoin(url, str(file["url"])) for file in files)]


def html_links(text: str) -> list[str]:
    """The targets of all anchors. Pure."""
    links: list[str] = []

    class Anchors(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            links.extend(value for name, value in attrs if tag == "a" and name == "href" and value)

    Anchors().feed(text)
    return links


def _pip(*arguments: str) -> str:
    return _pip_python("-m", "pip", *arguments)


def _pip_python(*arguments: str) -> str:
    """This interpreter if it has pip, else the system's."""
    for python in dict.fromkeys((sys.executable, shutil.which("python3") or sys.executable)):
        done = subprocess.run([python, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return done.stdout
    raise _error("no Python on this host has pip, whose configuration tells the index", "apt-get install python3-pip")


# --- npm -----------------------------------------------------------------------------------------------------


def read_npmrc(files: Iterable[Path]) -> dict[str, str]:
    """All settings of npm's files, the first file's stand. `${NAME}` is replaced as npm does."""
    found: dict[str, str] = {}
    for file in files:
        try:
            text = file.read_text()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise _error(f"{file}: {type(error).__name__}", "npm itself must be able to read it") from None
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith(("#", ";")):
                filled = re.sub(r"\$\{(\w+)\}", lambda m: os.environ.get(m[1], ""), value.strip().strip("\"'"))
                found.setdefault(name.strip(), filled)
    return found


def _npmrc_files() -> list[Path]:
    named = {name.lower(): value for name, value in os.environ.items() if value}
    user = Path(named.get("npm_config_userconfig", "~/.npmrc")).expanduser()
    system = named.get("npm_config_globalconfig", "/etc/npmrc")
    return [user, Path(system), Path("/usr/etc/npmrc"), Path("/usr/local/etc/npmrc")]


def _npm_configuration(package: Package, settings: Mapping[str, str], environ: Mapping[str, str]) -> Configuration:
    scope = package.name.partition("/")[0] if package.name.startswith("@") else ""
    variables = {name.lower().removeprefix("npm_config_"): value for name, value in environ.items() if value}
    certificates = variables.get("cafile") or settings.get("cafile")
    return Configuration(
        url=(
            (settings.get(f"{scope}:registry") if scope else None)
            or variables.get("registry")
            or settings.get("registry")
            or _ask_npm()
        ),
        certificates=_certificates(certificates, environ, "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"),
        secrets={name: value for name, value in settings.items() if name.startswith("//")},
    )


def _find_npm(package: Package, found: Configuration, registry: str) -> Index:
    page = f"{registry.rstrip('/')}/{quote(package.name, safe='@')}/{package.version}"
    where = urlsplit(registry)._replace(scheme="", query="", fragment="").geturl().rstrip("/")
    secrets = {name: value for name, value in found.secrets.items() if name.rpartition(":")[0].rstrip("/") == where}
    answer = _get(page, "application/json", found.certificates, required=True, headers=_authorization(secrets))
    assert answer is not None
    archive = _json_object(answer[2], page).get("dist", {}).get("tarball", "")
    places = [registry, str(archive)] if archive else [registry]
    lines = [f"registry={registry}", *(f"{name}={value}" for name, value in secrets.items()), "update-notifier=false"]
    return Index(
        allows=_allows(places),
        pins=_pins(places),
        env={"NPM_CONFIG_USERCONFIG": install.NPM_SETTINGS, "NODE_EXTRA_CA_CERTS": install.CERTIFICATES},
        files={install.CERTIFICATES: found.certificates, install.NPM_SETTINGS: "\n".join(lines) + "\n"},
    )


def _ask_npm() -> str | None:
    if not shutil.which("npm"):
        return None
    done = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True, cwd="/")
    return done.stdout.strip() if done.returncode == 0 and done.stdout.startswith("http") else None


def _authorization(secrets: Mapping[str, str]) -> dict[str, str]:
    for name, value in secrets.items():
        if name.endswith(":_authToken"):
            return {"Authorization": f"Bearer {value}"}
        if name.endswith(":_auth"):
            return {"Authorization": f"Basic {value}"}
    return {}


# --- both ----------------------------------------------------------------------------------------------------


def _certificates(configured: str | None, environ: Mapping[str, str], *variables: str) -> str:
    """The text of the bundle that this host trusts."""
    named = [configured, *(environ.get(name) for name in variables)]
    path = next((Path(name) for name in named if name), SYSTEM_CERTIFICATES)
    try:
        return path.read_text()
    except OSError as error:
        why = f"certificates of this host: {path}: {error.strerror}"
        raise _error(why, "apt-get install ca-certificates") from None


def _get(
    url: str, accept: str, certificates: str, *, required: bool, headers: Mapping[str, str] | None = None
) -> tuple[str, str, bytes] | None:
    """Where it ended up, its media type, its body. None: there is none, and it isn't required."""
    parts = urlsplit(url)
    plain = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    credentials = dict(headers or {})
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    context = ssl.create_default_context()
    context.load_verify_locations(cadata=certificates)
    try:
        _origin(plain)
        request = urllib.request.Request(plain, headers={"Accept": accept, "User-Agent": "sandboxd"})  # noqa: S310
        for name, value in credentials.items():
            request.add_unredirected_header(name, value)  # a redirect's target is another's
        with urllib.request.urlopen(request, timeout=limits.INDEX, context=context) as answer:  # noqa: S310
            body = answer.read(limits.INDEX_PAGE + 1)
            if len(body) > limits.INDEX_PAGE:
                raise _error(f"{plain}: longer than {limits.INDEX_PAGE} bytes", "is that a package index?")
            return answer.url, answer.headers.get_content_type(), body
    except urllib.error.HTTPError as error:
        if error.code == 404 and not required:
            return None
        if error.code == 404:
            why = f"the index has no such package, or not this version: {plain}: HTTP 404"
            raise SandboxdError("index", why, hint="is the name right, and the version?") from None
        why = f"{plain}: HTTP {error.code}"
        raise SandboxdError("index", why, hint="does the host's own client reach it?") from None
    except (OSError, ValueError) as error:
        raise SandboxdError("index", f"{plain}: {error}", hint="does the host's own client reach it?") from None


def _json_object(body: bytes, url: str) -> dict[str, Any]:
    try:
        document: Any = json.loads(body)
        if isinstance(document, dict):
            return cast(dict[str, Any], document)
    except (ValueError, RecursionError):
        pass
    raise _error(f"{urlsplit(url).hostname} did not answer with JSON", "is that a package index?")


def _origin(url: str) -> tuple[str, str, int]:
    """Scheme, host, port. Raises SandboxdError for what is neither HTTP nor HTTPS."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _error(
            f"not a place on the web: {parts.scheme}://{parts.hostname}", "an index is reached by HTTPS or HTTP"
        )
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _allows(urls: Iterable[str]) -> tuple[str, ...]:
    """Each origin once, as `--allow` takes it."""
    origins = dict.fromkeys(map(_origin, urls))
    return tuple(f"{'tls' if scheme == 'https' else 'http'}://{host}:{port}" for scheme, host, port in origins)


def _pins(urls: Iterable[str]) -> tuple[Pin, ...]:
    """What this host resolves the names to, now: IPv4 where there is one."""
    hosts = dict.fromkeys((host, port) for _, host, port in map(_origin, urls))
    return tuple(Pin(host, _resolve(host, port), port) for host, port in hosts)


def _resolve(host: str, port: int) -> str:
    try:
        found: Sequence[Any] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        hint = "a package is installed over a direct connection; a proxy is not used"
        raise SandboxdError("index", f"{host} can't be resolved: {error}", hint=hint) from None
    return str(sorted(found, key=lambda entry: entry[0] != socket.AF_INET)[0][4][0])


def _error(message: str, hint: str) -> SandboxdError:
    return SandboxdError("index", message, hint=hint)
