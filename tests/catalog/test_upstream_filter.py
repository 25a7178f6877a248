import pytest

from mcpbridge.catalog.definitions.check import Kind
from mcpbridge.catalog.upstream_filter import MOST, Accepted, Dropped, Offer, accept
from mcpbridge.upstream.settings import ServerSettings
from support.catalog.definitions import prompt, resource, settings, template, tool


def names(accepted: Accepted, kind: Kind = "tools") -> list[str]:
    return [item.name for item in accepted.items[kind]]


def of_tools(*tools: bytes, configured: ServerSettings | None = None) -> Accepted:
    return accept(Offer("s", tools=tools), configured)


def test_one_bad_definition_loses_that_one_only() -> None:
    accepted = of_tools(tool("b"), b"{}", tool("a"), b"nonsense")
    assert names(accepted) == ["a", "b"]
    assert [drop.field for drop in accepted.dropped] == [None, None]


def test_what_was_mended_is_told_with_its_field() -> None:
    assert of_tools(tool("a", title=7)).dropped == (
        Dropped("s", "tools", "a", "left out: not what clients expect", "title"),
    )


def test_of_two_definitions_with_one_name_the_first_counts() -> None:
    accepted = of_tools(tool("a", title="first"), tool("a", title="second"))
    assert b"first" in accepted.items["tools"][0].definition.raw
    assert accepted.dropped == (Dropped("s", "tools", "a", "listed before under the same name"),)


def test_a_server_lists_so_many_and_no_more() -> None:
    accepted = of_tools(*(tool(f"t{i:05}") for i in range(MOST + 3)))
    assert len(names(accepted)) == MOST
    assert accepted.dropped[0].reason == "3 of 5003 left out: a server may list 5000"


def test_globs_choose_the_tools() -> None:
    configured = settings(tools={"include": ["get_*", "list_*"], "exclude": ["*_secret"]})
    accepted = of_tools(*map(tool, ("get_a", "get_secret", "list_b", "delete_c", "Get_d")), configured=configured)
    assert names(accepted) == ["get_a", "list_b"]
    assert accepted.dropped == ()


def test_globs_choose_prompts_and_resources_too() -> None:
    configured = settings(prompts={"exclude": ["x*"]}, resources={"include": ["file:///pub/*", "by-name"]})
    offer = Offer(
        "s",
        prompts=(prompt("xa"), prompt("b")),
        resources=(resource("file:///pub/1"), resource("file:///priv/2"), resource("db://z", name="by-name")),
        templates=(template("file:///pub/{x}"), template("file:///{+x}")),
    )
    accepted = accept(offer, configured)
    assert names(accepted, "prompts") == ["b"]
    assert names(accepted, "resources") == ["db://z", "file:///pub/1"]
    assert names(accepted, "templates") == ["file:///pub/{x}"]
    assert accepted.hidden["resources"] == {"file:///priv/2"}


def test_tools_are_changed_as_configured() -> None:
    configured = settings(
        tool={"a": {"rename": "z", "description": "mine"}, "b": {"disabled": True}, "missing": {"rename": "c"}}
    )
    (item,) = of_tools(tool("a"), tool("b"), configured=configured).items["tools"]
    assert (item.name, item.definition.key, item.changes) == ("z", "a", {"description": b'"mine"'})


def test_the_filter_is_on_the_servers_own_names() -> None:
    configured = settings(tools={"include": ["a"]}, tool={"a": {"rename": "z"}, "z": {"rename": "a"}})
    assert names(of_tools(tool("a"), tool("z"), configured=configured)) == ["z"]


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_renamed_tool_does_not_take_anothers_name(order: tuple[str, str]) -> None:
    configured = settings(tool={"a": {"rename": "b"}})
    accepted = of_tools(*map(tool, order), configured=configured)
    assert [(item.name, item.definition.key) for item in accepted.items["tools"]] == [("b", "b")]
    assert [drop.name for drop in accepted.dropped] == ["a"]


def test_what_was_checked_before_is_not_checked_again() -> None:
    first = of_tools(tool("a"), tool("b"))
    second = accept(Offer("s", tools=(tool("b"), tool("c"))), None, first)
    assert second.items["tools"][0].definition is first.items["tools"][1].definition
    assert names(second) == ["b", "c"]
