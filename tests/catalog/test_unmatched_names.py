"""Which settings name tools that there are not, told once it is certain."""

from typing import Any

from mcpbridge.catalog.unmatched_names import Selector, UnmatchedNames
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.upstream.settings import ServerSettings


def names(*selectors: Selector, **servers: dict[str, Any]) -> UnmatchedNames:
    return UnmatchedNames(
        selectors,
        {name: ServerSettings.model_validate({"command": "x", **settings}) for name, settings in servers.items()},
    )


def rule(*tools: str, servers: tuple[str, ...] = ("*",)) -> Selector:
    return Selector("rule 1", tools, servers)


def listing(*tools: str) -> list[bytes]:
    return [encode({"name": tool, "inputSchema": {"type": "object"}}) for tool in tools]


def told(unmatched: UnmatchedNames) -> list[str]:
    return [str(one) for one in unmatched.unmatched()]


def test_a_name_with_a_typo_is_told_with_the_nearest() -> None:
    unmatched = names(rule("p/get_nte"), p={})
    assert told(unmatched) == []
    assert [str(one) for one in unmatched.listed("p", listing("get_note", "pay"))] == [
        "rule 1: there is no tool `p/get_nte` (did you mean `p/get_note`?)"
    ]


def test_nothing_is_said_before_every_server_that_may_have_it_has_listed() -> None:
    unmatched = names(rule("get_nte"), rule("q/pay"), p={}, q={}, off={"disabled": True})
    assert unmatched.listed("p", listing("get_note")) == []
    fresh = unmatched.listed("q", listing("peek"))
    assert [one.names for one in fresh] == [("get_nte",), ("q/pay",)]
    assert fresh[0].meant == ("p/get_note",)


def test_each_is_told_once_and_stands_until_it_is_right() -> None:
    unmatched = names(rule("pay"), p={})
    assert len(unmatched.listed("p", listing("peek"))) == 1
    assert unmatched.listed("p", listing("peek", "poke")) == []
    assert told(unmatched) == ["rule 1: there is no tool `pay`"]
    assert unmatched.listed("p", listing("pay")) == []
    assert told(unmatched) == []
    unmatched.listed("p", listing("peek"))
    assert told(unmatched) == ["rule 1: there is no tool `pay`"]


def test_a_table_for_a_tool_that_its_server_does_not_list_is_told() -> None:
    unmatched = names(p={"tool": {"nope": {"permission": "deny"}, "pya": {}, "peek": {}}})
    unmatched.listed("p", listing("pay", "peek"))
    assert told(unmatched) == [
        "servers.p.tool: there is no tool `nope`",
        "servers.p.tool: there is no tool `pya` (did you mean `pay`?)",
    ]


def test_tools_that_are_hidden_or_renamed_are_there() -> None:
    tool = {"pay": {"rename": "spend"}, "wipe": {"disabled": True}}
    settings = {"tool": tool, "tools": {"exclude": ["peek"]}}
    unmatched = names(rule("p/spend"), rule("pay"), rule("p/wipe"), rule("peek"), p=settings)
    unmatched.listed("p", listing("pay", "wipe", "peek"))
    assert told(unmatched) == []


def test_of_several_globs_those_for_one_tool_are_told_and_wildcards_may_match_nothing() -> None:
    unmatched = names(rule("p/pay", "p/delete_*", "p/pey"), p={})
    unmatched.listed("p", listing("pay"))
    assert told(unmatched) == ["rule 1: there is no tool `p/pey` (did you mean `p/pay`?)"]


def test_a_rule_of_which_nothing_matches_is_told_whole() -> None:
    unmatched = names(rule("p/delete_*", "wipe"), rule("*/[a"), p={})
    unmatched.listed("p", listing("pay"))
    assert told(unmatched) == ["rule 1: there is no tool `p/delete_*`, `wipe`", "rule 1: there is no tool `*/[a`"]


def test_servers_and_tools_must_both_match() -> None:
    unmatched = names(rule("pay", servers=("q*",)), p={}, q={})
    assert unmatched.listed("p", listing("pay")) == []
    assert [one.names for one in unmatched.listed("q", listing("peek"))] == [("pay",)]


def test_servers_that_are_switched_off_or_not_here_are_not_missed() -> None:
    unmatched = names(rule("off/x"), rule("gone/x"), rule("x", servers=("off",)), p={}, off={"disabled": True})
    unmatched.listed("p", listing("pay"))
    assert told(unmatched) == []


def test_what_names_no_tool_in_particular_needs_no_tools() -> None:
    unmatched = names(rule("*"), rule(), p={})
    assert unmatched.listed("p", []) == []
    assert told(unmatched) == []


def test_definitions_that_cannot_be_read_have_no_name() -> None:
    unmatched = names(rule("p/pay"), p={})
    unmatched.listed("p", [b"{", b'{"name": 7}', *listing("pay")])
    assert told(unmatched) == []
