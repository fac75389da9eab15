"""Package images: what is asked for, by what name it is kept, how it is installed, what came of it. Pure.

A pinned npm or PyPI package is installed inside a sealed container and that is committed; at run time no index is
needed. Called by `builds`, `run` and `image`. Not here: where the host's indexes are (`indexes`), running anything.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, cast

from sandboxd import limits
from sandboxd.controller import install
from sandboxd.errors import SandboxdError, UsageError

Registry = Literal["npm", "pypi"]
BASES: dict[Registry, str] = {"npm": "sandboxd/node:latest", "pypi": "sandboxd/python:latest"}
# Packages that call programs which no package index has, git above all, and do nothing without them.
TOOLS_BASE = "sandboxd/shell:latest"
_NEED_TOOLS = ("pypi:mcp-server-git",)
IMAGE_KIND = "package"

EXPECTED = "expected npm:NAME@VERSION or pypi:NAME==VERSION, the version exact"
_NPM = re.compile(r"((?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*)@([0-9][0-9A-Za-z.+-]*)")
_PYPI = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([0-9][0-9A-Za-z.!+-]*)")
# A package of an index, whatever is said of its version: no place on the web, no path, no extras.
_NAMED: dict[Registry, re.Pattern[str]] = {
    "npm": re.compile(r"((?:@[\w.~-]+/)?[\w.~-]+)(?:@[^:/]*)?"),
    "pypi": re.compile(r"([A-Za-z0-9][\w.-]*?)\s*(?:[=<>~!@].*)?"),
}
_ASK_NEWEST: dict[Registry, str] = {"npm": "npm view {} version", "pypi": "pip index versions {}"}
_CONSTRAINT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*[<>=!~][ -~]{1,120}")
_PROGRAM = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@._+-]{0,127}")


@dataclass(frozen=True, slots=True)
class Package:
    """One exact version. `name` is canonical: of PyPI as PEP 503 writes it."""

    registry: Registry
    name: str
    version: str

    @property
    def requirement(self) -> str:
        """As its own client takes it."""
        return f"{self.name}{'@' if self.registry == 'npm' else '=='}{self.version}"

    def __str__(self) -> str:
        return f"{self.registry}:{self.requirement}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a package image is made of. `constraints`: of what it depends on (pypi); `scripts`: code of packages may
    run while they are installed (npm's install scripts, PyPI's source distributions); `base`: the image below it,
    empty: by the package."""

    package: Package
    constraints: tuple[str, ...] = ()
    scripts: bool = False
    base: str = ""

    @property
    def base_image(self) -> str:
        """The name of the image it is installed on."""
        named = f"{self.package.registry}:{self.package.name}"
        return self.base or (TOOLS_BASE if named in _NEED_TOOLS else BASES[self.package.registry])

    def image_name(self, base: str) -> str:
        """`base`: the base image's id. A change of anything gives another name."""
        facts = [str(self.package), sorted(self.constraints), self.scripts, base, install.FINGERPRINT]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
        path = re.sub(r"[^a-z0-9]+", "-", self.package.name).strip("-")
        version = re.sub(r"[^A-Za-z0-9.-]", "_", self.package.version)[:64]
        return f"sandboxd/pkg/{self.package.registry}-{path}:{version}-{digest}"


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command line that a package runner would have run. `program` None: the package's own."""

    package: Package
    program: str | None
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Installed:
    """What the container says was installed: every package with its hash, and the package's programs → path."""

    lock: tuple[dict[str, str], ...]
    programs: dict[str, str]


def parse_package(text: str) -> Package:
    """`npm:NAME@VERSION` or `pypi:NAME==VERSION`. Raises UsageError."""
    registry, _, rest = text.partition(":")
    if registry == "npm" and (match := _NPM.fullmatch(rest)):
        return Package("npm", match[1], match[2])
    if registry == "pypi" and (match := _PYPI.fullmatch(rest)):
        return Package("pypi", re.sub(r"[-_.]+", "-", match[1]).lower(), match[2])
    known = registry in BASES
    what = f"{text}: no exact version" if known and rest else f"not a package: {text[:200]!r}"
    raise UsageError(what, hint=EXPECTED, code="bad_package")


def parse_constraint(text: str) -> str:
    """A version constraint as pip takes it, such as `mcp<2`. Raises UsageError."""
    if not _CONSTRAINT.fullmatch(text):
        raise UsageError(f"not a constraint: {text[:200]!r}", hint="expected such as mcp<2", code="bad_constraint")
    return text


def recognise(command: Sequence[str]) -> Invocation | None:
    """What `npx` and `uvx` command lines would install and run; None for every other command. Raises UsageError
    where they name no exact version, or use an option that has no meaning here."""
    match tuple(command):
        case ("npx", *rest):
            return _runner(tuple(rest), "npx", ("-y", "--yes", "-q", "--quiet"), ("-p", "--package"), _npm_package)
        case ("uvx", *rest) | ("uv", "tool", "run", *rest):
            return _runner(tuple(rest), "uvx", ("-q", "--quiet"), ("--from",), _pypi_package)
        case _:
            return None


def _runner(
    words: tuple[str, ...], name: str, ignored: tuple[str, ...], sources: tuple[str, ...], parse: Any
) -> Invocation:
    package: Package | None = None
    while words and words[0].startswith("-"):
        option, equals, value = words[0].partition("=")
        words = words[1:]
        if option in sources and (equals or words):
            value, words = (value, words) if equals else (words[0], words[1:])
            package = parse(value, name)
        elif option == "--":
            break
        elif option not in ignored or equals:
            hint = f"supported: {', '.join((*ignored, *sources))}; or --image for any other command"
            raise UsageError(f"{name} {option}: not supported", hint=hint, code="bad_package")
    if not words:
        raise UsageError(f"{name}: nothing to run", hint=EXPECTED, code="bad_package")
    if package is not None:
        return Invocation(package, words[0], words[1:])
    return Invocation(parse(words[0], name), None, words[1:])


def _npm_package(text: str, name: str) -> Package:
    return _of_runner("npm", text, name, "npx -y NAME@VERSION")


def _pypi_package(text: str, name: str) -> Package:
    # uvx writes an exact version with == or @
    pinned = text if "==" in text else text.replace("@", "==", 1)
    return _of_runner("pypi", pinned, name, "uvx NAME==VERSION")


def _of_runner(registry: Registry, text: str, name: str, form: str) -> Package:
    try:
        return parse_package(f"{registry}:{text}")
    except UsageError:
        pass
    if named := _NAMED[registry].fullmatch(text):
        newest = _ASK_NEWEST[registry].format(named[1])
        hint = f"expected {form}: what runs is built once, from an exact version; `{newest}` tells the newest"
        raise UsageError(f"{name} {text[:200]}: no exact version", hint=hint, code="bad_package")
    hint = f"expected {form}; for anything else make an image, and name it with --image"
    raise UsageError(f"{name} {text[:200]}: not a package of the index", hint=hint, code="bad_package")


def choose_program(installed: Mapping[str, str], package: Package, wanted: str | None) -> str:
    """The program's path: the wanted one; else the only one, or the one named as the package. Raises UsageError."""
    if wanted is None and len(installed) == 1:
        return next(iter(installed.values()))
    name = wanted or package.name.rpartition("/")[2]
    if name in installed:
        return installed[name]
    if not installed:
        hint = "a library: a package that needs it installs it; for its own code: --image and the image's name"
        raise UsageError(f"{package} has no program", hint=hint, code="no_program")
    known = ", ".join(sorted(installed))
    if wanted is None:
        raise UsageError(
            f"which program of {package}?", hint=f"expected -- PROGRAM, one of: {known}", code="no_program"
        )
    hint = f"its programs: {known}; any other command: --image and the image's name (sandboxd image ls)"
    raise UsageError(f"{package} has no program {wanted}", hint=hint, code="no_program")


def parse_result(line: bytes) -> Installed:
    """The installer's last line. It comes out of a container that ran foreign code: strict, bounded. Raises
    SandboxdError `package_result`."""
    try:
        raw: Any = json.loads(line)
        lock = tuple(_lock_entry(entry) for entry in _list(raw["lock"]))
        programs = {_program(name): _path(path) for name, path in _table(raw["programs"]).items()}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        _refuse(f"{type(error).__name__}: {error}"[:200])
    return Installed(lock, programs)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("expected a list")
    return cast(list[Any], value)


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("expected an object")
    return cast(dict[str, Any], value)


def _lock_entry(value: Any) -> dict[str, str]:
    entry = _table(value)
    if set(entry) != {"name", "version", "hash"} or not all(isinstance(v, str) for v in entry.values()):
        raise ValueError("expected name, version and hash")
    return cast(dict[str, str], entry)


def _program(name: str) -> str:
    if not _PROGRAM.fullmatch(name):
        raise ValueError(f"not a program's name: {name[:80]!r}")
    return name


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith(f"{install.ROOT}/") or "/../" in value:
        raise ValueError("a program outside the package's directory")
    return value


def _refuse(why: str) -> NoReturn:
    raise SandboxdError(
        "package_result", f"the installer's result can't be read: {why}", hint="try again; if it stays, try --scripts"
    )


def labels(recipe: Recipe, base: str, sandbox: str, installed: Installed) -> dict[str, str]:
    """The image's labels. `sandbox` is the build's: its connections stand under that name in the audit log."""
    return {
        "sandboxd.image": IMAGE_KIND,
        "sandboxd.package": str(recipe.package),
        "sandboxd.programs": json.dumps(installed.programs, sort_keys=True),
        "sandboxd.lock": pack_lock(installed.lock),
        "sandboxd.constraints": json.dumps(sorted(recipe.constraints)),
        "sandboxd.scripts": json.dumps(recipe.scripts),
        "sandboxd.base": base,
        "sandboxd.build": sandbox,
    }


def pack_lock(lock: Sequence[Mapping[str, str]]) -> str:
    """As a label: JSON, in gzip and base64. Raises SandboxdError where it is too big for one."""
    import base64  # these two here: a run whose image is there needs neither
    import gzip

    text = json.dumps(lock, sort_keys=True, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    if len(packed) > limits.PACKAGE_LOCK:
        _refuse(f"a lock of {len(lock)} packages takes {len(packed)} bytes, the limit is {limits.PACKAGE_LOCK}")
    return packed


def unpack_lock(label: str) -> list[dict[str, str]]:
    """What `pack_lock` made."""
    import base64
    import gzip

    return json.loads(gzip.decompress(base64.b64decode(label)))


def programs_of(image_labels: Mapping[str, str]) -> dict[str, str]:
    """A package image's programs → path."""
    return json.loads(image_labels.get("sandboxd.programs", "{}"))
