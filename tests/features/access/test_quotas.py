"""Quotas of people and of teams, as clients meet them (issue 23)."""

import hashlib
import json
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from mcpbridge.app.admin.control_commands import control_answers
from mcpbridge.app.admin.usage import quota_rows
from mcpbridge.app.cli.daemon.status import _show as show_status
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.schema import Settings
from mcpbridge.core.identity import Identity
from mcpbridge.pipeline.roles.settings import RoleSettings
from support.harness import Place, python_server
from support.in_process_bridge import BridgeToScripts, Ear, bridged
from support.people import ear_of, introduce, office, person
from support.team import team, token_of
from support.upstreams.scripted_upstream import Refusal, ScriptedTransport

pytestmark = pytest.mark.anyio

ANN, BOB, CAT = (person(name, groups=["eng"]) for name in ("ann", "bob", "cat"))
CALL: dict[str, Any] = {"name": "files__get_file", "arguments": {}}


def bridge_with(folder: Path, *roles: dict[str, Any], **sections: Any) -> Any:
    found = [
        {"name": f"role-{number}", "groups": "eng", "servers": "files", **role} for number, role in enumerate(roles)
    ]
    return bridged(
        {"files": office("files", "get_file", "write_file")},
        servers={"files": {"trusted": True}},
        roles=found,
        store={"path": str(folder / "store.db")},
        **sections,
    )


async def ask(ear: Ear, **changes: Any) -> dict[str, Any]:
    return (await ear.ask("tools/call", {**CALL, **changes})).get("result", {})


async def client_of(bridge: BridgeToScripts, who: Identity) -> Ear:
    return await ear_of(bridge.server, who)


def error_of(result: dict[str, Any]) -> str:
    return result.get("_meta", {}).get("mcpbridge/error", "")


async def test_each_person_has_their_own_and_the_error_says_when_there_is_room(tmp_path: Path) -> None:
    async with bridge_with(tmp_path, {"quota": "3 calls per day"}) as bridge:
        ann, bob = await client_of(bridge, ANN), await client_of(bridge, BOB)
        for _ in range(3):
            assert "did get_file" in json.dumps(await ask(ann))
        refused = await ask(ann)
        assert refused["isError"] is True
        assert error_of(refused) == "QuotaSpent"
        text = refused["content"][0]["text"]
        assert "Your quota of the role 'role-0' is used up: 3 of 3 calls (3 calls per day). Nothing was sent." in text
        quota, wait = (refused["_meta"][f"mcpbridge/{name}"] for name in ("quota", "retryAfter"))
        assert 0 < wait <= 86400
        assert (quota["used"], quota["limit"]) == (3, 3)
        assert quota["resets"] in text
        assert error_of(await ask(await client_of(bridge, ANN))) == "QuotaSpent", "a new session is no way around it"
        assert error_of(await ask(bob)) == ""


async def test_a_team_shares_its_quota_and_counts_last_over_a_restart(tmp_path: Path) -> None:
    team = {"quota": ["3 calls per month"], "quota_of": "team"}
    async with bridge_with(tmp_path, team) as bridge:
        for who in (ANN, BOB):
            assert error_of(await ask(await client_of(bridge, who))) == ""
    async with bridge_with(tmp_path, team) as bridge:
        cat = await client_of(bridge, CAT)
        assert error_of(await ask(cat)) == ""
        refused = await ask(cat)
        assert "The quota of the team 'role-0' is used up: 3 of 3 calls" in refused["content"][0]["text"]
    role = RoleSettings.model_validate({"name": "role-0", "groups": "eng", "servers": "files", **team})
    [row] = quota_rows([role], tmp_path / "quotas.db", time.time())
    assert (row["role"], row["used"], row["limit"], row["share"], "user" in row) == ("role-0", 3, 3, 1.0, False)


async def test_the_status_of_the_bridge_has_what_is_used_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daily, hourly = {"quota": "2 calls per day"}, {"quota": "50 calls in 24h", "quota_of": "team"}
    async with bridge_with(tmp_path, daily, hourly) as bridge:
        answers = control_answers(bridge, Redactor([]), lambda: {"front": "stdio"}, None, {})

        async def status() -> dict[str, Any]:
            found = answers["status"]({})
            return dict(await found if isinstance(found, Awaitable) else found)

        assert (await status())["quotas"]["used_up"] == 0
        ann = await client_of(bridge, ANN)
        for _ in range(2):
            assert error_of(await ask(ann)) == ""
        assert error_of(await ask(await client_of(bridge, BOB))) == ""
        document = await status()
    quotas = document["quotas"]
    assert quotas["used_up"] == 1
    assert [(one["role"], one.get("user"), one["used"], one["limit"]) for one in quotas["most_used"]] == [
        ("role-0", ANN.principal, 2, 2),
        ("role-0", BOB.principal, 1, 2),
        ("role-1", None, 3, 50),
    ]
    show_status(document)
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("quotas: 1 used up; `mcpbridge usage --quotas` shows all")
    assert lines[at + 1].startswith(f"  role-0, {ANN.principal}: 2 of 2 calls per day (100%), all of it again at ")
    assert "role-0" not in "".join(lines[at + 2 :])


async def test_where_no_role_has_one_the_status_says_so(tmp_path: Path) -> None:
    async with bridge_with(tmp_path, {}) as bridge:
        found = control_answers(bridge, Redactor([]), dict, None, {})["status"]({})
        document = await found if isinstance(found, Awaitable) else found
        assert document["quotas"] is None
    assert not (tmp_path / "quotas.db").exists()


async def test_calls_at_once_never_exceed_it(tmp_path: Path) -> None:
    async with bridge_with(tmp_path, {"quota": "5 calls per day"}) as bridge:
        ears, outcomes = [await client_of(bridge, ANN) for _ in range(20)], list[str]()

        async def one(ear: Ear) -> None:
            answer = await ask(ear)
            outcomes.append(error_of(answer) or answer["content"][0]["text"])

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for ear in ears:
                    group.start_soon(one, ear)
        assert sorted(outcomes) == ["QuotaSpent"] * 15 + ["files did get_file"] * 5


async def test_what_the_bridge_refuses_uses_nothing_and_what_a_server_refuses_does(tmp_path: Path) -> None:
    async with bridge_with(
        tmp_path, {"quota": "2 calls per day"}, permissions=[{"tools": "files/write_file", "permission": "deny"}]
    ) as bridge:
        ann = await client_of(bridge, ANN)
        for _ in range(3):
            assert error_of(await ask(ann, name="files__write_file")) in ("NotPermitted", "")
            assert error_of(await ask(ann, arguments=7)) != "QuotaSpent"
        bridge.transports["files"].script["tools/call"] = Refusal(-32000, "no")
        for _ in range(2):
            assert error_of(await ask(ann)) != "QuotaSpent"
        assert error_of(await ask(ann)) == "QuotaSpent"


async def test_a_call_counts_whose_result_a_hook_withholds(tmp_path: Path) -> None:
    """Its server has done what it was asked."""
    answer = json.dumps({"refuse": "not for you"})
    hook = {"event": "tool_call.after", "command": [sys.executable, "-c", f"print({answer!r})"]}
    async with bridge_with(tmp_path, {"quota": "2 calls per day"}, hooks=[hook]) as bridge:
        ann = await client_of(bridge, ANN)
        results = [await ask(ann) for _ in range(3)]
        assert "withholds the result: not for you" in json.dumps(results[0])
        assert len(bridge.transports["files"].asked("tools/call")) == 2


async def test_tokens_are_counted_as_clients_get_them_and_a_hint_comes_before_the_end(tmp_path: Path) -> None:
    async with bridge_with(tmp_path, {"quota": "100 tokens per day"}) as bridge:
        ann = await client_of(bridge, ANN)
        results = [await ask(ann) for _ in range(6)]
        first_refused = [error_of(result) for result in results].index("QuotaSpent")
        hinted = [result.get("_meta", {}).get("mcpbridge/quota") for result in results[:first_refused]]
        assert hinted[0] is None
        assert hinted[-1]["used"] >= 90
        assert hinted[-1]["quota"] == "100 tokens per day"


async def test_one_role_with_room_is_enough(tmp_path: Path) -> None:
    async with bridge_with(tmp_path, {"quota": "1 call per day"}, {"quota": "4 calls in 24h"}) as bridge:
        ann = await client_of(bridge, ANN)
        assert [error_of(await ask(ann)) for _ in range(5)] == ["", "", "", "", "QuotaSpent"]


async def test_a_call_that_is_tried_again_counts_once(place: Place) -> None:
    """The server ends in the middle of the first call, which is made again."""
    role = {"name": "me", "principals": [""], "servers": "reads", "quota": "2 calls per day"}
    reads = python_server("flaky", trusted=True, retry={"tries": 3, "backoff": 0.05})
    async with place.bridge({"reads": reads}, roles=[role]) as client:
        await client.initialize()
        await client.tools_with("reads__look")
        file = place.folder / "calls"
        replies = [await client.call("reads__look", within=30, file=str(file), crashes=1) for _ in range(3)]
        assert [reply.text for reply in replies[:2]] == ["call 2", "call 3"]
        assert error_of(replies[2].result) == "QuotaSpent"
        assert len(file.read_text().split()) == 3


@pytest.mark.parametrize(
    ("role", "message"),
    [
        ({"quota": "many"}, "1000 calls per day"),
        ({"quota": ["1 call per day", "2 calls per day"]}, "the smaller one is enough"),
        ({"quota": "1 call per day", "quota_zone": "Mars"}, "no time zone"),
        ({"quota": "1 call per day", "quota_of": "room"}, "person"),
    ],
)
def test_a_wrong_quota_is_refused_when_the_configuration_is_read(role: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings.model_validate({"roles": [{"name": "a", "groups": "g", "servers": "s", **role}]})


def with_tasks(result: dict[str, Any]) -> ScriptedTransport:
    """A server whose tool runs as a task where a client wants it so; this is the result of each."""
    files = office("files", "get_file")
    runs = {"taskId": "one", "status": "completed", "createdAt": _THEN, "lastUpdatedAt": _THEN, "ttl": 600_000}
    tool = {"name": "get_file", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    capabilities = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
    files.script |= {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": "files", "version": "1"},
        },
        "tools/list": {"tools": [tool]},
        "tools/call": lambda params: {"task": runs} if "task" in params else result,
        "tasks/get": runs,
        "tasks/result": result,
    }
    return files


_THEN = "2026-01-01T00:00:00Z"


async def runner_of(bridge: BridgeToScripts, who: Identity) -> Ear:
    """A client of the revision that has tasks."""
    ear = Ear(bridge.server)
    introduce(ear.client, who)
    info = {"name": "runner", "version": "1"}
    await ear.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
    ear.tell("notifications/initialized")
    return ear


async def test_what_a_task_has_brought_counts_when_its_client_gets_it(tmp_path: Path) -> None:
    """Else whoever runs tools as tasks would get any number of tokens."""
    result = {"content": [{"type": "text", "text": "word " * 400}]}
    roles = [{"name": "eng", "groups": "eng", "servers": "files", "quota": ["1000 tokens per day", "9 calls per day"]}]
    async with bridged(
        {"files": with_tasks(result)},
        servers={"files": {"trusted": True}},
        roles=roles,
        store={"path": str(tmp_path / "store.db")},
    ) as bridge:
        ann = await runner_of(bridge, ANN)
        ids = [(await ask(ann, arguments={"n": n}, task={}))["task"]["taskId"] for n in range(4)]
        answers = [await ann.ask("tasks/result", {"taskId": id_}) for id_ in ids]
        got = ["word word" in json.dumps(one) for one in answers]
        assert got[0]
        assert not got[-1], "four results are more than the quota"
        assert "is used up" in json.dumps(answers[-1])
        assert error_of(await ask(ann)) == "QuotaSpent"
    role = RoleSettings.model_validate(roles[0])
    by_unit = {row["unit"]: row["used"] for row in quota_rows([role], tmp_path / "quotas.db", time.time())}
    assert by_unit["calls"] == 4, "each task is one call, however often it is looked at"


async def test_a_quota_of_calls_lets_everybody_have_the_results_of_their_tasks(tmp_path: Path) -> None:
    result = {"content": [{"type": "text", "text": "word " * 400}]}
    roles = [{"name": "eng", "groups": "eng", "servers": "files", "quota": "1 calls per day"}]
    async with bridged(
        {"files": with_tasks(result)},
        servers={"files": {"trusted": True}},
        roles=roles,
        store={"path": str(tmp_path / "store.db")},
    ) as bridge:
        ann = await runner_of(bridge, ANN)
        id_ = (await ask(ann, task={}))["task"]["taskId"]
        assert error_of(await ask(ann, task={})) == "QuotaSpent"
        for _ in range(3):
            assert (await ann.ask("tasks/get", {"taskId": id_}))["result"]["status"] == "completed"
            assert "word word" in json.dumps(await ann.ask("tasks/result", {"taskId": id_}))


async def test_everybody_sees_their_own_over_http_and_on_their_page(tmp_path: Path) -> None:
    """Issue 23: what belongs to a person is shown to its owner or to an administrator."""
    roles: list[dict[str, Any]] = [
        {"name": "engineering", "principals": ["ann", "bob"], "servers": "plain", "quota": "10 calls per day"},
        {"name": "ops", "principals": ["ann", "cat"], "servers": "*", "quota": "4 calls per day", "quota_of": "team"},
        {"name": "all", "principals": "*", "servers": "plain"},
    ]
    tokens = {"tokens": [{"name": name, "sha256": sha256_of(name), "admin": name == "root"} for name in PEOPLE]}
    servers = {"plain": python_server("plain")}
    with anyio.fail_after(60):
        async with team(servers, *PEOPLE, http=tokens, roles=roles, store={"path": str(tmp_path / "store.db")}) as all_:
            for name in ("ann", "ann", "bob", "cat"):
                await all_[name].call("plain__echo", text="it")

            async def seen(name: str) -> set[tuple[str, str, int, int]]:
                headers = {"authorization": f"Bearer {all_[name].token}"}
                answer = await all_[name].http.get(f"{all_.origin}/api/quotas", headers=headers)
                assert answer.status_code == 200, answer.text
                rows = answer.json()["quotas"]
                return {(row["role"], row.get("user", "all of it"), row["used"], row["limit"]) for row in rows}

            ops = ("ops", "all of it", 3, 4)
            assert await seen("ann") == {("engineering", "ann", 2, 10), ops}
            assert await seen("bob") == {("engineering", "bob", 1, 10)}
            assert await seen("cat") == {ops}
            assert await seen("dan") == set(), "none of the roles that he has"
            assert await seen("root") == {("engineering", "ann", 2, 10), ("engineering", "bob", 1, 10), ops}
            assert (await all_["ann"].http.get(f"{all_.origin}/api/quotas")).status_code == 401
            page = (await all_["bob"].get("/connections")).text
            assert "calls per day" not in page, "nobody is signed in"
            await all_["bob"].enter()
            page = (await all_["bob"].get("/connections")).text
            assert "Your quotas" in page
            assert "1 of 10 (10 %)" in page
            assert "of 4" not in page
            await all_["dan"].enter()
            assert "Your quotas" not in (await all_["dan"].get("/connections")).text


PEOPLE = ("ann", "bob", "cat", "dan", "root")


def sha256_of(name: str) -> str:
    return hashlib.sha256(token_of(name).encode()).hexdigest()
