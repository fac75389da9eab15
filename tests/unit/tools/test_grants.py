"""Grants: deny is the default, and the line that decided is named."""

from typing import Any

import pytest

from sandboxd.policy.calls import ToolFilter, ToolPolicy
from sandboxd.tools.grants import Grant, Grants
from sandboxd.tools.model import BUILTINS, Tool
from sandboxd.tools.registry import builtin_tool, custom_tool, mcp_tools


def policy(**keys: Any) -> ToolPolicy:
    return ToolPolicy.model_validate({k: tuple(v) if isinstance(v, list) else v for k, v in keys.items()})


def mcp(name: str, server: str = "gh") -> Tool:
    return mcp_tools(f"mcp:{server}", [{"name": name}], f"{server}_")[0]


def granted_builtins(tools: ToolPolicy | None) -> set[str]:
    return {name for name in BUILTINS if Grants(tools).decide(builtin_tool({"name": name})).granted}


@pytest.mark.parametrize("tools", [None, ToolPolicy(), policy(deny=["x"])])
def test_no_preset_and_no_list_grants_nothing(tools: ToolPolicy | None) -> None:
    assert granted_builtins(tools) == set()
    assert Grants(tools).decide(mcp("search")) == Grant(False, "no tools.preset and no tools.allow")


def test_presets() -> None:
    reading = {"file_read", "grep", "glob"}
    assert granted_builtins(policy(preset="readonly")) == reading
    assert granted_builtins(policy(preset="readwrite")) == reading | {"file_write", "file_edit"}
    assert granted_builtins(policy(preset="full")) == reading | {"file_write", "file_edit", "bash"}


def test_a_preset_is_about_built_ins_only() -> None:
    assert Grants(policy(preset="full")).decide(mcp("search")) == Grant(False, "no tools.allow")
    both = Grants(policy(preset="readonly", allow=["gh_*", "grep"]))
    assert both.decide(mcp("search")) == Grant(True, "tools.allow[0]")
    assert both.decide(builtin_tool({"name": "grep"})) == Grant(True, "tools.allow[1]")


def test_preset_then_allow_then_deny() -> None:
    tools = policy(preset="readwrite", allow=["file_read", "grep", "bash"], deny=["grep"])
    assert granted_builtins(tools) == {"file_read"}
    decide = Grants(tools).decide
    assert decide(builtin_tool({"name": "bash"})) == Grant(False, "tools.preset readwrite")
    assert decide(builtin_tool({"name": "grep"})) == Grant(False, "tools.deny[0]")
    assert decide(builtin_tool({"name": "glob"})) == Grant(False, "tools.allow")


def test_a_list_alone_grants_built_ins_too() -> None:
    assert granted_builtins(policy(allow=["file_*"])) == {"file_read", "file_write", "file_edit"}


def test_a_servers_filter_is_by_raw_names_and_comes_first() -> None:
    grants = Grants(policy(allow=["*"]), {"gh": ToolFilter(allow=("search_*",), deny=("search_secret*",))})
    assert grants.decide(mcp("search_code")) == Grant(True, "tools.allow[0]")
    assert grants.decide(mcp("search_secrets")) == Grant(False, "servers.gh.tools.deny[0]")
    assert grants.decide(mcp("gh_search_code")) == Grant(False, "servers.gh.tools.allow")
    assert grants.decide(mcp("anything", "other")).granted


def test_an_omitted_filter_passes_all_and_an_empty_one_none() -> None:
    tools = policy(allow=["*"])
    assert Grants(tools, {"gh": ToolFilter()}).decide(mcp("x")).granted
    assert not Grants(tools, {"gh": ToolFilter(allow=())}).decide(mcp("x")).granted


def test_a_custom_tool_is_granted_by_registering_and_honours_deny() -> None:
    tool = custom_tool({"name": "pay"})
    assert Grants().decide(tool) == Grant(True, "registered")
    assert Grants(policy(deny=["p*"])).decide(tool) == Grant(False, "tools.deny[0]")


def test_a_server_named_on_the_command_line_is_granted_whole_but_deny_holds() -> None:
    assert Grants(everything=True).decide(mcp("x")) == Grant(True, "the command line")
    assert not Grants(policy(deny=["gh_x"]), everything=True).decide(mcp("x")).granted


def test_case_matters_and_brackets_are_no_glob() -> None:
    assert not Grants(policy(allow=["GH_*"])).decide(mcp("x")).granted
