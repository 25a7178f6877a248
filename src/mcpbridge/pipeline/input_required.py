"""Answer what a modern upstream asks back, for a client that cannot come back itself.

The upstream answers `input_required` and forgets the call; whoever calls puts the questions and sends the call again
with the answers (MCP 2026-07-28, Multi Round-Trip Requests, Client Requirements). A legacy client gets each question as
a request of its own, on the stream of its one call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import UpstreamGarbled
from mcpbridge.core.elicitation import ELICIT, LIST_ROOTS, QUESTIONS, Question, elicitation_mode, question_refusal
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import SEARCHED, Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, encode

MAX_ROUNDS = 10
"""Times that an upstream may ask back during one call."""
MAX_SECONDS = 600.0
"""Seconds that an upstream may put a call off without asking anything new."""
FIRST_WAIT, LONGEST_WAIT, LONGEST_VISIT_WAIT = 0.05, 0.25, 5.0
"""Seconds before a call that was only put off is sent again: doubled each time; the last: while a page is visited."""

_INPUT_REQUIRED = b'"input_required"'


class _Entry(msgspec.Struct):
    method: str
    params: Raw = Raw(EMPTY_OBJECT)


_decode_entries = msgspec.json.Decoder(dict[str, _Entry]).decode


def needs_driving(result: Body) -> bool:
    """Whether a result is no result yet. A small one is searched first: nearly all are results."""
    if (len(result.data) < SEARCHED and _INPUT_REQUIRED not in bytes(result.data)) or not result.is_object:
        return False
    return bytes(result.get("resultType") or b"") == _INPUT_REQUIRED


def read_questions(server: str, result: Body) -> dict[str, Question]:
    """The questions of an `input_required` result by key; empty when it only asks to come back later.

    Raises:
        UpstreamGarbled: it asks for something that is no question, or neither asks nor gives a state.
    """
    raw = result.get("inputRequests")
    try:
        entries = _decode_entries(raw) if raw is not None and bytes(raw) != b"null" else {}
    except msgspec.DecodeError as error:
        raise UpstreamGarbled(server, f"its input_required result has unreadable inputRequests: {error}") from error
    state = state_of(result)
    if state is not None and bytes(memoryview(state)[:1]) != b'"':
        raise UpstreamGarbled(server, "its requestState is no string")
    if not entries and state is None:
        raise UpstreamGarbled(server, "its input_required result has neither inputRequests nor requestState")
    for entry in entries.values():
        if entry.method not in QUESTIONS:
            raise UpstreamGarbled(server, f"it asks for {entry.method[:60]!r}, which is no question to a client")
    return {key: Question(server, entry.method, entry.params) for key, entry in entries.items()}


def state_of(result: Body) -> Raw | None:
    """The `requestState` of an `input_required` result as it came; None when there is none."""
    state = result.get("requestState")
    return state if state is not None and bytes(state) != b"null" else None


async def drive(
    call: Call,
    result: Body,
    send: Callable[[Call], Awaitable[Body]],
    admit: Callable[[Iterable[Question]], None] = lambda questions: None,
) -> Body:
    """Ask, send again, until there is a final result. `admit` refuses questions of a round that are not to be put.

    Raises:
        QuestionRefused: the client does not answer, or is not to be asked; the protocol knows no way to report that to
            the upstream.
        UpstreamGarbled: it asks for the impossible, for what was not declared to it, or without end.
    """
    call.begun = "questions"
    loop = asyncio.get_running_loop()
    began, rounds, wait = loop.time(), 0, FIRST_WAIT
    visited: dict[bytes, tuple[Question, Raw]] = {}
    """URL questions that were accepted: while the same page is asked for, the person is still there."""
    try:
        while needs_driving(result):
            questions = read_questions(call.upstream, result)
            new = {key: question for key, question in questions.items() if bytes(question.params) not in visited}
            if new:
                rounds += 1
                if rounds > MAX_ROUNDS:
                    raise UpstreamGarbled(call.upstream, f"it asked back more than {MAX_ROUNDS} times")
                wait = FIRST_WAIT
            elif loop.time() - began > MAX_SECONDS:
                raise UpstreamGarbled(call.upstream, f"it put the call off for {MAX_SECONDS:g} s")
            else:
                await asyncio.sleep(wait)
                wait = min(LONGEST_VISIT_WAIT if questions else LONGEST_WAIT, wait * 2)
            admit(new.values())
            answers = await ask_all(call, new)
            for key, question in new.items():
                if question.method == ELICIT and _is_accepted_url(question, answers[key]):
                    visited[bytes(question.params)] = question, answers[key]
            for key, question in questions.items():
                if key not in answers:
                    answers[key] = visited[bytes(question.params)][1]
            _put(call.params, answers, state_of(result))
            call.deadline = 0.0  # each round has its own time: what a person took is not the server's
            result = await send(call)
    finally:
        for question, _ in visited.values():
            call.client.finished(question)
    return result


async def ask_all(call: Call, questions: dict[str, Question]) -> dict[str, Raw]:
    """All answers, asked for side by side. The first refusal ends the others."""
    if call.roots:
        known = {key: Raw(call.roots) for key, question in questions.items() if question.method == LIST_ROOTS}
        questions = {key: question for key, question in questions.items() if key not in known}
        return known | await _ask_client(call, questions)
    return await _ask_client(call, questions)


async def _ask_client(call: Call, questions: dict[str, Question]) -> dict[str, Raw]:
    for question in questions.values():
        if refused := question_refusal(question, call.client.capabilities):
            raise UpstreamGarbled(call.upstream, f"it asks what it must not: {refused}")
    if len(questions) == 1:
        ((key, question),) = questions.items()
        return {key: await call.client.ask(question)}
    tasks = {key: asyncio.ensure_future(call.client.ask(question)) for key, question in questions.items()}
    try:
        return {key: await task for key, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def _put(params: Body, answers: dict[str, Raw], state: Raw | None) -> None:
    """Make the params those of the next round: the same call, the answers, and the state exactly as it came."""
    if answers:
        params.put("inputResponses", Raw(encode(answers)))
    else:
        params.drop("inputResponses")
    if state is not None:
        params.put("requestState", state)
    else:
        params.drop("requestState")


def _is_accepted_url(question: Question, answer: Raw) -> bool:
    try:
        return elicitation_mode(Body(question.params)) == "url" and Body(answer).text("action") == "accept"
    except (msgspec.DecodeError, KeyError):
        return False
