"""Nobody sees what their roles do not open, wherever they look: the `roles` of a running bridge (issue 23)."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mcpbridge.base.errors import BridgeError
from mcpbridge.config.schema import Settings
from mcpbridge.core.identity import Identity
from mcpbridge.downstream.revisions.request_meta import modern_client
from mcpbridge.library.access import explain_access, take_role
from support.harness import eventually
from support.in_process_bridge import BridgeToScripts, Ear, bridged, envelope, frame_of
from support.people import ear_of, introduce, office, person

pytestmark = pytest.mark.anyio

TOOLS = {"files": ("get_file", "write_file"), "github": ("get_issue", "create_issue", "delete_repo")}
ANN = person("ann", groups=["eng-core"], email="ann@example.com", email_verified=True)
BOB = person("bob", groups=["support"], email="Bob@Example.com", email_verified=True)
EVE = person("eve", groups=["nobody"], email="eve@example.com", email_verified=False)
CI = "ci"
LOCAL = ""
ROLES: list[dict[str, Any]] = [
    {"name": "engineering", "groups": "eng-*", "servers": ["github"], "deny": "github/delete_*"},
    {
        "name": "staff",
        "emails": "*@example.com",
        "tools": "get_*",
        "prompts": "files/hello",
        "resources": "files/files://open/*",
        "read_only": True,
    },
    {"name": "machines", "principals": "ci", "tools": ["files/*"], "deny": ["files/secret"]},
]
SEEN: dict[Any, dict[str, list[str]]] = {
    ANN: {
        "tools": ["files__get_file", "github__create_issue", "github__get_issue"],
        "prompts": ["files__hello", "github__hello", "github__secret"],
        "resources": ["files://open/1", "github://closed/1", "github://open/1"],
    },
    BOB: {
        "tools": ["files__get_file", "github__get_issue"],
        "prompts": ["files__hello"],
        "resources": ["files://open/1"],
    },
    EVE: {"tools": [], "prompts": [], "resources": []},
    CI: {"tools": ["files__get_file", "files__write_file"], "prompts": [], "resources": []},
    LOCAL: {
        "tools": [f"{server}__{tool}" for server in TOOLS for tool in sorted(TOOLS[server])],
        "prompts": [f"{server}__{name}" for server in TOOLS for name in ("hello", "secret")],
        "resources": [f"{server}://{place}/1" for server in TOOLS for place in ("closed", "open")],
    },
}
TRUSTED = {name: {"trusted": True} for name in TOOLS}


def team(roles: list[dict[str, Any]] | None = None, **sections: Any) -> Any:
    """A bridge in front of two servers."""
    transports = {name: office(name, *tools) for name, tools in TOOLS.items()}
    return bridged(transports, servers=TRUSTED, roles=ROLES if roles is None else roles, **sections)


async def client_of(bridge: BridgeToScripts, who: Identity | str) -> Ear:
    return await (ear_of(bridge.server, None, who) if isinstance(who, str) else ear_of(bridge.server, who))


async def listed(ear: Ear, kind: str) -> list[str]:
    answer = (await ear.ask(f"{kind}/list"))["result"][kind]
    return sorted(str(one["uri" if kind == "resources" else "name"]) for one in answer)


async def outcome(ear: Ear, method: str, params: dict[str, Any], modern: Identity | str | None = None) -> str:
    """`done`, or the error without the names in it."""
    answer = await ear.ask(method, params)
    if "error" in answer:
        return f"{answer['error']['code']} {answer['error']['message'].partition(':')[0]}"
    return "done"


@pytest.mark.parametrize("who", SEEN, ids=["ann", "bob", "eve", "ci", "local"])
async def test_lists_searches_calls_and_all_else_agree(who: Identity | str) -> None:
    """The table of issue 23: users, servers and tools, and every way to meet them."""
    async with team(expose={"mode": "all"}) as bridge:
        ear = await client_of(bridge, who)
        assert await listed(ear, "tools") == SEEN[who]["tools"]
        assert await listed(ear, "prompts") == SEEN[who]["prompts"]
        assert await listed(ear, "resources") == SEEN[who]["resources"]
        for server, tool in [(server, tool) for server, tools in TOOLS.items() for tool in tools]:
            is_seen = f"{server}__{tool}" in SEEN[who]["tools"]
            for name in (f"{server}__{tool}", f"{server}/{tool}", f"{server}.{tool}", tool):
                expected = "done" if is_seen else "-32602 Unknown tool"
                assert await outcome(ear, "tools/call", {"name": name, "arguments": {}}) == expected, name
        for server, name in itertools.product(TOOLS, ("hello", "secret")):
            expected = "done" if f"{server}__{name}" in SEEN[who]["prompts"] else "-32602 Unknown prompt"
            ref = {"ref": {"type": "ref/prompt", "name": f"{server}__{name}"}, "argument": {"name": "a", "value": ""}}
            assert await outcome(ear, "prompts/get", {"name": f"{server}__{name}"}) == expected
            assert await outcome(ear, "completion/complete", ref) == expected
        for server, place in itertools.product(TOOLS, ("open", "closed")):
            uri = f"{server}://{place}/1"
            expected = "done" if uri in SEEN[who]["resources"] else "-32002 Unknown resource"
            assert await outcome(ear, "resources/read", {"uri": uri}) == expected
            if expected == "done" or not SEEN[who]["resources"]:
                assert await outcome(ear, "resources/subscribe", {"uri": uri}) == expected
        for server in TOOLS:
            uri = f"{server}://open/{{id}}"
            ref = {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "id", "value": ""}}
            is_seen = f"{server}://open/1" in SEEN[who]["resources"]
            assert await outcome(ear, "completion/complete", ref) == (
                "done" if is_seen else "-32602 Unknown resource template"
            )


@pytest.mark.parametrize("who", SEEN, ids=["ann", "bob", "eve", "ci", "local"])
async def test_the_tools_that_find_others_find_what_may_be_called(who: Identity | str) -> None:
    async with team(expose={"mode": "search"}) as bridge:
        ear = await client_of(bridge, who)
        everything = [f"{server}__{tool}" for server, tools in TOOLS.items() for tool in tools]
        for name in everything:
            is_seen = name in SEEN[who]["tools"]
            described = await ear.ask("tools/call", {"name": "describe_tools", "arguments": {"names": [name]}})
            found = await ear.ask("tools/call", {"name": "find_tools", "arguments": {"query": name.replace("_", " ")}})
            inner: dict[str, Any] = {"name": name, "arguments": {}}
            called = await ear.ask("tools/call", {"name": "call_tool", "arguments": inner})
            if not SEEN[who]["tools"]:
                assert {one["error"]["code"] for one in (described, found, called)} == {-32602}, "there are no finders"
                continue
            assert (name in json.dumps(found["result"])) is is_seen
            assert ('"inputSchema"' in json.dumps(described) or "(" in json.dumps(described)) or not is_seen
            assert (f"did {name.partition('__')[2]}" in json.dumps(called)) is is_seen
            if not is_seen:
                assert "Unknown tool" in json.dumps(called)
                assert name not in json.dumps(found["result"])


async def test_an_unknown_name_and_a_hidden_one_get_the_same_answer() -> None:
    async with team() as bridge:
        ear = await client_of(bridge, BOB)
        for hidden, unknown in (("github__delete_repo", "github__delete_rope"), ("files__write_file", "files__w_file")):
            answers = [
                json.dumps(await ear.ask("tools/call", {"name": name, "arguments": {}})).replace(name, "NAME")
                for name in (hidden, unknown)
            ]
            assert "delete_repo" not in "".join(answers)
            assert answers[0].partition("did you mean")[0] == answers[1].partition("did you mean")[0]


async def test_what_servers_say_of_themselves_is_for_those_who_see_all_of_them() -> None:
    async with team() as bridge:
        said = {}
        for name, who in (("ann", ANN), ("bob", BOB), ("eve", EVE), ("local", "")):
            ear = Ear(bridge.server)
            introduce(ear.client, who if isinstance(who, Identity) else None)
            said[name] = (await ear.initialize())["instructions"]
        assert "about" not in said["ann"] + said["bob"] + said["eve"], "each has a tool that they may not know of"
        assert "about github" in said["local"]


async def test_a_modern_client_is_shown_the_same() -> None:
    async with team(expose={"mode": "all"}) as bridge:
        for who, seen in SEEN.items():
            frame = frame_of("tools/list", {"_meta": envelope()}, b"1")
            client = modern_client(frame)
            introduce(client, who if isinstance(who, Identity) else None, who if isinstance(who, str) else "")
            answer = json.loads((await bridge.server.answer(client, frame, list[bytes]().append)).data)
            assert sorted(tool["name"] for tool in answer["result"]["tools"]) == seen["tools"]


async def test_people_with_the_same_roles_share_their_lists() -> None:
    """Issue 23: lists are kept per set of permissions, not per user."""
    async with team() as bridge:
        catalog = bridge.catalog
        views = {
            id(catalog.view("", catalog.audience("ear", one.principal, one)))
            for one in (person(f"p{number}", groups=["eng-x", f"g{number}"]) for number in range(200))
        }
        assert len(views) == 1


async def test_the_endpoint_of_one_server_shows_what_roles_leave_of_it() -> None:
    async with team(expose={"mode": "all"}) as bridge:
        ear = Ear(bridge.server)
        ear.client.view = "github"
        introduce(ear.client, BOB)
        await ear.initialize()
        assert await listed(ear, "tools") == ["get_issue"]
        assert await outcome(ear, "tools/call", {"name": "delete_repo", "arguments": {}}) == "-32602 Unknown tool"


async def test_built_ins_that_touch_the_machine_need_a_role_that_names_their_server(tmp_path: Path) -> None:
    roles = [
        {"name": "all", "principals": "*", "tools": "*", "servers": "*"},
        {"name": "files", "principals": "ci", "tools": "builtin/file-*"},
    ]
    builtin = {"enable": ["file-read", "brief"], "files": {"roots": [str(tmp_path)]}}
    async with team(roles, builtin=builtin, expose={"mode": "all"}) as bridge:
        ear = await client_of(bridge, ANN)
        tools = await listed(ear, "tools")
        assert "brief" in tools
        assert not [name for name in tools if "file-read" in name or "file_read" in name]
        assert [name for name in await listed(await client_of(bridge, CI), "tools") if "read" in name]


async def test_code_that_runs_in_the_bridge_needs_a_role_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but who wrote it knows what it does to the machine; what is somewhere else is as any server."""
    (tmp_path / "shop_tools.py").write_text("def prices() -> str:\n    return 'low'\n")
    monkeypatch.syspath_prepend(tmp_path)
    roles = [
        {"name": "all", "principals": "*", "tools": "*", "servers": "*"},
        {"name": "shop", "principals": "ci", "tools": "tools/prices"},
    ]
    tools = {
        "prices": {"function": "shop_tools:prices"},
        "status": {"endpoint": "http://127.0.0.1:9/"},
    }
    async with team(roles, tools=tools, expose={"mode": "all"}) as bridge:
        for who, expected in ((ANN, {"status"}), (CI, {"status", "prices"})):
            seen = await listed(await client_of(bridge, who), "tools")
            assert {name for name in tools if any(name in one for one in seen)} == expected


async def test_a_role_asks_for_agreement_and_another_one_does_away_with_it() -> None:
    roles = [
        {"name": "careful", "groups": "eng-*", "tools": "github/*", "approve": "create_*"},
        {"name": "free", "groups": "leads", "tools": "github/create_issue"},
    ]
    async with team(roles, approval={"ask": []}) as bridge:
        call: dict[str, Any] = {"name": "github__create_issue", "arguments": {}}
        refused = await (await client_of(bridge, ANN)).ask("tools/call", call)
        assert refused["result"]["_meta"]["mcpbridge/error"] == "ApprovalUnavailable"
        lead = person("lead", groups=["eng-core", "leads"])
        assert "did create_issue" in json.dumps(await (await client_of(bridge, lead)).ask("tools/call", call))


async def test_rules_of_permissions_name_roles_and_look_at_claims() -> None:
    permissions = [
        {"roles": "staff", "tools": "get_issue", "permission": "deny", "reason": "not for staff"},
        {"tools": "create_issue", "when": "args.team != claims.team", "permission": "deny", "reason": "not your team"},
    ]
    async with team(permissions=permissions, expose={"mode": "all"}) as bridge:
        ear = await client_of(bridge, person("ann", groups=["eng-core"], team="red"))
        assert "github__get_issue" in await listed(ear, "tools")
        for given, expected in (("red", "did create_issue"), ("blue", "not your team")):
            call = {"name": "github__create_issue", "arguments": {"team": given}}
            assert expected in json.dumps(await ear.ask("tools/call", call))
        assert await listed(await client_of(bridge, BOB), "tools") == ["files__get_file"]


async def test_a_role_has_a_profile_and_an_exposure() -> None:
    roles = [{"name": "all", "principals": "*", "servers": "*", "profile": "part"}]
    profiles = {"part": {"servers": ["files"]}}
    async with team(roles, profiles=profiles, expose={"roles": {"all": {"mode": "all"}}, "mode": "search"}) as bridge:
        assert await listed(await client_of(bridge, ANN), "tools") == ["files__get_file", "files__write_file"]
        assert "find_tools" in await listed(await client_of(bridge, LOCAL), "tools")


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ({"name": "x", "tools": "*"}, "does not say who has it"),
        ({"name": "x", "groups": "a"}, "opens nothing and denies nothing"),
        ({"name": "x y", "groups": "a", "tools": "*"}, "should match pattern"),
        ({"name": "x", "when": "args.x > 1", "tools": "*"}, "about `claims` alone, and this one reads `args`"),
        ({"name": "x", "when": "claims.", "tools": "*"}, "not a condition"),
        ({"name": "x", "groups": "a", "resources": "docs"}, "is not `server/URI`"),
        ({"name": "x", "groups": "a", "tools": "*", "profile": "p"}, "names the profile 'p', which does not exist"),
        ({"name": "x", "groups": "a", "tolls": "*"}, "Extra inputs are not permitted"),
    ],
)
def test_a_mistake_in_a_role_is_said(role: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words.replace("`", "`")):
        Settings.model_validate({"roles": [role]})


def test_two_roles_of_one_name_and_exposure_for_none_are_said() -> None:
    role = {"name": "x", "groups": "a", "tools": "*"}
    with pytest.raises(ValidationError, match="two roles of `roles` have the name 'x'"):
        Settings.model_validate({"roles": [role, role]})
    with pytest.raises(ValidationError, match="about the role 'y', which does not exist; known: x"):
        Settings.model_validate({"roles": [role], "expose": {"roles": {"y": {"mode": "all"}}}})


some_globs: st.SearchStrategy[list[str]] = st.lists(
    st.sampled_from(["*", "get_*", "files/*", "*/create_*", "github/delete_repo", "github/*", "write_file"]), max_size=2
)
some_roles: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.fixed_dictionaries(
        {"tools": some_globs, "servers": st.lists(st.sampled_from(["files", "git*"]), max_size=1)},
        optional={
            "deny": some_globs,
            "read_only": st.booleans(),
            "groups": st.sampled_from([["eng-*"], ["support"], ["*"]]),
            "when": st.sampled_from(["claims.x == 1", "has(claims.groups)", "true"]),
            "principals": st.sampled_from([["*"], ["ci"], [""]]),
            "prompts": some_globs,
        },
    ),
    min_size=1,
    max_size=3,
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(some_roles)
async def test_with_any_roles_what_is_listed_is_what_can_be_called_and_found(given_roles: list[dict[str, Any]]) -> None:
    roles: list[dict[str, Any]] = []
    for number, role in enumerate(given_roles):
        selectors = {"groups", "when", "principals"} & role.keys()
        whole = {**role, "name": f"r{number}", **({} if selectors else {"principals": ["*"]})}
        if any(whole.get(key) for key in ("tools", "servers", "prompts", "deny")):
            roles.append(whole)
    if not roles:
        return
    async with team(roles, expose={"mode": "all"}) as bridge:
        for who in SEEN:
            ear = await client_of(bridge, who)
            tools, prompts = set(await listed(ear, "tools")), set(await listed(ear, "prompts"))
            visible = bridge.tool_search.visible_to(ear.client)
            assert set(visible.tools) == {name for name in tools if "__" in name}
            for name in [f"{server}__{tool}" for server, of_server in TOOLS.items() for tool in of_server]:
                is_done = await outcome(ear, "tools/call", {"name": name, "arguments": {}}) == "done"
                assert is_done is (name in tools), (name, who, roles)
            for server, name in itertools.product(TOOLS, ("hello", "secret")):
                is_done = await outcome(ear, "prompts/get", {"name": f"{server}__{name}"}) == "done"
                assert is_done is (f"{server}__{name}" in prompts)


async def test_a_tool_that_the_token_lacks_scopes_for_is_listed_and_a_call_says_what_it_needs() -> None:
    """RFC 6750, 3.1: all scopes that are needed, those that the token has included."""
    auth = {"tool_scopes": {"*": ["{server}:{access}"], "github/delete_*": ["admin"]}}
    roles = [{"name": "all", "groups": "*", "servers": "*"}, {"name": "ci", "principals": "ci", "servers": "*"}]
    async with team(roles, auth=auth, expose={"mode": "all"}) as bridge:
        ear = await client_of(bridge, person("ann", groups=["x"], scopes=("github:write", "openid")))
        assert "github__delete_repo" in await listed(ear, "tools")
        assert await outcome(ear, "tools/call", {"name": "github__create_issue", "arguments": {}}) == "done"
        for name in ("github__delete_repo", "call_tool"):
            inner: dict[str, Any] = {"name": "github__delete_repo", "arguments": {}} if name == "call_tool" else {}
            answer = await bridge.server.answer(
                ear.client, frame_of("tools/call", {"name": name, "arguments": inner}), ear.hear
            )
            assert answer.scopes == {"admin", "github:write"}
        assert "did delete_repo" in json.dumps(
            await (await client_of(bridge, CI)).ask("tools/call", {"name": "github__delete_repo", "arguments": {}})
        )
        hidden = await client_of(bridge, person("eve", scopes=("github:write", "admin")))
        assert await outcome(hidden, "tools/call", {"name": "github__delete_repo", "arguments": {}}) == (
            "-32602 Unknown tool"
        ), "scopes open nothing"


async def test_a_new_token_with_fewer_groups_ends_what_is_theirs_no_more() -> None:
    async with team(expose={"mode": "all"}) as bridge:
        ear = await client_of(bridge, person("ann", groups=["eng-core"]))
        await listed(ear, "tools")
        assert await outcome(ear, "resources/subscribe", {"uri": "github://open/1"}) == "done"
        assert list(ear.client.subscriptions) == ["github://open/1"]
        ear.told.clear()
        introduce(ear.client, person("ann", groups=["sales"]))
        assert await listed(ear, "tools") == []
        assert not ear.client.subscriptions
        assert {message["method"] for message in ear.told} == {
            f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
        }


async def test_other_roles_in_the_settings_end_streams_and_change_lists() -> None:
    """Issue 23: streams end when the role is lost."""
    async with team(expose={"mode": "all"}) as bridge:
        ear = await client_of(bridge, ANN)
        await listed(ear, "tools")
        wanted = {"notifications": {"resourceSubscriptions": ["github://open/1"]}, "_meta": envelope()}
        frame = frame_of("subscriptions/listen", wanted, b"7")
        client = modern_client(frame)
        introduce(client, ANN)
        told: list[bytes] = []
        stream = asyncio.create_task(bridge.server.answer(client, frame, told.append))
        await eventually(lambda: asyncio.sleep(0, told), bool)
        fewer = [role for role in ROLES if role["name"] != "engineering"]
        settings = bridge.settings.model_copy(update={"roles": Settings.model_validate({"roles": fewer}).roles})
        await bridge.reload(settings)
        with anyio.fail_after(30):
            assert b"complete" in bytes((await stream).data)
        assert "notifications/tools/list_changed" in [message["method"] for message in ear.told]
        assert await listed(ear, "tools") == ["files__get_file", "github__get_issue"]


async def test_roles_limit_rates_and_calls_of_conversations() -> None:
    roles = [
        {"name": "slow", "groups": "slow", "servers": "*", "rate_limit": "2/h"},
        {"name": "short", "groups": "short", "servers": "*", "max_calls": 1},
        {"name": "free", "groups": "free", "servers": "*"},
    ]
    call: dict[str, Any] = {"name": "github__get_issue", "arguments": {}}
    async with team(roles) as bridge:
        for group, most, error in (("slow", 2, "RateLimited"), ("short", 1, "BudgetSpent"), ("free", 9, "")):
            ear = await client_of(bridge, person(group, groups=[group]))
            answers = [json.dumps(await ear.ask("tools/call", call)) for _ in range(4)]
            assert ["did get_issue" in answer for answer in answers] == [number < most for number in range(4)]
            assert not error or error in answers[-1]


async def test_a_role_is_taken_with_a_reason_and_what_was_seen_of_it_changes() -> None:
    roles = [{"name": "oncall", "groups": "oncall", "servers": "*", "break_glass": True, "break_glass_time": "1h"}]
    ann, eve = person("ann", groups=["oncall"]), person("eve")
    async with team(roles, expose={"mode": "all"}) as bridge:
        ear, other = await client_of(bridge, ann), await client_of(bridge, eve)
        assert await listed(ear, "tools") == []
        for who in (ann, eve):
            take_role(bridge, who.principal, "oncall", "the site is down", 600, "test")
        assert "notifications/tools/list_changed" in [message["method"] for message in ear.told]
        assert "github__delete_repo" in await listed(ear, "tools")
        assert await listed(other, "tools") == [], "it is not for her"
        for role, reason, seconds in (
            ("oncall", " ", 60),
            ("oncall", "x", 7200),
            ("oncall", "x", 0),
            ("none", "x", 60),
        ):
            with pytest.raises(BridgeError):
                take_role(bridge, ann.principal, role, reason, seconds, "test")


@pytest.mark.parametrize(
    ("user", "claims", "tool", "expected"),
    [
        ("ci", None, "files__get_file", {"decision": "allow", "roles": ["machines"], "opened_by": ["machines"]}),
        ("ci", None, "github/get_issue", {"decision": "unknown", "would_open": ["engineering", "staff"]}),
        ("", None, "github/get_issue", {"decision": "allow", "roles": []}),
        ("ann", {"groups": ["eng-1"]}, "github/delete_repo", {"decision": "unknown", "denied_by": ["engineering"]}),
        ("ann", {"groups": ["eng-1"]}, "github/get_issue", {"decision": "deny", "reason": "not now"}),
        ("ann", {"groups": ["eng-1"]}, "create_issue", {"decision": "insufficient_scope", "missing_scopes": ["admin"]}),
        ("ann", {"groups": ["eng-1"], "scope": "admin"}, "create_issue", {"decision": "allow", "scopes": ["admin"]}),
        ("ann", {"groups": 7}, "create_issue", {"decision": "unknown", "denied_by": []}),
    ],
)
async def test_who_may_do_what_is_explained(
    user: str, claims: dict[str, Any] | None, tool: str, expected: dict[str, Any]
) -> None:
    rule = {"roles": "engineering", "tools": "get_issue", "permission": "deny", "reason": "not now"}
    auth = {"tool_scopes": {"create_issue": ["admin"]}}
    async with team(permissions=[rule], auth=auth) as bridge:
        answer = explain_access(bridge, user, tool, claims=claims, arguments={})
        assert {key: answer[key] for key in expected} == expected
