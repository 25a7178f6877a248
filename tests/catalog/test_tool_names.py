import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.tool_names import RESERVED, Prefix, bare_names, look_of, own_names, wire_names
from mcpbridge.core.model import BRIDGE, BUILTIN, TOOLS
from mcpbridge.tools.builtin.code.run_code import NAME as RUN_CODE
from mcpbridge.tools.builtin.factory import META
from mcpbridge.tools.builtin.meta import definitions
from mcpbridge.tools.builtin.recall import definition as recall

WIRE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")

# Few letters, so that names clash; separators and foreign ones, so that they clash in unexpected places.
clashing = st.text("ab_./é", max_size=6)
plain = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=30)
owners = st.lists(st.tuples(clashing | plain | st.text(max_size=90), clashing | plain | st.text(max_size=90)))


def test_a_name_is_the_server_and_the_tool() -> None:
    assert wire_names([("git", "status")]) == {("git", "status"): "git__status"}


def test_letters_that_some_client_refuses_become_underscores() -> None:
    assert wire_names([("my server", "fs.read/all")]) == {("my server", "fs.read/all"): "my_server__fs_read_all"}


def test_a_name_begins_with_a_letter() -> None:
    """Gemini's API wants it so; the server's name is the user's, and may be `1password`."""
    assert wire_names([("1password", "get")]) == {("1password", "get"): "s1password__get"}


def test_a_long_name_keeps_its_server_and_its_beginning_and_gets_a_hash() -> None:
    (name,) = wire_names([("github", "list_all_repository_security_advisories_of_organization")]).values()
    assert re.fullmatch(r"github__list_all_repository_security_advi_[a-z2-7]{6}", name)
    assert len(name) == 48


def test_a_long_server_name_leaves_room_for_the_tool() -> None:
    (name,) = wire_names([("a" * 60, "search")]).values()
    assert "__search_" in name
    assert len(name) == 48


def test_names_that_would_be_the_same_all_get_a_hash() -> None:
    """Bridge: no server can take over the name that another's tool would have."""
    names = wire_names([("a", "b__c"), ("a__b", "c"), ("a", "x")])
    assert re.fullmatch(r"a__b__c_[a-z2-7]{6}", names["a", "b__c"])
    assert re.fullmatch(r"a__b__c_[a-z2-7]{6}", names["a__b", "c"])
    assert names["a", "x"] == "a__x"
    assert len(set(names.values())) == 3


def test_a_tool_named_like_another_ones_hash_gains_nothing() -> None:
    first = wire_names([("a", "b__c"), ("a__b", "c")])
    imitation = ("a", first["a__b", "c"].removeprefix("a__"))
    names = wire_names([("a", "b__c"), ("a__b", "c"), imitation])
    assert len(set(names.values())) == 3
    assert names["a", "b__c"] == first["a", "b__c"]


def test_hashes_that_clash_too_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty bits can be searched through; nobody may get another tool's name that way."""

    def weak(*parts: str, length: int = 6) -> str:
        return "x" * length if len(parts) < 3 else f"{parts[1]}{'y' * length}"[:length]

    monkeypatch.setattr("mcpbridge.catalog.tool_names.fingerprint", weak)
    names = wire_names([("s", "é"), ("s", "è")])
    assert len(set(names.values())) == 2
    assert all(len(name) <= 48 for name in names.values())


def test_a_limit_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        wire_names([], limit=15)


@given(owners, st.integers(16, 128))
def test_names_are_unique_short_and_of_letters_that_all_clients_take(pairs: list[tuple[str, str]], limit: int) -> None:
    names = wire_names(pairs, limit=limit)
    assert names.keys() == set(pairs)
    assert len(set(names.values())) == len(names)
    assert all(WIRE_NAME.fullmatch(name) and len(name) <= limit for name in names.values())


@given(st.data())
def test_the_order_of_the_servers_does_not_matter(data: st.DataObject) -> None:
    pairs = data.draw(owners)
    assert wire_names(data.draw(st.permutations(pairs))) == wire_names(pairs)


@given(owners, st.lists(plain, max_size=5))
def test_a_server_that_nobody_clashes_with_changes_no_other_name(pairs: list[tuple[str, str]], more: list[str]) -> None:
    """Stable names over changes of the configuration: what a client has cached stays right."""
    names = wire_names(pairs)
    with_newcomer = wire_names([*pairs, *(("newcomer-q7", tool) for tool in more)])
    assert {pair: with_newcomer[pair] for pair in names} == names


def test_a_prefix_may_be_for_names_that_several_servers_use() -> None:
    names = wire_names([("git", "status"), ("jobs", "status"), ("git", "log")], prefix="on-collision")
    assert names == {("git", "log"): "log", ("git", "status"): "git__status", ("jobs", "status"): "jobs__status"}


def test_without_prefixes_names_that_several_servers_use_all_get_a_hash() -> None:
    names = wire_names([("git", "status"), ("jobs", "status"), ("git", "log")], prefix="never")
    assert names["git", "log"] == "log"
    assert re.fullmatch(r"status_[a-z2-7]{6}", names["git", "status"])
    assert re.fullmatch(r"status_[a-z2-7]{6}", names["jobs", "status"])
    assert len(set(names.values())) == 3


def test_a_bare_name_that_looks_prefixed_takes_nobodys_place() -> None:
    names = wire_names([("x", "git__status"), ("git", "status"), ("jobs", "status")], prefix="on-collision")
    assert len(set(names.values())) == 3
    assert names["jobs", "status"] == "jobs__status"


@pytest.mark.parametrize("prefix", ["always", "on-collision", "never"])
@given(owners=owners, limit=st.integers(16, 64))
def test_names_are_usable_and_unique_whatever_the_prefix(
    prefix: Prefix, owners: list[tuple[str, str]], limit: int
) -> None:
    names = wire_names(owners, limit=limit, prefix=prefix)
    assert set(names) == set(owners)
    assert len(set(names.values())) == len(names)
    assert all(WIRE_NAME.fullmatch(name) and len(name) <= limit for name in names.values())
    assert names == wire_names(reversed(owners), limit=limit, prefix=prefix)


def test_a_server_by_itself_keeps_its_names_as_they_are() -> None:
    assert own_names([("a", "fs.read/all"), ("a", "é")]) == {("a", "fs.read/all"): "fs.read/all", ("a", "é"): "é"}


# -- the bridge's own names

PREFIXES: list[Prefix] = ["always", "on-collision", "never"]
LIKE_OWN = [
    "recall",
    "Recall",
    "RECALL",
    "re_call",
    "re-call",
    "re.call",
    "re call",
    "reca1l",
    "recaII",
    "reca!!",
    "r\u0435call",
    "re\u0441all",
    "re\u03f2all",
    "\uff52ecall",
    "rec\u200ball",
    "\u00adrecall",
    "rec\u00e1ll",
    "rec\u0430\u217c\u217c",
    "\U0001d5ff\U0001d5f2\U0001d5f0\U0001d5ee\U0001d5f9\U0001d5f9",
    "\u0280\u1d07\u1d04\u1d00\u029f\u029f",
    "\ua4e3\ua4f0\ua4da\ua4ee\ua4e1\ua4e1",
    "find_tools",
    "findTools",
    "Find Tools",
    "find__tools",
    "f1nd_t00ls",
    "f\u0456nd_tools",
    "call_tool",
    "CALL-TOOL",
    "call_t\u043e\u043el",
    "describe_tools",
    "describe/tools",
    "run_code",
    "run.code",
    "ru\u0578_code",
    "final_answer",
    "mcpbridge__recall",
    "mcpbridge/recall",
    "mcpbridge.recall",
    "MCPBridge:find_tools",
    "\u043ccpbridge__x",
    "rncpbridge__x",
    "mcpbridge_status",
    "mcpbridge",
]


def test_reserved_are_all_names_that_the_bridge_has_tools_of() -> None:
    own = (
        definitions.FIND_TOOLS,
        definitions.DESCRIBE_TOOLS,
        definitions.CALL_TOOL,
        recall.definition(transforms=True),
    )
    assert {*(one["name"] for one in own), RUN_CODE, *META} == RESERVED


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", LIKE_OWN)
def test_a_tool_called_like_the_bridges_own_is_listed_under_another_name(name: str, prefix: Prefix) -> None:
    """Spelled otherwise, drawn alike, or with its prefix; whether or not the bridge's own is there."""
    own = [(BRIDGE, one) for one in RESERVED]
    for owners in ([("s", name)], [("s", name), *own], [("s", name), ("t", name), *own]):
        names = wire_names(owners, prefix=prefix)
        assert all(names[one] == one[1] for one in owners if one[0] == BRIDGE)
        assert len({*names.values()}) == len(owners)
        assert all(names[one].startswith(f"{one[0]}__") for one in owners if one[0] != BRIDGE)
    names = own_names([("s", name), ("s", f"s__{name}"), *own])
    assert names["s", name].startswith("s__")
    assert all(names[one] == one[1] for one in own)
    assert len({*names.values()}) == len(own) + 2
    assert bare_names("s", name) == ()


@pytest.mark.parametrize(
    "name",
    ["recall_all", "total_recall", "find", "tools", "call", "run_codes", "code", "brief_me", "bridge", "mcp_server"],
)
def test_a_tool_called_otherwise_has_its_name(name: str) -> None:
    assert wire_names([("s", name)], prefix="never") == own_names([("s", name)]) == {("s", name): name}
    assert bare_names("s", name) == (name,)


@pytest.mark.parametrize(
    "name", ["git__status", "git/status", "git.status", "tools/mine", "recall | transform: x", "a|b"]
)
def test_a_bare_name_that_reads_as_anothers_means_nothing(name: str) -> None:
    """Also while that other server lists nothing: a call that was meant for it must not reach somebody else."""
    assert bare_names("s", name, {"s", "git", "tools"}) == ()
    assert bare_names("git", "git__status", {"s", "git"}) == ("git__status",)
    assert bare_names("s", "git", {"s", "git"}) == ("git",)
    assert bare_names("s", "other__status", {"s", "git"}) == ("other__status",)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_server_and_tool_together_make_none_of_the_names(prefix: Prefix) -> None:
    for owner in (("find", "tools"), ("mcp", "bridge__recall"), ("m", "cpbridge__recall"), ("MCPBridge", "recall")):
        names = wire_names([owner, (BRIDGE, "find_tools"), (BRIDGE, "recall")], prefix=prefix)
        assert look_of(names[owner]) not in {*map(look_of, RESERVED), *(look_of(BRIDGE + one) for one in RESERVED)}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_built_in_tools_keep_their_names_before_servers_and_tools_of_the_user(prefix: Prefix) -> None:
    owners = [(BUILTIN, "web-search"), (TOOLS, "web-search"), ("s", "web_search"), (TOOLS, "recall"), (TOOLS, "mine")]
    assert wire_names(owners, prefix=prefix) == {
        (BUILTIN, "web-search"): "web-search",
        (TOOLS, "web-search"): "tools__web-search",
        ("s", "web_search"): "s__web_search",
        (TOOLS, "recall"): "tools__recall",
        (TOOLS, "mine"): "mine",
    }


def test_prompts_are_no_tools() -> None:
    assert wire_names([("s", "recall")], prefix="never", are_tools=False) == {("s", "recall"): "recall"}
    assert own_names([("s", "recall")], are_tools=False) == {("s", "recall"): "recall"}


@given(
    st.lists(st.tuples(st.sampled_from(["s", "t", "find", "mcp", TOOLS]), st.sampled_from(LIKE_OWN) | plain)), st.data()
)
def test_nothing_that_servers_offer_is_named_like_the_bridges_own(
    pairs: list[tuple[str, str]], data: st.DataObject
) -> None:
    own = data.draw(st.lists(st.sampled_from([(BRIDGE, one) for one in sorted(RESERVED)]), unique=True))
    prefix, limit = data.draw(st.sampled_from(PREFIXES)), data.draw(st.integers(16, 64))
    names = wire_names([*pairs, *own], prefix=prefix, limit=limit)
    assert len({*names.values()}) == len(names)
    looks = {*map(look_of, RESERVED), *(look_of(BRIDGE + one) for one in RESERVED)}
    assert not looks & {look_of(name) for owner, name in names.items() if owner[0] != BRIDGE}
    assert all(names[one] == one[1] for one in own)
