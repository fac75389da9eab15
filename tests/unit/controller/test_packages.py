"""Packages: what is accepted as pinned, which command lines are recognised, names, results, labels."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd import limits
from sandboxd.controller import packages
from sandboxd.controller.packages import Installed, Invocation, Package, Recipe
from sandboxd.controller.plan import Wanted, plan_command, plan_server
from sandboxd.errors import SandboxdError, UsageError
from sandboxd.policy.loading import parse_policy

EVERYTHING = Package("npm", "@modelcontextprotocol/server-everything", "2026.8.31")
FETCH = Package("pypi", "mcp-server-fetch", "2026.10.24")


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("npm:@modelcontextprotocol/server-everything@2026.8.31", EVERYTHING),
        ("npm:semver@7.7.2", Package("npm", "semver", "7.7.2")),
        ("npm:a@1.0.0-beta.1+build", Package("npm", "a", "1.0.0-beta.1+build")),
        ("pypi:mcp-server-fetch==2026.10.24", FETCH),
        ("pypi:MCP_Server.fetch==2026.10.24", FETCH),
        ("pypi:a==1!2.0rc1+local", Package("pypi", "a", "1!2.0rc1+local")),
    ],
)
def test_pinned_packages(text: str, package: Package):
    assert packages.parse_package(text) == package
    assert packages.parse_package(str(package)) == package


@pytest.mark.parametrize(
    "text",
    [
        *("npm:semver", "npm:semver@latest", "npm:semver@^7", "npm:@scope@1.0.0", "npm:@1.0.0", "npm:../x@1.0.0"),
        *("npm:Semver@1.0.0", "npm:a@1.0.0 --registry=x", "npm:a@file:1", "npm:a@", "npm:", "npm"),
        *("pypi:a", "pypi:a>=1", "pypi:a==1.*", "pypi:a==1 b", "pypi:a[b]==1", "pypi:-r==1", "pypi:a@1"),
        *("", "a@1", "gem:a==1", "pypi:a==1\n"),
    ],
)
def test_everything_else_is_refused_with_the_expected_form(text: str):
    with pytest.raises(UsageError, match=r"expected npm:NAME@VERSION or pypi:NAME==VERSION"):
        packages.parse_package(text)


@given(st.text())
def test_any_text_is_a_package_or_a_usage_error(text: str):
    for prefix in ("", "npm:", "pypi:"):
        with contextlib.suppress(UsageError):
            assert packages.parse_package(prefix + text).version


@pytest.mark.parametrize(
    ("command", "program", "arguments"),
    [
        ("npx -y @modelcontextprotocol/server-everything@2026.8.31", None, ()),
        ("npx --yes @modelcontextprotocol/server-everything@2026.8.31 stdio -x", None, ("stdio", "-x")),
        ("npx @modelcontextprotocol/server-everything@2026.8.31 --yes", None, ("--yes",)),
        ("npx -y -p @modelcontextprotocol/server-everything@2026.8.31 srv a", "srv", ("a",)),
        ("npx --package=@modelcontextprotocol/server-everything@2026.8.31 -- srv", "srv", ()),
    ],
)
def test_npx(command: str, program: str | None, arguments: tuple[str, ...]):
    assert packages.recognise(command.split()) == Invocation(EVERYTHING, program, arguments)


@pytest.mark.parametrize(
    ("command", "program", "arguments"),
    [
        ("uvx mcp-server-fetch==2026.10.24 --ignore-robots-txt", None, ("--ignore-robots-txt",)),
        ("uvx mcp-server-fetch@2026.10.24", None, ()),
        ("uvx --from mcp-server-fetch==2026.10.24 cmd a b", "cmd", ("a", "b")),
        ("uvx --from=mcp-server-fetch==2026.10.24 cmd", "cmd", ()),
        ("uv tool run -q mcp-server-fetch==2026.10.24", None, ()),
    ],
)
def test_uvx(command: str, program: str | None, arguments: tuple[str, ...]):
    assert packages.recognise(command.split()) == Invocation(FETCH, program, arguments)


@pytest.mark.parametrize("command", ["python3 -m x", "node npx", "uv run x", "/usr/bin/npx -y a@1.0.0", "npm exec a"])
def test_other_commands_are_none_of_its_business(command: str):
    assert packages.recognise(command.split()) is None


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("npx -y server", "expected npx -y NAME@VERSION"),
        ("npx -y server@latest", "no exact version"),
        ("npx -y @scope/server@^2", "`npm view @scope/server version` tells the newest"),
        ("uvx my.server>=1", "`pip index versions my.server` tells the newest"),
        ("npx -y github:owner/server", "not a package of the index"),
        ("npx -y ./server", "not a package of the index"),
        ("uvx git+https://git.example/a", "not a package of the index"),
        ("uvx server[extra]==1.0", "not a package of the index"),
        ("uvx server", "expected uvx NAME==VERSION"),
        ("uvx --with x server==1", "--with: not supported"),
        ("npx -c ls", "-c: not supported"),
        ("npx -y", "nothing to run"),
        ("npx -p a@1.0.0", "nothing to run"),
        ("npx -p", "not supported"),
        ("npx -y=1 a@1.0.0", "not supported"),
    ],
)
def test_a_runner_without_an_exact_version_is_an_error(command: str, says: str):
    with pytest.raises(UsageError, match=says):
        packages.recognise(command.split())


def settled(*command: str, **wanted: str) -> tuple[str | None, str | None, str | None, tuple[str, ...]]:
    plan = plan_command(Wanted(command=command, **wanted), (), (), None)
    return plan.image, plan.package, plan.program, plan.command


def test_a_run_of_npx_or_uvx_is_a_run_of_a_package():
    assert settled("npx", "-y", "a@1.0.0", "-v") == (None, "npm:a@1.0.0", None, ("-v",))
    assert settled("uvx", "--from", "a==1.0", "b", "c") == (None, "pypi:a==1.0", "b", ("c",))
    assert settled("npx", "-y", "a", image="mine") == ("mine", None, None, ("npx", "-y", "a"))
    assert settled("node", "x") == ("sandboxd/node", None, None, ("node", "x"))
    assert settled("b", "c", package="pypi:a==1.0") == (None, "pypi:a==1.0", "b", ("c",))
    assert settled("--flag", package="pypi:a==1.0") == (None, "pypi:a==1.0", None, ("--flag",))
    assert settled(package="pypi:a==1.0") == (None, "pypi:a==1.0", None, ())


def test_so_is_a_policys_server():
    text = "servers: {time: {command: uvx, args: [mcp-server-time==1.0, --utc]}}"
    plan = plan_server(parse_policy(text, "p.yaml"), "time", Wanted(), ())
    assert (plan.image, plan.package, plan.command) == (None, "pypi:mcp-server-time==1.0", ("--utc",))
    assert plan.workload == "mcp:time"


def test_names_tell_the_package_and_change_with_everything():
    name = Recipe(EVERYTHING).image_name("sha256:1")
    assert name.startswith("sandboxd/pkg/npm-modelcontextprotocol-server-everything:2026.8.31-")
    assert Recipe(EVERYTHING).image_name("sha256:1") == name
    assert Recipe(FETCH, ("a<1", "b<2")).image_name("x") == Recipe(FETCH, ("b<2", "a<1")).image_name("x")
    others = [Recipe(EVERYTHING).image_name("sha256:2"), Recipe(EVERYTHING, scripts=True).image_name("sha256:1")]
    others.append(Recipe(EVERYTHING, ("mcp<2",)).image_name("sha256:1"))
    assert len({name, *others}) == 4
    assert Recipe(Package("pypi", "a", "1!2+x")).image_name("i").startswith("sandboxd/pkg/pypi-a:1_2_x-")


def test_what_calls_git_is_installed_where_git_is():
    assert Recipe(FETCH).base_image == "sandboxd/python:latest"
    assert Recipe(EVERYTHING).base_image == "sandboxd/node:latest"
    assert Recipe(packages.parse_package("pypi:mcp_server_git==1.0")).base_image == "sandboxd/shell:latest"
    assert Recipe(FETCH, base="mine").base_image == "mine"


def test_programs():
    one, two = {"srv": "/opt/server/bin/srv"}, {"a": "/opt/server/bin/a", "server-everything": "/opt/server/bin/b"}
    assert packages.choose_program(one, EVERYTHING, None) == "/opt/server/bin/srv"
    assert packages.choose_program(two, EVERYTHING, None) == "/opt/server/bin/b"
    assert packages.choose_program(two, EVERYTHING, "a") == "/opt/server/bin/a"
    with pytest.raises(UsageError, match="its programs: srv"):
        packages.choose_program(one, EVERYTHING, "other")
    with pytest.raises(UsageError, match="one of: a, server-everything"):
        packages.choose_program(two, FETCH, None)
    with pytest.raises(UsageError, match="has no program"):
        packages.choose_program({}, FETCH, None)


def result(**changes: object) -> bytes:
    good = {
        "lock": [{"name": "a", "version": "1", "hash": "sha256:0"}],
        "programs": {"a": "/opt/server/bin/a", "@x": "/opt/server/x"},
    }
    return json.dumps(good | changes).encode()


def test_a_result_is_read():
    installed = packages.parse_result(result())
    assert installed.lock == ({"name": "a", "version": "1", "hash": "sha256:0"},)
    assert installed.programs["a"] == "/opt/server/bin/a"


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{}", b"[]", b"\xff", b'{"lock": {}, "programs": {}}', b"[" * 100_000),
        result(lock=[{"name": "a"}]),
        result(lock=[{"name": "a", "version": 1, "hash": ""}]),
        result(lock=["a"]),
        result(programs=[]),
        result(programs={"a": "/usr/bin/a"}),
        result(programs={"a": "/opt/server/../../bin/sh"}),
        result(programs={"a": 1}),
        result(programs={"a b": "/opt/server/a"}),
        result(programs={"-a": "/opt/server/a"}),
    ],
)
def test_a_result_that_is_not_one_is_refused(line: bytes):
    with pytest.raises(SandboxdError) as refusal:
        packages.parse_result(line)
    assert refusal.value.code == "package_result"


def test_labels_carry_lock_and_programs():
    installed = Installed(({"name": "a", "version": "1", "hash": "sha256:0"},), {"a": "/opt/server/bin/a"})
    labels = packages.labels(Recipe(FETCH, ("mcp<2",)), "sha256:b", "sb-1", installed)
    assert labels["sandboxd.image"] == "package"
    assert labels["sandboxd.package"] == "pypi:mcp-server-fetch==2026.10.24"
    assert packages.unpack_lock(labels["sandboxd.lock"]) == list(installed.lock)
    assert packages.programs_of(labels) == installed.programs
    assert json.loads(labels["sandboxd.constraints"]) == ["mcp<2"]


def test_a_thousand_packages_fit_into_a_label_and_too_many_are_refused():
    lock = [
        {"name": f"package-{n}", "version": "1.2.3", "hash": f"sha256:{n * 7919**16:064x}"[:71]} for n in range(1000)
    ]
    assert packages.unpack_lock(packages.pack_lock(lock)) == lock
    with pytest.raises(SandboxdError, match=str(limits.PACKAGE_LOCK)):
        packages.pack_lock([{"name": f"{n}", "version": "", "hash": f"{hash((n, 'x')):x}" * 4} for n in range(40_000)])


@pytest.mark.parametrize("text", ["mcp<2", "a >=1,<2", "A.b-c~=1.0", "a!=1"])
def test_constraints(text: str):
    assert packages.parse_constraint(text) == text


@pytest.mark.parametrize("text", ["", "mcp", "-r file", "a<1\nb<2", "https://x/y", "a @ https://x", "a<" + "1" * 200])
def test_not_constraints(text: str):
    with pytest.raises(UsageError, match="mcp<2"):
        packages.parse_constraint(text)
