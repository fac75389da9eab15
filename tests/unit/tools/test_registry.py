"""Names of tools: what can be offered, and what two tools may not share."""

from typing import Any

import pytest

from sandboxd.tools.model import RegistryError
from sandboxd.tools.registry import Registry, builtin_tool, custom_tool, mcp_tools


def listed(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, **more} for name in names]


def test_a_final_name_is_prefix_and_name_with_every_slash_replaced() -> None:
    (tool,) = mcp_tools("mcp:github", listed("repos/issues/search"), "github_")
    assert (tool.name, tool.raw_name, tool.server) == ("github_repos_issues_search", "repos/issues/search", "github")


def test_without_a_prefix_only_the_slash_goes() -> None:
    assert [tool.name for tool in mcp_tools("mcp:a", listed("x/y", "z"), "")] == ["x_y", "z"]


def test_two_tools_that_become_one_name_are_an_error_naming_both() -> None:
    with pytest.raises(RegistryError, match=r"'a_b'.*'a/b' of mcp:s.*'a_b' of mcp:s"):
        Registry().register(mcp_tools("mcp:s", listed("a/b", "a_b"), ""))


def test_a_name_that_another_source_has_registers_nothing() -> None:
    registry = Registry()
    registry.register([builtin_tool({"name": "grep"})])
    with pytest.raises(RegistryError, match=r"'grep' of builtin and 'grep' of mcp:s"):
        registry.register(mcp_tools("mcp:s", listed("search", "grep"), ""))
    assert [tool.name for tool in registry] == ["grep"]


@pytest.mark.parametrize("name", ["", "a b", "ä", "a.b", "x" * 65, "a\n"])
def test_a_name_that_no_client_takes_is_an_error_naming_server_and_tool(name: str) -> None:
    with pytest.raises(RegistryError, match="mcp:s"):
        Registry().register(mcp_tools("mcp:s", listed(name), ""))


@pytest.mark.parametrize("descriptor", [None, 3, "x", [], {}, {"name": 7}])
def test_what_has_no_name_is_an_error(descriptor: Any) -> None:
    with pytest.raises(RegistryError, match="without a name"):
        mcp_tools("mcp:s", [descriptor], "")


def test_unregister_takes_one_source_only() -> None:
    registry = Registry()
    registry.register([*mcp_tools("mcp:a", listed("x"), "a_"), *mcp_tools("mcp:b", listed("x"), "b_")])
    registry.unregister("mcp:a")
    assert [tool.name for tool in registry] == ["b_x"]


def test_a_descriptor_is_offered_as_it_came_but_for_its_name() -> None:
    came = {"name": "a/b", "title": "T", "icons": [1], "_meta": {"x": 1}, "inputSchema": {"type": "object", "x-y": 2}}
    (tool,) = mcp_tools("mcp:s", [came], "s_")
    assert tool.offered == came | {"name": "s_a_b"}


@pytest.mark.parametrize("schema", [None, 3, [], {}, {"type": "string"}])
def test_without_a_usable_schema_any_object_is_taken(schema: Any) -> None:
    (tool,) = mcp_tools("mcp:s", listed("x", inputSchema=schema), "")
    assert tool.offered["inputSchema"] == {"type": "object"}


def test_the_digest_is_of_what_a_model_is_told() -> None:
    one, same, other = mcp_tools(
        "mcp:s",
        [{"name": "a", "description": "d", "_meta": 1}, {"_meta": 2, "description": "d", "name": "a"},
         {"name": "a", "description": "D"}], "",
    )  # fmt: skip
    assert one.digest == same.digest != other.digest


def test_consequential_only_where_the_policy_says_so() -> None:
    (plain,) = mcp_tools("mcp:s", listed("x", annotations={"destructiveHint": True}), "")
    assert not plain.consequential
    assert mcp_tools("mcp:s", listed("x"), "", consequential=True)[0].consequential
    believed = mcp_tools(
        "mcp:s",
        [*listed("says", annotations={"destructiveHint": True}), *listed("silent"),
         *listed("harmless", annotations={"destructiveHint": False}),
         *listed("reads", annotations={"readOnlyHint": True})],
        "", trust_annotations=True,
    )  # fmt: skip
    assert [tool.raw_name for tool in believed if tool.consequential] == ["says", "silent"]
    assert [builtin_tool({"name": n}).consequential for n in ("bash", "file_write", "file_edit", "grep")] == [
        True, True, True, False,
    ]  # fmt: skip
    assert custom_tool({"name": "pay"}, consequential=True).consequential
