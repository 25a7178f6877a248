"""What a server may ask clients, and how often (`may_ask`, `question_rate`): on every way that a question can take."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from pydantic import ValidationError

from mcpbridge.base.units import Rate
from mcpbridge.config.schema import Settings
from mcpbridge.core.elicitation import ELICIT, LIST_ROOTS, SAMPLE, ClientCapabilities, Question, QuestionRefused
from mcpbridge.upstream.session.question_limits import QuestionLimits, QuestionNotAllowed, QuestionsTooOften
from mcpbridge.upstream.settings import ServerSettings
from support.answering_clients import ACCEPT, FORM, PAGE, ROOTS, World, world
from support.answering_clients import SAMPLE as SAMPLING
from support.rpc import Message

SAMPLED: Message = {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "m"}
HOME: Message = {"roots": [{"uri": "file:///home/ada", "name": "home"}]}
DECLARED = "io.modelcontextprotocol/clientCapabilities"


def answer(question: Message) -> Message:
    return {"elicitation/create": ACCEPT, "sampling/createMessage": SAMPLED, "roots/list": HOME}[question["method"]]


def page_first(url: str = "https://example.com/grant") -> Message:
    entry = {"mode": "url", "message": "Grant access", "url": url, "elicitationId": "g-1"}
    return {"code": -32042, "message": "A page first", "data": {"elicitations": [entry]}}


def refused_by(around: World, server: str) -> int:
    [status] = [one for one in around.bridge.status()["servers"] if one["name"] == server]
    return status["questions_refused"]


# -- what may be asked


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("modern", [False, True])
async def test_a_legacy_server_learns_of_what_it_may_ask_and_gets_an_error_for_the_rest(
    tmp_path: Path, modern: bool, transport: str
) -> None:
    servers = {"up": (["legacy", transport], {"may_ask": ["elicitation"]})}
    async with world("http", tmp_path, servers) as around:
        person = await around.person(modern=modern)
        got = await person.asks_on("up", False, FORM, SAMPLING, ROOTS, answers=answer)
        assert got[0] == ACCEPT
        for kind, outcome in zip(("sampling", "roots"), got[1:], strict=True):
            assert outcome["error"]["code"] == -32601
            assert f'servers.up.may_ask does not have "{kind}"' in outcome["error"]["message"]
        assert [question["method"] for question in person.asked] == ["elicitation/create"]
        declared = around.sent("up", "initialize")[-1]["params"]["capabilities"]
        assert "elicitation" in declared
        assert not {"sampling", "roots"} & declared.keys()
        assert refused_by(around, "up") == 2


@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_to_a_modern_server_that_asks_what_it_may_not_fails_and_names_the_setting(
    tmp_path: Path, modern: bool
) -> None:
    """In the first round and in later ones; a question beside it that may be asked is not put either."""
    servers = {"up": (["modern"], {"may_ask": ["elicitation"]})}
    async with world("http", tmp_path, servers) as around:
        person = await around.person(modern=modern)
        reply = await person.calls("up__rounds", answer, rounds=[{"inputRequests": {"k": SAMPLING, "l": FORM}}])
        assert reply.failed
        assert 'servers.up.may_ask does not have "sampling"' in reply.text
        assert not person.asked
        declared = around.sent("up", "tools/call")[-1]["params"]["_meta"][DECLARED]
        assert "elicitation" in declared
        assert not {"sampling", "roots"} & declared.keys()

        rounds = [{"inputRequests": {"k": FORM}}, {"inputRequests": {"k": ROOTS}}]
        reply = await person.calls("up__rounds", answer, rounds=rounds)
        assert reply.failed
        assert 'servers.up.may_ask does not have "roots"' in reply.text
        assert [question["method"] for question in person.asked] == ["elicitation/create"]


@pytest.mark.parametrize("setting", [{"questions": "never"}, {"may_ask": []}])
@pytest.mark.parametrize("modern", [False, True])
async def test_a_server_that_may_ask_nothing_asks_nobody(tmp_path: Path, setting: Message, modern: bool) -> None:
    servers = {"old": (["legacy"], setting), "new": (["modern"], setting)}
    async with world("http", tmp_path, servers) as around:
        person = await around.person(modern=modern)
        for outcome in await person.asks_on("old", False, FORM, SAMPLING, ROOTS, answers=answer):
            assert outcome["error"]["code"] == -32601
        for question in (FORM, PAGE, SAMPLING, ROOTS):
            reply = await person.calls("new__rounds", answer, rounds=[{"inputRequests": {"k": question}}])
            assert reply.failed
            assert "servers.new.questions is `never`" in reply.text
        reply = await person.calls("old__play", answer, steps=[{"refuse": page_first()}])
        assert reply.failed
        assert "servers.old.questions is `never`" in reply.text
        assert "https://example.com/grant" not in reply.text
        assert not person.asked


@pytest.mark.parametrize("modern", [False, True])
async def test_pages_before_a_call_are_shown_to_nobody_where_elicitation_is_not_allowed(
    tmp_path: Path, modern: bool
) -> None:
    servers = {"up": (["legacy"], {"may_ask": ["sampling", "roots"]})}
    async with world("http", tmp_path, servers) as around:
        kinds: list[dict[str, Any]] = [{}, {"elicitation": {}}]
        for capabilities in kinds:
            person = await around.person(modern=modern, **capabilities)
            reply = await person.calls("up__play", answer, steps=[{"refuse": page_first()}])
            assert reply.failed
            assert 'servers.up.may_ask does not have "elicitation"' in reply.text
            assert "example.com" not in reply.text
            assert not person.asked


async def test_roots_of_the_configuration_are_answered_whatever_a_server_may_ask(tmp_path: Path) -> None:
    known = {"roots": ["/srv/data"], "may_ask": ["elicitation"]}
    async with world("http", tmp_path, {"up": (["legacy"], known), "new": (["modern"], known)}) as around:
        for modern in (False, True):
            person = await around.person(modern=modern)
            for server in ("up", "new"):
                [got] = await person.asks_on(server, server == "new", ROOTS, answers=answer)
                assert got == {"roots": [{"uri": "file:///srv/data"}]}
                assert not person.asked


async def test_clients_that_differ_in_what_the_server_may_not_ask_share_a_session(tmp_path: Path) -> None:
    servers = {"up": (["legacy"], {"may_ask": ["roots"]})}
    async with world("http", tmp_path, servers) as around:
        sessions: list[int] = []
        kinds: list[dict[str, Any]] = [{"roots": {}}, {"roots": {}, "sampling": {}}, {"roots": {}, "elicitation": {}}]
        for capabilities in kinds:
            person = await around.person(**capabilities)
            assert await person.asks_on("up", False, ROOTS, answers=answer) == [HOME]
            sessions.append(len(around.sent("up", "initialize")))
        assert sessions == sessions[:1] * 3


async def test_a_setting_that_no_server_can_have_is_refused() -> None:
    with pytest.raises(ValidationError, match="may_ask"):
        Settings.model_validate({"servers": {"up": {"command": "x", "may_ask": ["everything"]}}})
    settings = Settings.model_validate({"servers": {"up": {"command": "x", "may_ask": [], "questions": "auto"}}})
    assert settings.servers["up"].questions == "never"


# -- how often


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("modern", [False, True])
async def test_a_legacy_server_that_asks_too_often_gets_errors_and_roots_are_not_counted(
    tmp_path: Path, modern: bool, transport: str
) -> None:
    servers = {"up": (["legacy", transport], {"question_rate": "2/h"})}
    async with world("http", tmp_path, servers) as around:
        person = await around.person(modern=modern)
        assert await person.asks_on("up", False, ROOTS, FORM, ROOTS, SAMPLING, answers=answer) == [
            *(HOME, ACCEPT),
            *(HOME, SAMPLED),
        ]
        first = len(person.asked)
        got = await person.asks_on("up", False, FORM, SAMPLING, ROOTS, answers=answer)
        assert [outcome["error"]["code"] for outcome in got[:2]] == [-32603, -32603]
        assert "servers.up.question_rate is 2/h" in got[0]["error"]["message"]
        assert got[2] == HOME
        assert [question["method"] for question in person.asked[first:]] == ["roots/list"]
        assert refused_by(around, "up") == 2


@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_to_a_modern_server_that_asks_too_often_fails(tmp_path: Path, modern: bool) -> None:
    """The limit is the server's, whichever client is asked."""
    servers = {"up": (["modern"], {"question_rate": "3/h"})}
    async with world("http", tmp_path, servers) as around:
        other = await around.person(modern=not modern)
        await other.asks_on("up", True, FORM, answers=answer)
        person = await around.person(modern=modern)
        rounds = [{"inputRequests": {"k": FORM}}, {"inputRequests": {"k": SAMPLING}}, {"inputRequests": {"k": FORM}}]
        reply = await person.calls("up__rounds", answer, rounds=rounds)
        assert reply.failed
        assert "servers.up.question_rate is 3/h" in reply.text
        assert len(person.asked) == 2


async def test_a_page_that_is_asked_for_again_and_again_counts_once(tmp_path: Path) -> None:
    """A server that waits for a visit puts the call off with the same question: the person is asked once."""
    waiting = {"inputRequests": {"k1": PAGE}}
    async with world("http", tmp_path, {"up": (["modern"], {"question_rate": "1/h"})}) as around:
        person = await around.person()
        reply = await person.calls("up__rounds", answer, rounds=[waiting, waiting, waiting])
        assert json.loads(reply.text) == {"answers": {"k1": ACCEPT}, "state": "3"}
        assert len(person.asked) == 1


@pytest.mark.parametrize("modern", [False, True])
async def test_pages_before_a_call_count_as_questions(tmp_path: Path, modern: bool) -> None:
    async with world("http", tmp_path, {"up": (["legacy"], {"question_rate": "1/h"})}) as around:
        person = await around.person(modern=modern)
        first = await person.calls("up__play", answer, steps=[{"refuse_once": page_first()}])
        if modern:
            assert not first.failed
            assert len(person.asked) == 1
        else:
            assert first.message["error"]["code"] == -32042
        steps = [{"refuse_once": page_first("https://example.com/another")}]
        reply = await person.calls("up__play", answer, steps=steps)
        assert reply.failed
        assert "servers.up.question_rate is 1/h" in reply.text


# -- the limits themselves


def question(method: str) -> Question:
    return Question("up", method, Raw(b"{}"))


def test_tokens_come_back_and_a_rate_that_stays_is_counted_on() -> None:
    now = 0.0
    settings = ServerSettings(command="x", question_rate=Rate(1, 60))
    limits = QuestionLimits("up", settings, lambda: now)
    assert limits.refusal(question(SAMPLE)) is None
    assert isinstance(limits.refusal(question(ELICIT)), QuestionsTooOften)
    assert limits.refusal(question(LIST_ROOTS)) is None
    limits.configure(settings.model_copy(update={"may_ask": ["sampling"]}))
    assert isinstance(limits.refusal(question(SAMPLE)), QuestionsTooOften)
    assert isinstance(limits.refusal(question(ELICIT)), QuestionNotAllowed)
    now = 60.0
    assert limits.refusal(question(SAMPLE)) is None
    limits.configure(settings.model_copy(update={"question_rate": Rate(2, 60)}))
    assert limits.refusal(question(SAMPLE)) is None
    assert limits.refused == 3
    assert repr(limits).startswith("<QuestionLimits 'up' ")


def test_a_burst_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    limits = QuestionLimits("up", ServerSettings(command="x", question_rate=Rate(1, 60)), lambda: now)
    for _ in range(20):
        limits.refusal(question(SAMPLE))
    assert capsys.readouterr().out.count("server asks too often") == 1
    now = 100.0
    for _ in range(20):
        limits.refusal(question(SAMPLE))
    assert capsys.readouterr().out.count("server asks too often") == 1


def test_of_a_task_each_question_counts_once() -> None:
    limits = QuestionLimits("up", ServerSettings(command="x", question_rate=Rate(2, 60)), lambda: 0.0)
    for _ in range(5):
        limits.admit_in_task("t", {"a": question(ELICIT), "b": question(SAMPLE), "c": question(LIST_ROOTS)})
    with pytest.raises(QuestionRefused, match="too often"):
        limits.admit_in_task("u", {"a": question(ELICIT)})


def test_a_profile_is_one_object_and_has_only_what_is_allowed() -> None:
    whole = ClientCapabilities(form=True, url=True, sampling=True, sampling_tools=True, roots=True)
    only = QuestionLimits("up", ServerSettings(command="x", may_ask=["sampling"]))
    assert only.bounded(whole) == ClientCapabilities(sampling=True, sampling_tools=True)
    assert only.bounded(whole) is only.bounded(whole)
    assert QuestionLimits("up", ServerSettings(command="x")).bounded(whole) is whole


# -- pages, on every way


BAD_PAGES = [
    "javascript:alert(1)",
    "file:///etc/passwd",
    "http://127.0.0.1:8080/",
    "http://localhost/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest",
    "https://bank.com@evil.example/",
    "https://\u0430pple.com/",
]


async def test_no_way_leads_a_person_to_a_page_that_is_none_to_open(tmp_path: Path) -> None:
    """As a request, as `input_required`, and before a call (-32042); for clients of both eras."""
    servers = {
        "old": (["legacy"], {"question_rate": "1000/s"}),
        "new": (["modern"], {"question_rate": "1000/s"}),
    }
    async with world("http", tmp_path, servers) as around:
        for modern in (False, True):
            person = await around.person(modern=modern)
            for url in BAD_PAGES:
                page = {**PAGE, "params": {**PAGE["params"], "url": url}}
                [got] = await person.asks_on("old", False, page, answers=answer)
                assert "not asked to open" in got["error"]["message"], (modern, url)
                reply = await person.calls("new__rounds", answer, rounds=[{"inputRequests": {"k": page}}])
                assert reply.failed
                assert "not asked to open" in reply.text
                reply = await person.calls("old__play", answer, steps=[{"refuse": page_first(url)}])
                assert reply.failed
                assert "not asked to open" in json.dumps(reply.message)
            assert not person.asked
