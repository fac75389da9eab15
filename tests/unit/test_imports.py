"""The direction of imports, read from the sources: every module has a level and imports lower ones only.

A new package gets its line in `LEVELS`; a module without one fails. Late imports inside functions count like others.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Module or package → level; the longest prefix counts. The vocabulary that two sides of a socket share is pure data
# and stands below both, whatever package it lives in.
LEVELS = {
    "sandboxd": 0,  # the package itself and the modules directly in it: ids, errors, limits, …
    "sandboxd.policy": 1,
    "sandboxd.audit.events": 1,
    "sandboxd.egress": 1,  # the flow and what belongs to it
    "sandboxd.egress.wire": 1,
    "sandboxd.warden": 1,  # an empty package; see its parts
    "sandboxd.warden.protocol": 1,
    "sandboxd.egress.control": 1,
    "sandboxd.egress.commands": 1,
    "sandboxd.mcp": 1,  # an empty package; see its parts
    "sandboxd.egress.gateway": 2,
    "sandboxd.warden.client": 2,
    "sandboxd.warden.server": 2,
    "sandboxd.audit": 2,
    "sandboxd.state": 2,
    "sandboxd.mcp.connections": 2,
    "sandboxd.tools": 3,
    "sandboxd.controller": 4,
    "sandboxd.mcp.endpoint": 5,
    "sandboxd.api": 5,
    "sandboxd.cli": 5,
    "sandboxd.main": 6,
}

# The one place where a level-2 package uses another: the gateway's process opens the audit store it records into.
GRANTED = {("sandboxd.egress.gateway.process", "sandboxd.audit.store")}
# What tools and controller may see of level 2; anything else of it reaches them through protocols of their own.
SEEN_FROM_ABOVE = ("sandboxd.warden.client", "sandboxd.mcp.connections")

PURE_LIBRARIES = {"pydantic", "pydantic_core", "idna", "publicsuffixlist", "h11", "h2", "hyperframe"}
# YAML is read in one place.
EXTRA_LIBRARIES = {"sandboxd.policy.source": {"yaml"}}
# Pure code neither talks nor waits nor starts anything.
IMPURE = {"socket", "asyncio", "subprocess", "threading", "multiprocessing", "selectors", "sqlite3", "time", "random"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted((ROOT / "sandboxd").rglob("*.py"))}


@cache
def imports(module: str) -> frozenset[str]:
    """Every module that `module` imports; `from package import name` is the module where `name` is one."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(SOURCES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in named if name in SOURCES}
            found |= modules if modules == named else modules | {str(node.module)}
    return frozenset(found)


def home(module: str) -> str:
    """The longest prefix in LEVELS. A module directly in a package has its own line or its package's."""
    prefix = module
    while prefix not in LEVELS:
        prefix = prefix.rpartition(".")[0]
    return prefix


def level(module: str) -> int:
    return LEVELS[home(module)]


def own(module: str) -> Iterator[str]:
    return (name for name in imports(module) if name == "sandboxd" or name.startswith("sandboxd."))


def libraries(module: str) -> set[str]:
    tops = {name.partition(".")[0] for name in imports(module)}
    return tops - {"sandboxd"} - sys.stdlib_module_names


@pytest.mark.parametrize("module", SOURCES)
def test_has_a_level_of_its_own(module: str) -> None:
    assert home(module) != "sandboxd" or module.count(".") < 2, f"give the package of {module} a line in LEVELS"


@pytest.mark.parametrize("module", SOURCES)
def test_imports_go_down(module: str) -> None:
    up = [name for name in own(module) if level(name) > level(module)]
    assert not up, f"{module} imports upwards: {up}"
    assert "sandboxd.main" not in own(module), "main is imported by nobody"


@pytest.mark.parametrize("module", SOURCES)
def test_packages_of_level_2_keep_apart(module: str) -> None:
    if level(module) == 2:
        others = [n for n in own(module) if level(n) == 2 and home(n) != home(module) and (module, n) not in GRANTED]
        assert not others, f"{module} imports {others}; main.py binds them instead"


@pytest.mark.parametrize("module", SOURCES)
def test_tools_and_controller_see_level_2_through_protocols(module: str) -> None:
    if level(module) in (3, 4):
        seen = [n for n in own(module) if level(n) == 2 and home(n) not in SEEN_FROM_ABOVE]
        assert not seen, f"{module} imports {seen}; define a Protocol in {home(module)}.ports"


@pytest.mark.parametrize("module", SOURCES)
def test_low_levels_need_little(module: str) -> None:
    if level(module) == 0:
        assert not libraries(module), f"{module}: level 0 is the standard library only"
    if level(module) == 1:
        allowed = PURE_LIBRARIES | EXTRA_LIBRARIES.get(module, set())
        assert libraries(module) <= allowed, f"{module}: level 1 may use {sorted(allowed)}"
        assert not {name.partition(".")[0] for name in imports(module)} & IMPURE, f"{module} is to be pure"


@pytest.mark.parametrize("module", [m for m in SOURCES if m.startswith("sandboxd.warden.server")])
def test_root_imports_next_to_nothing(module: str) -> None:
    assert not libraries(module), "the warden runs as root: standard library only"
    inside = ("sandboxd.warden.server", "sandboxd.warden.protocol")
    foreign = [name for name in own(module) if level(name) > 0 and not name.startswith(inside)]
    assert not foreign, f"{module} imports {foreign}"


def test_no_cycles() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path[path.index(module) :], module))
        if module not in done:
            for name in own(module):
                if name in SOURCES and name != module:
                    visit(name, (*path, module))
            done.add(module)

    for module in SOURCES:
        visit(module, ())


def test_the_shortest_way_to_run_loads_no_command_line_library() -> None:
    """`run` starts all its processes out of one import: typer and rich come only where a person reads."""
    heavy = ("typer", "rich", "mcp", "docker")
    show = f"import sys, sandboxd.main, sandboxd.cli.run; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", show], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_levels_read_from_the_bottom_up() -> None:
    assert all(low <= high for low, high in pairwise(LEVELS.values()))
