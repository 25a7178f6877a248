"""The handshake era over HTTP: sessions, streams, resumption."""

import asyncio
import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from mcpbridge.downstream.client import Answer, Client, Notify
from mcpbridge.downstream.http import app as http_app
from mcpbridge.downstream.http.event_streams import Stream
from mcpbridge.downstream.http.exchange import Exchange
from mcpbridge.downstream.http.reply import OpenReplies, Reply, ReplyOptions
from mcpbridge.downstream.settings import HttpSettings, TokenSettings
from mcpbridge.protocol.jsonrpc import Frame
from support.http_front import LEGACY, Http, events, request, said, serving
from support.virtual_time import pass_time

NEWEST = "2025-11-25"


class Reading:
    """An open stream, read event by event."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self._chunks = response.aiter_text()
        self._text = ""

    async def next_block(self) -> str:
        while "\n\n" not in self._text:
            self._text += await anext(self._chunks)
        block, _, self._text = self._text.partition("\n\n")
        return block

    async def next_event(self) -> tuple[str, str]:
        while True:
            found = events(await self.next_block())
            if found:
                return found[0]

    async def rest(self) -> list[tuple[str, str]]:
        async for chunk in self._chunks:
            self._text += chunk
        return events(self._text)


def message_of(number: int) -> str:
    return said(number).decode()


async def test_initialize_opens_a_session_that_later_requests_name() -> None:
    async with serving() as http:
        session = await http.session()
        assert len(session["mcp_session_id"]) >= 32
        assert session["mcp_session_id"] != (await http.session())["mcp_session_id"]
        response = await http.post(request("echo", id_="one", a=None), **session)
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {"jsonrpc": "2.0", "id": "one", "result": {"a": None}}
        assert len({id(client) for client in http.core.clients}) == 2


async def test_a_refused_initialize_opens_no_session() -> None:
    async with serving() as http:
        response = await http.post(request("initialize"))
        assert response.json()["error"]["code"] == -32602
        assert "mcp-session-id" not in response.headers
        assert http.core.closed == http.core.clients


async def test_a_request_without_a_session_is_400_and_with_an_unknown_one_404() -> None:
    """MCP 2025-06-18, transports, session management."""
    async with serving() as http:
        for response in (await http.post(request("echo", 7)), await http.get(), await http.delete()):
            assert response.status_code == 400
        unknown = {"mcp_session_id": "0" * 32}
        for response in (await http.post(request("echo", 7), **unknown), await http.get(**unknown)):
            assert response.status_code == 404
        assert (await http.post(request("echo", 7), **unknown)).json()["id"] == 7


async def test_a_session_does_not_exist_for_another_principal() -> None:
    tokens = [
        TokenSettings(name=name, sha256=hashlib.sha256(key.encode()).hexdigest())
        for name, key in (("ann", "a"), ("bob", "b"))
    ]
    async with serving(HttpSettings(tokens=tokens)) as http:
        session = await http.session(authorization="Bearer a")
        stolen = session | {"authorization": "Bearer b"}
        assert (await http.post(request("echo"), **stolen)).status_code == 404
        assert (await http.get(**stolen)).status_code == 404
        assert (await http.delete(**stolen)).status_code == 404
        assert (await http.post(request("echo"), **session)).status_code == 200


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_revision_of_the_era_may_be_named_in_the_header_or_none(version: str) -> None:
    async with serving() as http:
        session = await http.session(version)
        assert (await http.post(request("echo"), **session)).status_code == 200
        del session["mcp_protocol_version"]
        assert (await http.post(request("echo"), **session)).status_code == 200


async def test_a_revision_that_nobody_knows_is_400() -> None:
    async with serving() as http:
        session = await http.session() | {"mcp_protocol_version": "1999-01-01"}
        assert (await http.post(request("echo"), **session)).status_code == 400
        assert (await http.get(**session)).status_code == 400
        assert (await http.delete(**session)).status_code == 400


async def test_notifications_and_answers_are_taken_without_a_body() -> None:
    async with serving() as http:
        session = await http.session()
        for message in ({"method": "notifications/initialized"}, {"id": 5, "result": {}}, {"id": 5, "error": {}}):
            response = await http.post({"jsonrpc": "2.0", **message}, **session)
            assert (response.status_code, response.content) == (202, b"")
        assert http.core.notified == ["notifications/initialized"]


async def test_delete_ends_the_session_its_calls_and_its_streams() -> None:
    async with serving() as http:
        session = await http.session()
        call = asyncio.create_task(http.post(request("hold", 8), **session))
        await http.core.held.get()
        async with http.stream("GET", **session) as response:
            channel = asyncio.create_task(Reading(response).rest())
            assert (await http.delete(**session)).status_code == 204
            assert await http.core.cancelled.get() == "8"
            assert ((await call).status_code, (await call).json()["id"]) == (404, 8)
            assert await channel == []
        assert (await http.post(request("echo"), **session)).status_code == 404
        assert http.core.closed == http.core.clients


async def test_calls_of_one_session_are_served_side_by_side() -> None:
    async with serving() as http:
        session = await http.session()
        calls = [asyncio.create_task(http.post(request("hold", number), **session)) for number in range(3)]
        for _ in calls:
            await http.core.held.get()
        http.core.release.set()
        assert [(await call).json()["id"] for call in calls] == [0, 1, 2]


async def test_an_answer_with_something_before_it_becomes_a_stream() -> None:
    async with serving() as http:
        session = await http.session()
        response = await http.post(request("say", times=2), **session)
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["x-accel-buffering"] == "no"
        ids, messages = zip(*events(response.text), strict=True)
        assert messages[:2] == (message_of(0), message_of(1))
        assert '"result"' in messages[2]
        assert ids == ("1-1", "1-2", "1-3")


async def test_a_client_that_reads_json_only_gets_the_answer_alone() -> None:
    async with serving() as http:
        session = await http.session() | {"accept": "application/json"}
        response = await http.post(request("say", times=2), **session)
        assert response.json()["result"] == {"times": 2}


async def test_a_client_that_reads_events_only_gets_events() -> None:
    async with serving() as http:
        session = await http.session() | {"accept": "text/event-stream"}
        response = await http.post(request("echo"), **session)
        assert [id_ for id_, _ in events(response.text)] == ["1-1"]


async def test_a_long_silence_opens_a_stream_with_an_id_to_resume_from() -> None:
    """MCP 2025-11-25, transports: the priming event; SDK clients of older revisions choke on its empty data."""
    async with serving(HttpSettings(keep_alive=0.05)) as http:
        for version, primed in ((NEWEST, True), (LEGACY, False)):
            async with http.stream("POST", request("hold"), **await http.session(version)) as response:
                assert response.headers["content-type"] == "text/event-stream"
                reading = Reading(response)
                if primed:
                    assert await reading.next_event() == ("1-1", "")
                assert await reading.next_block() == ": keep-alive"
                http.core.release.set()
                assert '"result"' in (await reading.rest())[-1][1]
                http.core.release.clear()


async def test_a_cancelled_request_has_an_end_that_a_client_can_tell_from_a_broken_stream() -> None:
    """A stream of this era that only ends looks broken; the official SDK's servers close it with this message."""
    closing = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32800, "message": "Request cancelled"}}
    async with serving() as http:
        session = await http.session()
        response = await http.post(request("withdrawn"), **session)
        assert (response.status_code, response.json()) == (200, closing)
        response = await http.post(request("withdrawn"), **session | {"accept": "text/event-stream"})
        assert [json.loads(data) for _, data in events(response.text)] == [closing]


@pytest.mark.parametrize("modern", [False, True])
async def test_leaving_before_any_event_cancels_a_modern_call_only(modern: bool) -> None:
    """MCP 2025-11-25, transports: disconnection SHOULD NOT be interpreted as the client cancelling its request."""
    left = asyncio.Event()
    outlived = None if modern else left.set
    options = ReplyOptions(
        OpenReplies(), keep_alive=60, open_stream=Stream, close_stream=Stream.finish, outlived=outlived
    )
    gone, working, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    sent: list[Any] = []
    heard: list[object] = []

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def work(notify: Notify) -> Answer:
        working.set()
        await may_end.wait()
        heard.append(notify(said(0)))
        return Answer(b"{}")

    exchange = Exchange({"method": "POST", "path": "/mcp", "headers": []}, receive, send)
    exchange.accepts = replace(exchange.accepts, events=not modern)
    reply = Reply(exchange, Frame(id=Raw(b"1"), method="x"), options)
    running = asyncio.create_task(reply.run(work))
    async with asyncio.timeout(30):
        await working.wait()
        gone.set()
        if modern:
            assert await running is None
        else:
            await left.wait()
            assert reply.is_outlived
            assert not running.done()
            may_end.set()
            assert (await running) == Answer(b"{}")
            assert heard == [False], "it has no id to come back with, so it cannot be told or asked anything"
    assert sent == [], "there is nobody to answer"


@pytest.mark.usefixtures("_one_clock")
async def test_what_a_client_left_ends_with_its_session() -> None:
    for settings in (HttpSettings(session_idle=3600), HttpSettings(session_idle=10)):
        async with serving(settings) as http:
            session = await http.session()
            async with http.stream("POST", request("tell", 4), **session) as response:
                await Reading(response).next_event()
            if settings.session_idle > 60:
                assert (await http.delete(**session)).status_code == 204
            else:
                await until_idle(http.core.cancelled.qsize)
            assert await http.core.cancelled.get() == "4"


@pytest.fixture
def _one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions age by the clock of the loop, which `pass_time` sets."""
    monkeypatch.setattr(http_app, "monotonic", lambda: asyncio.get_running_loop().time())


async def until_idle(has_ended: Callable[[], object]) -> None:
    """Time passes, a second after the other, until a session has ended that nobody uses."""
    while not has_ended():
        pass_time(1)
        await asyncio.sleep(0.01)


async def test_a_broken_stream_is_resumed_after_the_last_event_and_goes_on_live() -> None:
    """MCP 2025-06-18, transports, resumability and redelivery."""
    async with serving() as http:
        session = await http.session()
        async with http.stream("POST", request("tell", 3), **session) as response:
            assert await Reading(response).next_event() == ("1-1", message_of(0))
        say = await http.core.held.get()
        say(said(1))
        async with http.stream("GET", **session, last_event_id="1-1") as response:
            reading = Reading(response)
            assert await reading.next_event() == ("1-2", message_of(1))
            say(said(2))
            assert await reading.next_event() == ("1-3", message_of(2))
            http.core.release.set()
            ((id_, answer),) = await reading.rest()
            assert id_ == "1-4"
            assert answer.startswith('{"jsonrpc":"2.0","id":3,"result"')
        again = await http.get(**session, last_event_id="1-2")
        assert [id_ for id_, _ in events(again.text)] == ["1-3", "1-4"]
        assert (await http.get(**session, last_event_id="1-4")).status_code == 204


async def test_an_answer_waits_for_the_client_that_lost_its_stream() -> None:
    async with serving() as http:
        session = await http.session()
        async with http.stream("POST", request("tell"), **session) as response:
            await Reading(response).next_event()
        http.core.release.set()
        async with http.stream("GET", **session, last_event_id="1-1") as response:
            ((id_, _),) = await Reading(response).rest()
            assert id_ == "1-2"
        assert http.core.cancelled.empty()


async def test_a_call_goes_on_however_long_its_client_stays_away() -> None:
    """`resume_grace` is how long its stream is kept after the answer."""
    async with serving(HttpSettings(resume_grace=0, keep_alive=0.01)) as http:
        session = await http.session()
        async with http.stream("POST", request("tell", 6), **session) as response:
            await Reading(response).next_event()
        say = await http.core.held.get()
        for number in range(1, 4):
            assert say(said(number)) is not False, "the client holds an id to come back with"
            assert (await http.post(request("echo"), **session)).status_code == 200
        async with http.stream("GET", **session, last_event_id="1-1") as response:
            reading = Reading(response)
            assert [(await reading.next_event())[1] for _ in range(3)] == [message_of(1), message_of(2), message_of(3)]
            http.core.release.set()
            ((_, answer),) = await reading.rest()
        assert '"result"' in answer
        assert http.core.cancelled.empty()


async def test_who_left_before_the_session_was_there_leaves_none() -> None:
    """It cannot come back: it never learned the name of the session."""
    async with serving() as http:
        core = http.core
        answer = core.answer

        async def slowly(client: Client, frame: Frame, notify: Notify, *, cancel_as: Client | None = None) -> Answer:
            core.held.put_nowait(notify)
            await core.release.wait()
            return await answer(client, frame, notify, cancel_as=cancel_as)

        core.answer = slowly
        opening = asyncio.create_task(http.session())
        await core.held.get()
        opening.cancel()
        await asyncio.wait([opening])
        while not core.closed:
            await asyncio.sleep(0.01)
        assert core.closed == core.clients


async def test_streams_belong_to_one_session() -> None:
    async with serving() as http:
        first, second = await http.session(), await http.session()
        await http.post(request("say", times=1), **first)
        assert (await http.get(**second, last_event_id="1-0")).status_code == 400
        for unknown in ("9-1", "x", "1-x", "1-" + "9" * 50, "1--1"):
            assert (await http.get(**first, last_event_id=unknown)).status_code == 400


async def test_unsolicited_messages_wait_for_the_channel_and_go_to_one_stream_only() -> None:
    """MCP 2025-06-18, transports: the server MUST NOT broadcast the same message across multiple streams."""
    async with serving() as http:
        session = await http.session()
        push = http.core.clients[0].push
        for number in range(150):
            push(said(number))
        async with http.stream("GET", **session) as older:
            reading_older = Reading(older)
            waited = [(await reading_older.next_event())[1] for _ in range(100)]
            assert waited == [message_of(number) for number in range(50, 150)]
            async with http.stream("GET", **session) as newer:
                reading = Reading(newer)
                push(said(1000))
                assert (await reading.next_event())[1] == message_of(1000)
            going_on = asyncio.create_task(push_again_and_again(push))
            _, message = await reading_older.next_event()
            going_on.cancel()
            assert message == message_of(1001)


async def push_again_and_again(push: Notify) -> None:
    """Until the front has noticed that a reader left, messages go to that one."""
    while True:
        push(said(1001))
        await asyncio.sleep(0.01)


async def test_the_channel_is_resumed_too() -> None:
    async with serving() as http:
        session = await http.session()
        push = http.core.clients[0].push
        async with http.stream("GET", **session) as response:
            reading = Reading(response)
            for number in range(3):
                push(said(number))
                await reading.next_event()
        async with http.stream("GET", **session, last_event_id="0-1") as response:
            reading = Reading(response)
            assert [await reading.next_event() for _ in range(2)] == [("0-2", message_of(1)), ("0-3", message_of(2))]


async def test_a_channel_shows_that_it_lives() -> None:
    async with (
        serving(HttpSettings(keep_alive=0.02)) as http,
        http.stream("GET", **await http.session()) as response,
    ):
        assert await Reading(response).next_block() == ": keep-alive"


async def test_a_get_that_accepts_no_events_is_refused() -> None:
    async with serving() as http:
        assert (await http.get(**await http.session() | {"accept": "application/json"})).status_code == 406


async def test_a_batch_is_answered_in_one_array() -> None:
    """MCP 2025-03-26, Base Protocol: receiving batches is a MUST."""
    async with serving() as http:
        session = await http.session("2025-03-26")
        batch = [
            request("echo", 1, a=1),
            {"jsonrpc": "2.0", "method": "notifications/x"},
            request("echo", "two"),
            request("withdrawn", 3),
            7,
            request("initialize", 4, protocolVersion="2025-03-26"),
        ]
        answers = (await http.post(batch, **session)).json()
        assert sorted(str(answer["id"]) for answer in answers) == ["1", "3", "4", "None", "two"]
        codes = {answer["id"]: answer["error"]["code"] for answer in answers if "error" in answer}
        assert codes == {3: -32800, 4: -32600, None: -32600}
        assert http.core.notified == ["notifications/x"]
        only_notifications = await http.post([{"jsonrpc": "2.0", "method": "notifications/x"}] * 2, **session)
        assert (only_notifications.status_code, only_notifications.content) == (202, b"")


async def test_members_of_a_batch_are_served_side_by_side() -> None:
    async with serving() as http:
        session = await http.session("2025-03-26")
        call = asyncio.create_task(http.post([request("hold", 1), request("hold", 2)], **session))
        await http.core.held.get()
        await http.core.held.get()
        http.core.release.set()
        assert len((await call).json()) == 2


@pytest.mark.parametrize("batch", [[], [request("echo")] * 101])
async def test_a_batch_is_not_empty_and_not_endless(batch: list[Any]) -> None:
    async with serving() as http:
        response = await http.post(batch, **await http.session("2025-03-26"))
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)


async def test_other_revisions_have_no_batches() -> None:
    async with serving() as http:
        response = await http.post([request("echo")], **await http.session(LEGACY))
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)


@pytest.mark.usefixtures("_one_clock")
async def test_a_session_that_nobody_uses_ends_but_one_with_an_open_stream_does_not() -> None:
    async with serving(HttpSettings(session_idle=10)) as http:
        watched = await http.session()
        async with http.stream("GET", **watched) as response:
            unused = await http.session()
            await until_idle(lambda: http.core.closed)
            http.core.clients[0].push(said(1))
            await Reading(response).next_event()
        assert http.core.closed == [http.core.clients[1]]
        assert (await http.post(request("echo"), **unused)).status_code == 404


async def test_at_the_limit_the_longest_idle_session_makes_room() -> None:
    async with serving(HttpSettings(max_sessions=2)) as http:
        first, second = await http.session(), await http.session()
        await http.post(request("echo"), **first)
        third = await http.session()
        assert (await http.post(request("echo"), **second)).status_code == 404
        assert (await http.post(request("echo"), **first)).status_code == 200
        assert (await http.post(request("echo"), **third)).status_code == 200


async def test_when_all_sessions_are_busy_a_new_one_is_refused() -> None:
    async with serving(HttpSettings(max_sessions=1)) as http:
        session = await http.session()
        call = asyncio.create_task(http.post(request("hold"), **session))
        await http.core.held.get()
        refused = await http.post(request("initialize", protocolVersion=LEGACY))
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        http.core.release.set()
        assert (await call).status_code == 200


async def test_clients_that_come_and_go_at_any_moment_disturb_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Leaving, coming back and ending the session meet the calls in every state; each call still ends once."""

    async def restless(http: Http, choose: random.Random) -> None:
        session = await http.session(choose.choice([LEGACY, NEWEST]))
        for number in range(5):
            method = choose.choice(["hold", "tell", "say", "echo", "withdrawn"])
            call = asyncio.create_task(http.post(request(method, number, times=3), **session))
            await asyncio.sleep(choose.random() * 0.05)
            if choose.random() < 0.3:
                await http.delete(**session)
                session = await http.session()
            call.cancel()
            await asyncio.wait([call])
        await http.delete(**session)

    settings = HttpSettings(resume_grace=0.05, keep_alive=0.03)
    async with serving(settings) as http, asyncio.TaskGroup() as clients:
        for seed in range(20):
            clients.create_task(restless(http, random.Random(seed)))
    assert len(http.core.closed) == len(http.core.clients)
    assert caplog.records == []


def large(id_: int, size: int = 2000) -> dict[str, Any]:
    return request("hold", id_, text="x" * size)


async def test_an_answer_too_large_for_the_stream_that_silence_opened_is_an_error() -> None:
    async with (
        serving(HttpSettings(keep_alive=0.03, max_event=1024)) as http,
        http.stream("POST", large(5), **await http.session()) as response,
    ):
        reading = Reading(response)
        assert await reading.next_block() == ": keep-alive"
        http.core.release.set()
        answer = json.loads((await reading.rest())[-1][1])
    assert answer["id"] == 5
    assert "`http.max_event`" in answer["error"]["message"]
    assert answer["error"]["data"] == {"mcpbridge/error": "AnswerTooLarge"}


async def test_of_a_batch_too_large_for_its_stream_the_largest_answers_become_errors() -> None:
    async with serving(HttpSettings(keep_alive=0.03, max_event=4096)) as http:
        session = await http.session("2025-03-26")
        batch = [large(1, 10), large(2, 9000), large(3, 2000), 7]
        async with http.stream("POST", batch, **session) as response:
            reading = Reading(response)
            assert await reading.next_block() == ": keep-alive"
            http.core.release.set()
            answers = json.loads((await reading.rest())[-1][1])
    assert {answer["id"]: "error" in answer for answer in answers} == {1: False, 2: True, 3: False, None: True}


async def test_a_notification_too_large_for_a_stream_is_dropped_and_the_stream_lives() -> None:
    async with serving(HttpSettings(max_event=1024)) as http:
        async with http.stream("POST", request("tell", 1), **await http.session()) as response:
            notify = await http.core.held.get()
            notify(b'{"data":"%b"}' % (b"x" * 2000))
            notify(said(1))
            http.core.release.set()
            assert [data for _, data in await Reading(response).rest()][:2] == [message_of(0), message_of(1)]
        session = await http.session()
        push = http.core.clients[-1].push
        push(b'{"data":"%b"}' % (b"x" * 2000))
        push(said(2))
        async with http.stream("GET", **session) as channel:
            assert (await Reading(channel).next_event())[1] == message_of(2)


async def test_a_reply_whose_clean_up_is_cancelled_does_not_hold_up_the_stop() -> None:
    underway = OpenReplies()
    options = ReplyOptions(underway, keep_alive=15, open_stream=Stream, close_stream=Stream.finish)
    in_clean_up = asyncio.Event()

    async def receive() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            in_clean_up.set()
            await asyncio.Event().wait()

    async def send(message: Any) -> None:
        pass

    exchange = Exchange({"method": "POST", "path": "/mcp", "headers": []}, receive, send)

    async def work(notify: Notify) -> Answer:
        notify(said(0))
        await asyncio.sleep(0)
        return Answer(b"{}")

    reply = asyncio.create_task(Reply(exchange, Frame(id=Raw(b"1"), method="x"), options).run(work))
    async with asyncio.timeout(30):
        await in_clean_up.wait()
        await underway.until_none()
        reply.cancel()
        await asyncio.wait([reply])


async def test_a_message_before_the_answer_has_no_way_to_a_client_that_reads_no_streams() -> None:
    """Bridge: who asks a client something must know at once that it cannot be asked."""
    async with serving() as http:
        session = await http.session()
        calling = asyncio.create_task(http.post(request("hold"), **session, accept="application/json"))
        notify = await http.core.held.get()
        assert notify(said(0)) is False
        http.core.release.set()
        assert (await calling).json()["id"] == 1
        assert notify(said(1)) is False


async def test_a_message_has_no_way_once_the_request_is_answered() -> None:
    async with serving() as http:
        session = await http.session()
        calling = asyncio.create_task(http.post(request("hold"), **session))
        notify = await http.core.held.get()
        assert notify(said(0)) is not False
        http.core.release.set()
        assert len(events((await calling).text)) >= 2
        assert notify(said(1)) is False


async def test_an_answer_of_the_client_is_accepted_at_once_and_handed_on() -> None:
    """Spec, streamable HTTP: 202 without a body; also as a member of a batch."""
    async with serving() as http:
        session = await http.session("2025-03-26")
        answer = {"jsonrpc": "2.0", "id": "q1", "result": {"roots": []}}
        error = {"jsonrpc": "2.0", "id": 2, "error": {"code": -1, "message": "no"}}
        for body in (answer, [error]):
            response = await http.post(body, **session)
            assert (response.status_code, response.content) == (202, b"")
        assert [id_ for _, id_ in http.core.answers] == [b'"q1"', b"2"]
        assert {client for client, _ in http.core.answers} == {http.core.clients[0]}
