"""All upstreams side by side: each settles, fails and stops without the others."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import Overloaded, UpstreamUnavailable
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from support.upstreams.scripted_upstream import (
    LEGACY_SERVER,
    MODERN_SERVER,
    SILENCE,
    Line,
    ScriptedTransport,
    Someone,
    Watcher,
    call_of,
    pool_of,
)

SILENT = {"server/discover": SILENCE, "initialize": SILENCE}


async def test_upstreams_are_in_the_order_of_their_names_and_disabled_ones_left_out() -> None:
    transports = {name: ScriptedTransport(LEGACY_SERVER) for name in ("b", "a", "off")}
    pool = pool_of(transports, off={"disabled": True})
    assert list(pool.upstreams) == ["a", "b"]
    async with pool.running():
        assert await pool.settled(30)
    assert transports["off"].attempts == 0
    assert {upstream.status.state for upstream in pool.upstreams.values()} == {"stopped"}


async def test_waiting_ends_when_every_upstream_is_ready_or_has_failed_once() -> None:
    bad, good = ScriptedTransport(LEGACY_SERVER), ScriptedTransport(LEGACY_SERVER)
    bad.refuses = [UpstreamUnavailable("bad", "connection refused")] * 9
    pool = pool_of({"bad": bad, "good": good, "odd": ScriptedTransport(SILENT)}, odd={"unavailable": "no ${TOKEN}"})
    with anyio.fail_after(30):
        async with pool.running():
            assert await pool.settled(30)
            assert pool.upstreams["good"].status.state == "ready"
            assert pool.upstreams["bad"].status.state in ("retrying", "starting")


async def test_waiting_ends_when_time_is_up_and_the_others_work() -> None:
    pool = pool_of({"bad": ScriptedTransport(SILENT), "good": ScriptedTransport(LEGACY_SERVER)})
    async with pool.running():
        assert not await pool.settled(0.02)
        assert not pool.upstreams["bad"].has_settled
        assert (await pool.upstreams["good"].request(call_of())).value()["content"]


async def test_an_empty_pool_has_settled() -> None:
    pool = pool_of({})
    async with pool.running():
        assert await pool.settled(0)


async def test_an_error_of_the_body_stops_all_upstreams_and_arrives_as_it_was() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"a": transport})

    async def fail_inside() -> None:
        async with pool.running():
            await pool.settled(30)
            raise ValueError("of the body")

    with pytest.raises(ValueError, match="of the body"):
        await fail_inside()
    assert not transport.line.is_open


# -- instances


def declared(transport: ScriptedTransport) -> list[dict[str, Any]]:
    """What each session was opened with, as far as clients can be asked it."""
    capabilities = [dict(message["params"]["capabilities"]) for message in transport.asked("initialize")]
    for one in capabilities:
        one.pop("extensions", None)
    return capabilities


async def served(pool: Pool, client: Someone, **more: Any) -> Upstream:
    """The instance that a call of this client went to."""
    base = pool.upstreams["up"]
    upstream = base if base.serves(client) else await pool.serving(base, client)
    await upstream.request(call_of(client=client, **more))
    return upstream


async def test_exactly_what_clients_declared_is_declared_to_a_legacy_server() -> None:
    """A server is told only of what can really be delivered to the client behind the call."""
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            nothing = await served(pool, Someone())
            assert nothing is pool.upstreams["up"]
            forms = await served(pool, Someone(form=True))
            both = await served(pool, Someone(sampling=True, roots=True))
            assert await served(pool, Someone(form=True)) is forms
            assert await served(pool, Someone()) is nothing
            assert len({nothing, forms, both}) == pool.instances("up") == 3
            assert set(pool.everyone()) == {nothing, forms, both}
    asked = {"roots": {"listChanged": True}, "sampling": {}}
    assert declared(transport) == [{}, {"elicitation": {"form": {}}}, asked]


async def test_a_session_that_nobody_used_yet_is_opened_for_the_first_that_comes() -> None:
    """No second process for one client alone, whatever it can be asked."""
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            upstream = await served(pool, Someone(form=True))
            assert upstream is pool.upstreams["up"]
            assert pool.instances("up") == 1
    assert declared(transport) == [{}, {"elicitation": {"form": {}}}]


async def test_a_client_that_is_there_before_the_server_is_opens_one_session() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport})
    someone = Someone(sampling=True)
    pool.expect(someone.capabilities)
    with anyio.fail_after(10):
        async with pool.running():
            await served(pool, someone)
            pool.expect(Someone(form=True).capabilities)  # too late
    assert declared(transport) == [{"sampling": {}}]


async def test_a_server_that_may_never_ask_has_one_session_that_declares_nothing() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport}, up={"questions": "never"})
    with anyio.fail_after(10):
        async with pool.running():
            pool.expect(Someone(form=True).capabilities)
            for client in (Someone(form=True), Someone(), Someone(roots=True)):
                assert await served(pool, client) is pool.upstreams["up"]
    assert declared(transport) == [{}]


async def test_a_modern_server_has_one_session_for_all() -> None:
    transport = ScriptedTransport(MODERN_SERVER)
    pool = pool_of({"up": transport})
    with anyio.fail_after(10):
        async with pool.running():
            for client in (Someone(form=True), Someone(), Someone(form=True, roots=True)):
                assert await served(pool, client) is pool.upstreams["up"]
    told = [
        message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        for message in transport.asked("tools/call")
    ]
    for capabilities in told:
        capabilities.pop("extensions")
    assert told == [{"elicitation": {"form": {}}}, {}, {"roots": {}, "elicitation": {"form": {}}}]


async def test_roots_of_the_configuration_are_declared_for_everyone() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport}, up={"roots": ["/srv"]})
    with anyio.fail_after(10):
        async with pool.running():
            await served(pool, Someone())
            await served(pool, Someone(form=True))
    roots = {"roots": {"listChanged": True}}
    assert declared(transport) == [roots, {**roots, "elicitation": {"form": {}}}]


async def test_only_so_many_further_instances_are_opened() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport}, up={"max_instances": 1})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            await served(pool, Someone())
            form = await served(pool, Someone(form=True))
            with form.usage.held(), pytest.raises(Overloaded, match="max_instances"):
                await served(pool, Someone(sampling=True))
            assert await served(pool, Someone(form=True)) is form


async def test_at_the_limit_one_that_is_idle_makes_room() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport}, up={"max_instances": 1})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            await served(pool, Someone())
            form = await served(pool, Someone(form=True))
            other = await served(pool, Someone(sampling=True))
            assert other is not form
            assert pool.instances("up") == 2


async def test_an_instance_that_is_not_used_ends_and_comes_back_when_it_is() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport}, up={"instance_idle": 0.05})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            await served(pool, Someone())
            other = await served(pool, Someone(form=True))
            [line] = [line for line in transport.lines[1:] if line.asked("tools/call")]
            while other.status.state != "stopped":
                await other.connection.stepped()
            assert not line.is_open
            assert pool.instances("up") == 1
            assert await served(pool, Someone(form=True)) is not other
            assert transport.lines[0].is_open


async def test_an_instance_with_a_call_under_way_does_not_end() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport}, up={"instance_idle": 0.02})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            await served(pool, Someone())
            transport.script["tools/call"] = SILENCE
            call = asyncio.ensure_future(served(pool, Someone(form=True)))
            asked = await transport.hears("tools/call", times=2)
            await asyncio.wait([call], timeout=0.1)
            [line] = [line for line in transport.lines if asked in line.heard]
            line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
            await call


@pytest.mark.parametrize("seconds", [None, 0.05], ids=["left", "too old"])
async def test_an_instance_does_not_end_before_the_tasks_that_somebody_waits_for(seconds: float | None) -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport}, up={"instance_idle": 0.02})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            await served(pool, Someone())
            other = await served(pool, Someone(form=True))
            for id_ in ("first", "second"):
                other.tasks.follow(id_, call_of(), seconds=seconds)
            ended = asyncio.ensure_future(other.connection.stepped())
            if seconds is None:
                other.tasks.leave("first")
                await asyncio.wait([ended], timeout=0.1)
                assert other.status.state == "ready"
                other.tasks.leave("second")
            await ended
            assert not other.tasks
            assert other.status.state == "stopped"


async def test_clients_that_are_kept_apart_share_nothing() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport}, up={"share": "session"})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            people = [Someone(), Someone(), Someone(form=True)]
            instances = [await served(pool, person) for person in people]
            assert len({pool.upstreams["up"], *instances}) == 4
            assert [await served(pool, person) for person in people] == instances
            pool.release(people[0].home)
            while instances[0].status.state != "stopped":
                await instances[0].connection.stepped()
            assert instances[1].status.state == "ready"
            assert await served(pool, people[0]) is not instances[0]


async def test_clients_of_a_project_share_an_instance_that_works_there(tmp_path: Path) -> None:
    """One project is one process: the instance that lists moves to the first project that a client brings."""
    made: list[str | None] = []
    transport = ScriptedTransport(LEGACY_SERVER)

    def make(_: str, settings: ServerSettings) -> ScriptedTransport:
        made.append(settings.cwd)
        return transport

    settings = {"up": ServerSettings.model_validate({"command": "x", "share": "project"})}
    pool = Pool(settings, make, Watcher(), client_info={"name": "b"})
    here, gone = tmp_path.as_uri(), (tmp_path / "gone").as_uri()
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            first, second = [await served(pool, Someone(project=here)) for _ in range(2)]
            assert first is second is pool.upstreams["up"]
            assert await served(pool, Someone(project=f"{here}/")) is first
            assert await served(pool, Someone(project=gone)) is not first
            assert await served(pool, Someone(project="https://example.com")) is not first
            assert await served(pool, Someone()) is not first
            leaving = Someone(project=here)
            await served(pool, leaving)
            pool.release(leaving.home)  # the project is not this client's alone
            assert await served(pool, Someone(project=here)) is first
    assert made == [None, str(tmp_path), None, None, None]


async def test_clients_whose_project_is_not_known_can_be_asked_all_the_same() -> None:
    """As every modern client. Each principal's have a session that declares what they can be asked."""
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport}, up={"share": "project"})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            one = await served(pool, Someone(form=True))
            assert one is await served(pool, Someone(form=True))
            stranger = Someone(form=True)
            stranger.principal = "another"
            other = await served(pool, stranger)
            assert len({one, other, await served(pool, Someone(sampling=True)), await served(pool, Someone())}) == 4
            assert await served(pool, Someone()) is pool.upstreams["up"], "who can be asked nothing needs no other"
    assert declared(transport)[0] == {}
    assert declared(transport)[1:3] == [{"elicitation": {"form": {}}}] * 2


@pytest.mark.parametrize("share", ["session", "project"])
async def test_a_question_on_an_instance_that_several_share_is_put_to_the_client_whose_call_it_is(
    share: str,
) -> None:
    """Two sessions in one project, or two modern requests of one home: their calls take turns."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    pool = pool_of({"up": transport}, up={"share": share})
    first, second = (Someone(form=True, home="principal ada", project="file:///work") for _ in range(2))
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            calls = [asyncio.ensure_future(served(pool, someone)) for someone in (first, second)]
            asked = await transport.hears("tools/call")
            line = transport.line
            await asked_by(line, "q")
            while not first.asked:
                await asyncio.sleep(0)
            first.answer.set_result({"action": "accept"})
            while reply_to(line, "q") is None:
                await asyncio.sleep(0)
            assert not second.asked
            assert len(transport.asked("tools/call")) == 1, "the other's waits for its turn"
            line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
            asked = await transport.hears("tools/call", times=2)
            await asked_by(line, "r")
            while not second.asked:
                await asyncio.sleep(0)
            line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
            one, other = await asyncio.gather(*calls)
            assert one is other
            assert (one is pool.upstreams["up"]) is (share == "project")
            assert len(first.asked) == 1


async def test_two_clients_that_can_be_asked_do_not_wait_for_each_other_long() -> None:
    """A legacy server on a plain channel: its questions name no call, so each client gets a session of its own."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    pool = pool_of({"up": transport})
    first, second = Someone(form=True), Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            calls = [asyncio.ensure_future(served(pool, first))]
            await transport.hears("tools/call")
            calls.append(asyncio.ensure_future(served(pool, second)))
            await transport.hears("tools/call", times=2)
            assert len([line for line in transport.lines if line.is_open and line.asked("tools/call")]) == 2
            for line in transport.lines:
                for asked in line.asked("tools/call"):
                    line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
            one, other = await asyncio.gather(*calls)
            assert one is not other


async def test_all_instances_end_with_the_pool() -> None:
    transport = ScriptedTransport(LEGACY_SERVER)
    pool = pool_of({"up": transport})
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            for client in (Someone(), Someone(form=True), Someone(roots=True)):
                await served(pool, client)
            assert sum(line.is_open for line in transport.lines) >= 3
    assert not any(line.is_open for line in transport.lines)


# -- whose question it is


async def asked_by(line: Line, id_: str, method: str = "elicitation/create") -> None:
    line.gives({"jsonrpc": "2.0", "id": id_, "method": method, "params": {"message": "?", "messages": []}})


def reply_to(line: Line, id_: str) -> dict[str, Any] | None:
    return next((message for message in line.heard if "method" not in message and message["id"] == id_), None)


async def test_a_late_question_of_a_call_that_was_given_up_is_put_to_nobody_else() -> None:
    """The server may be at it still; what it asks then names no call."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    pool = pool_of({"up": transport}, up={"max_instances": 1})
    first, second = Someone(form=True), Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            base = pool.upstreams["up"]
            await pool.serving(base, first)
            given_up = asyncio.ensure_future(base.request(call_of(client=first)))
            await transport.hears("tools/call")
            line = transport.line
            given_up.cancel()
            await asyncio.wait([given_up])
            assert base.requests.is_held_from(second)
            assert not base.requests.is_held_from(first)
            other = asyncio.ensure_future(base.request(call_of(client=second)))
            await transport.hears("tools/call", times=2)
            await asked_by(line, "late")
            answer = reply_to(line, "late")
            assert answer is not None
            assert answer["error"]["code"] == -32600
            assert not second.asked
            other.cancel()
            await asyncio.wait([other])


async def test_a_question_after_the_answer_in_one_read_belongs_to_no_call() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    pool = pool_of({"up": transport})
    someone = Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            call = asyncio.ensure_future(served(pool, someone))
            asked = await transport.hears("tools/call")
            line = transport.line
            line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
            await asked_by(line, "late")
            await call
            answer = reply_to(line, "late")
            assert answer is not None
            assert answer["error"]["code"] == -32600
            assert not someone.asked


async def test_a_question_that_is_withdrawn_in_the_same_read_leaves_nothing_open() -> None:
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    pool = pool_of({"up": transport})
    someone = Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            call = asyncio.ensure_future(served(pool, someone))
            asked = await transport.hears("tools/call")
            line = transport.line
            await asked_by(line, "one")
            line.says("notifications/cancelled", requestId="one")
            await asked_by(line, "two")
            while not someone.asked:
                await asyncio.sleep(0)
            someone.answer.set_result({"action": "accept"})
            while reply_to(line, "two") is None:
                await asyncio.sleep(0)
            await asked_by(line, "one")  # the id is free again
            while reply_to(line, "one") is None:
                await asyncio.sleep(0)
            assert len(someone.asked) == 2
            line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
            await call


async def test_the_calls_of_a_client_do_not_time_out_while_it_is_asked_about_one_of_them() -> None:
    """Which of them it is cannot be told, so none of their clocks runs."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    pool = pool_of({"up": transport}, up={"call_timeout": 1})
    someone = Someone(form=True)
    with anyio.fail_after(10):
        async with pool.running():
            calls = [asyncio.ensure_future(served(pool, someone)) for _ in range(2)]
            await transport.hears("tools/call", times=2)
            line = transport.line
            await asked_by(line, "q")
            done, _ = await asyncio.wait(calls, timeout=1.5)
            assert not done
            calls[1].cancel()  # the likelier one; it may still be the other's
            await asyncio.wait(calls[1:])
            assert reply_to(line, "q") is None
            someone.answer.set_result({"action": "accept"})
            while reply_to(line, "q") is None:
                await asyncio.sleep(0)
            line.gives({"jsonrpc": "2.0", "id": line.asked("tools/call")[0]["id"], "result": {"content": []}})
            await calls[0]


async def test_a_question_goes_by_another_call_of_the_client_when_the_newest_has_no_way() -> None:
    """Its stream may be broken, or not be read at all; whichever call it is of, the same person answers."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    pool = pool_of({"up": transport})
    older, newer = Someone(form=True), Someone(form=True)
    newer.owner, newer.is_away = older, True
    older.owner = older
    with anyio.fail_after(10):
        async with pool.running():
            calls = [asyncio.ensure_future(served(pool, someone)) for someone in (older, newer)]
            await transport.hears("tools/call", times=2)
            line = transport.line
            await asked_by(line, "q")
            while not older.asked:
                await asyncio.sleep(0)
            older.answer.set_result({"action": "accept"})
            while (answer := reply_to(line, "q")) is None:
                await asyncio.sleep(0)
            assert answer["result"] == {"action": "accept"}
            older.is_away = True
            await asked_by(line, "r")
            while (answer := reply_to(line, "r")) is None:
                await asyncio.sleep(0)
            assert answer["error"]["message"] == "away"
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)


@pytest.mark.parametrize("relays", [False, True], ids=["legacy", "modern"])
async def test_roots_are_of_the_session_and_may_be_told_after_the_call_in_which_they_were_asked_for(
    relays: bool,
) -> None:
    """Servers ask for them as soon as they are initialized, which is when the first call comes to a new instance."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    pool = pool_of({"up": transport}, up={"share": "session"})
    someone = Someone(roots=True)
    someone.relays = relays  # pyright: ignore[reportAttributeAccessIssue] - of a modern client
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            call = asyncio.ensure_future(served(pool, someone))
            asked = await transport.hears("tools/call")
            line = transport.line
            await asked_by(line, "r", "roots/list")
            while not someone.asked:
                await asyncio.sleep(0)
            line.gives({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": []}})
            upstream = await call
            if relays:
                answer = reply_to(line, "r")
                assert answer is not None
                assert answer["error"]["code"] == -32600, "what it is asked comes as an answer to its call, or never"
            else:
                assert reply_to(line, "r") is None
                someone.answer.set_result({"roots": []})
                while (answer := reply_to(line, "r")) is None:
                    await asyncio.sleep(0)
                assert answer["result"] == {"roots": []}
            assert upstream.has_missed_roots == relays


async def test_a_log_message_is_of_the_newest_call_when_all_that_run_are_one_clients() -> None:
    """It is surely the client's, if not the call's. Of two clients it would be nobody's."""
    transport = ScriptedTransport(LEGACY_SERVER, **{"tools/call": SILENCE})
    watcher = Watcher()
    pool = pool_of({"up": transport}, watcher)
    heard: list[tuple[int, Any]] = []

    def ear(number: int) -> Any:
        return lambda method, params: heard.append((number, json.loads(bytes(params))["data"]))

    someone, other = Someone(), Someone()
    with anyio.fail_after(10):
        async with pool.running():
            assert await pool.settled(30)
            calls = [asyncio.ensure_future(served(pool, someone, update=ear(number))) for number in range(2)]
            await transport.hears("tools/call", times=2)
            transport.line.says("notifications/message", level="info", data="whose?")
            calls.append(asyncio.ensure_future(served(pool, other, update=ear(2))))
            await transport.hears("tools/call", times=3)
            transport.line.says("notifications/message", level="info", data="and this?")
            assert heard == [(1, "whose?")]
            assert [message["data"] for message in watcher.logs] == ["and this?"]
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
