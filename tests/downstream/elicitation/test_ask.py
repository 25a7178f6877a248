"""Requests of the bridge to a legacy client: each answer to whoever waits for it, and an end to every wait."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from msgspec import Raw

from mcpbridge.core.elicitation import ELICIT, LIST_ROOTS, SAMPLE, ClientCapabilities, Question, QuestionRefused
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.elicitation import ask as asking
from mcpbridge.downstream.elicitation.ask import MAX_OPEN, ClientRequests, LegacyElicitor, NoElicitor
from mcpbridge.protocol.jsonrpc import decode_frame

Message = dict[str, Any]


class Ear:
    """The client's end: what was sent there, and its answers."""

    def __init__(self, seconds: float = 30, *, hears: bool = True) -> None:
        self.requests = ClientRequests(seconds)
        self.client = Client(push=self.notify)
        self.hears = hears
        self.got: list[Message] = []
        self._news = asyncio.Event()

    def notify(self, message: bytes) -> bool:
        if self.hears:
            self.got.append(json.loads(message))
            self._news.set()
        return self.hears

    async def hear(self, count: int) -> Message:
        """The message of this number, now or later."""
        with anyio.fail_after(30):
            while len(self.got) < count:
                self._news.clear()
                await self._news.wait()
        return self.got[count - 1]

    def says(self, **message: Any) -> bool:
        return self.requests.answered(decode_frame(json.dumps({"jsonrpc": "2.0", **message}).encode()))

    def ask(self, method: str = "roots/list") -> asyncio.Task[Raw]:
        return asyncio.ensure_future(self.requests.request(method, b"{}", self.notify))

    def elicitor(self, version: str = "2025-11-25", **profile: bool) -> LegacyElicitor:
        self.client.version, self.client.capabilities = version, ClientCapabilities(**profile)
        return LegacyElicitor(self.client, self.requests, self.notify)


def question(method: str = ELICIT, **params: Any) -> Question:
    return Question("up", method, Raw(json.dumps({"message": "Who?", **params}).encode()))


async def outcome(task: "asyncio.Task[Raw] | asyncio.Future[Raw]") -> Message:
    with anyio.fail_after(30):
        return json.loads(bytes(await task))


async def refused(task: "asyncio.Task[Raw]") -> Message:
    """The error for the upstream."""
    with anyio.fail_after(30), pytest.raises(QuestionRefused) as caught:
        await task
    return json.loads(caught.value.error)


async def test_answers_find_their_questions_whatever_their_order() -> None:
    ear = Ear()
    first, second = ear.ask(), ear.ask()
    ids = [(await ear.hear(number))["id"] for number in (1, 2)]
    assert len(set(ids)) == 2
    assert ear.says(id=ids[1], result={"n": 2})
    assert ear.says(id=str(ids[0]), result={"n": 1})  # some clients answer "7" to 7
    assert (await outcome(first), await outcome(second)) == ({"n": 1}, {"n": 2})


async def test_an_answer_counts_once_and_for_what_was_asked() -> None:
    """Issue 3: twice, late, or to nothing."""
    ear = Ear()
    task = ear.ask()
    id_ = (await ear.hear(1))["id"]
    assert not ear.says(id=id_ + 1, result={})
    assert not ear.says(id="", result={})
    assert ear.says(id=id_, result={"n": 1})
    assert not ear.says(id=id_, result={"n": 2})
    assert await outcome(task) == {"n": 1}
    assert not ear.says(id=id_, result={"n": 3})


async def test_an_error_of_the_client_is_handed_on_whole() -> None:
    ear = Ear()
    error = {"code": -1, "message": "no", "data": {"x": None}}
    task = ear.ask()
    ear.says(id=(await ear.hear(1))["id"], error=error)
    assert await refused(task) == error


@pytest.mark.parametrize(
    "answer",
    [
        {"result": 5},
        {"result": None},
        {"result": []},
        {"error": 5},
        {"error": {"code": "x"}},
        {"error": {"code": True}},
    ],
    ids=json.dumps,
)
async def test_garbage_is_an_error_that_the_upstream_can_read(answer: Message) -> None:
    ear = Ear()
    task = ear.ask()
    assert ear.says(id=(await ear.hear(1))["id"], **answer)
    error = await refused(task)
    assert error["code"] == -32603
    assert isinstance(error["message"], str)


async def test_a_client_that_reads_no_stream_cannot_be_asked() -> None:
    ear = Ear(hears=False)
    error = await refused(ear.ask())
    assert error["code"] == -32600
    ear.hears = True
    task = ear.ask()
    ear.says(id=(await ear.hear(1))["id"], result={})
    assert await outcome(task) == {}


async def test_who_gives_up_a_question_tells_the_client() -> None:
    ear = Ear()
    task = ear.ask()
    id_ = (await ear.hear(1))["id"]
    task.cancel()
    told = await ear.hear(2)
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", id_)
    assert not ear.says(id=id_, result={})


async def test_the_client_is_told_beside_the_call_when_that_has_no_stream_any_more() -> None:
    beside: list[Message] = []
    ear = Ear()
    ear.requests = ClientRequests(30, lambda message: beside.append(json.loads(message)))
    task = ear.ask()
    id_ = (await ear.hear(1))["id"]
    ear.hears = False
    task.cancel()
    await asyncio.wait([task])
    assert [message["params"]["requestId"] for message in beside] == [id_]


async def test_silence_is_a_cancel_of_a_form_and_an_error_otherwise() -> None:
    ear = Ear(0.02)
    elicitor = ear.elicitor(form=True, sampling=True)
    assert json.loads(bytes(await elicitor.ask(question()))) == {"action": "cancel"}
    with pytest.raises(QuestionRefused, match=r"no answer within 0\.02 s"):
        await elicitor.ask(question(SAMPLE, messages=[]))
    asked = [message["id"] for message in ear.got if "id" in message]
    assert [m["params"]["requestId"] for m in ear.got if m["method"] == "notifications/cancelled"] == asked


async def test_a_client_that_leaves_ends_its_questions_without_a_word() -> None:
    ear = Ear()
    tasks = [ear.ask(), ear.ask()]
    await ear.hear(2)
    ear.requests.end()
    assert [(await refused(task))["code"] for task in tasks] == [-32603] * 2
    assert len(ear.got) == 2


async def test_only_so_many_questions_are_open_at_a_time() -> None:
    ear = Ear()
    tasks = [ear.ask() for _ in range(MAX_OPEN)]
    await ear.hear(MAX_OPEN)
    assert "open" in (await refused(ear.ask()))["message"]
    ear.says(id=ear.got[0]["id"], result={})
    await tasks[0]
    more = ear.ask()
    await ear.hear(MAX_OPEN + 1)
    for task in [*tasks, more]:
        task.cancel()


async def test_what_was_not_declared_is_not_sent() -> None:
    ear = Ear()
    for asked in (question(), question(mode="url", url="https://x"), question(SAMPLE), question(LIST_ROOTS)):
        with pytest.raises(QuestionRefused):
            await ear.elicitor().ask(asked)
    assert not ear.got


async def test_the_end_of_a_page_is_told_by_the_id_that_the_client_knows() -> None:
    ear = Ear()
    elicitor = ear.elicitor(url=True)
    page = question(mode="url", url="https://example.com")
    elicitor.finished(page)  # never asked: nothing to tell
    task = asyncio.ensure_future(elicitor.ask(page))
    asked = await ear.hear(1)
    ear.says(id=asked["id"], result={"action": "accept"})
    await task
    for _ in range(2):
        elicitor.finished(page)
    told = ear.got[1:]
    assert [message["method"] for message in told] == ["notifications/elicitation/complete"]
    assert told[0]["params"] == {"elicitationId": asked["params"]["elicitationId"]}


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}, {"action": 5}, None], ids=json.dumps)
async def test_of_a_page_that_is_not_opened_nothing_is_awaited(answer: Message | None) -> None:
    ear = Ear()
    elicitor = ear.elicitor(url=True)
    page = question(mode="url", url="https://example.com/", elicitationId="e1")
    task = asyncio.ensure_future(elicitor.ask(page))
    asked = await ear.hear(1)
    assert ear.client.elicitations == {("up", asked["params"]["elicitationId"])}
    if answer is None:
        task.cancel()
        await asyncio.wait([task])
    else:
        ear.says(id=asked["id"], result=answer)
        await task
    assert not ear.client.elicitations
    told = len(ear.got)
    elicitor.finished(page)
    assert len(ear.got) == told


async def test_a_page_that_is_opened_is_remembered_until_it_is_done() -> None:
    ear = Ear()
    task = asyncio.ensure_future(ear.elicitor(url=True).ask(question(mode="url", url="https://example.com/")))
    asked = await ear.hear(1)
    ear.says(id=asked["id"], result={"action": "accept"})
    await task
    assert ear.client.elicitations == {("up", asked["params"]["elicitationId"])}


async def test_who_says_nothing_more_is_asked_nothing_more() -> None:
    ear = Ear()
    open_ = ear.ask()
    await ear.hear(1)
    ear.requests.end()
    assert "gone" in (await refused(open_))["message"]
    assert "gone" in (await refused(ear.ask()))["message"]
    assert len(ear.got) == 1


async def test_the_project_is_the_first_root_and_asked_for_once() -> None:
    ear = Ear()
    elicitor = ear.elicitor(roots=True)
    task = asyncio.ensure_future(elicitor.project())
    ear.says(id=(await ear.hear(1))["id"], result={"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]})
    assert await task == "file:///a"
    assert await elicitor.project() == "file:///a"
    assert len(ear.got) == 1


async def test_calls_at_the_same_time_learn_the_same_project() -> None:
    """The second must not take the first one's open question for the answer "none"."""
    ear = Ear()
    elicitor = ear.elicitor(roots=True)
    tasks = [asyncio.ensure_future(elicitor.project()) for _ in range(3)]
    ear.says(id=(await ear.hear(1))["id"], result={"roots": [{"uri": "file:///a"}]})
    with anyio.fail_after(30):
        assert await asyncio.gather(*tasks) == ["file:///a"] * 3
    assert len(ear.got) == 1


@pytest.mark.parametrize("result", [{"roots": []}, {}, {"roots": 5}, {"roots": [{"name": "x"}]}], ids=json.dumps)
async def test_no_roots_are_no_project(result: Message) -> None:
    ear = Ear()
    task = asyncio.ensure_future(ear.elicitor(roots=True).project())
    ear.says(id=(await ear.hear(1))["id"], result=result)
    assert await task == ""


async def test_a_client_that_keeps_its_roots_to_itself_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """No person is asked, so the patience for people is too much; and it may have been busy, so it is asked again."""
    monkeypatch.setattr(asking, "PROJECT_SECONDS", 0.01)
    ear = Ear(seconds=3600)
    elicitor = ear.elicitor(roots=True)
    with anyio.fail_after(30):
        assert await elicitor.project() == ""
    assert [message["method"] for message in ear.got] == ["roots/list", "notifications/cancelled"]
    assert await elicitor.project() == ""
    assert len(ear.got) == 2, "not again at once"
    ear.client.project_again_at = 0.0
    monkeypatch.undo()
    task = asyncio.ensure_future(elicitor.project())
    ear.says(id=(await ear.hear(3))["id"], result={"roots": [{"uri": "file:///a"}]})
    assert await task == "file:///a"


async def test_a_client_without_roots_is_not_asked_for_its_project() -> None:
    ear = Ear()
    assert await ear.elicitor(form=True).project() == ""
    assert not ear.got


async def test_who_can_be_asked_nothing_is_known_all_the_same() -> None:
    channel = Client()
    on_channel = [Client(modern=True, channel=channel) for _ in range(2)]
    over_http = [Client(modern=True, principal="ada"), Client(modern=True, principal="ada"), Client(modern=True)]
    assert {NoElicitor(client).home for client in on_channel} == {channel}
    homes = [NoElicitor(client).home for client in over_http]
    assert homes[0] == homes[1] != homes[2]
    with pytest.raises(QuestionRefused):
        await NoElicitor(over_http[0]).ask(question())
    assert not NoElicitor(over_http[0]).capabilities


async def test_a_client_without_roots_works_where_it_was_started() -> None:
    """Its front was told: by the shim, or by the one who started the bridge."""
    ear = Ear()
    ear.client.started_in = "file:///told"
    assert await ear.elicitor(form=True).project() == "file:///told"
    ear.client.started_in = ""
    assert await ear.elicitor(form=True).project() == ""


@pytest.mark.parametrize(
    ("roots", "project"), [([], "file:///told"), (["file:///a", "file:///b"], "file:///a")], ids=["none", "two"]
)
async def test_what_a_client_says_itself_counts_more_than_where_it_was_started(roots: list[str], project: str) -> None:
    ear = Ear()
    ear.client.started_in = "file:///told"
    task = asyncio.ensure_future(ear.elicitor(roots=True).project())
    asked = await ear.hear(1)
    assert ear.says(id=asked["id"], result={"roots": [{"uri": uri} for uri in roots]})
    with anyio.fail_after(30):
        assert await task == project


async def test_a_modern_client_works_where_its_connection_was_started() -> None:
    connection = Client(started_in="file:///told")
    assert await NoElicitor(Client(modern=True, channel=connection)).project() == "file:///told"
    assert await NoElicitor(Client(modern=True)).project() == ""
