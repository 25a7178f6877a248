"""A Python callable as an agent: messages, conversations, and answers that come in pieces."""

import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.base.errors import ArgumentsRefused, UnknownName
from mcpbridge.core.model import LOCAL
from mcpbridge.tools.backend import Backend
from support.backends.backend_calls import call_of, found, made, result, text_of

PLAIN = "def agent(message: str) -> str:\n    'Says it louder.'\n    return message.upper()\n"
REMEMBERS = (
    "def agent(message, history):\n"
    "    return ' '.join(turn['role'][0] + ':' + turn['text'] for turn in history) + '|' + message\n"
)
OWN_MEMORY = "async def agent(message: dict, context_id: str):\n    return [context_id, message]\n"
PIECES = "async def agent(message: str):\n    for word in message.split():\n        yield word + ' '\n"
PIECES_IN_THREAD = "def agent(message: str):\n    yield {'step': 1}\n    yield 'a'\n    yield 'b'\n"
RETURNS = "def agent(message: str):\n    yield 'thinking'\n    return 'answer'\n"
CONTEXT = (
    "from mcpbridge.core.context import CallContext\n"
    "def agent(message: str, about: CallContext):\n    return bool(about.run)\n"
)


@asynccontextmanager
async def agent(text: str, directory: Path, state: str = "ready", **settings: Any) -> AsyncGenerator[Backend]:
    module = f"agents_{time.monotonic_ns()}"
    (directory / f"{module}.py").write_text(text)
    backend = made("helper", "agent", directory, agent=f"{module}:agent", **settings)
    async with found(backend, state):
        yield backend


async def test_a_message_gets_an_answer(tmp_path: Path) -> None:
    async with agent(PLAIN, tmp_path) as backend:
        (tool,) = backend.tools
        assert tool["description"] == "Says it louder."
        assert list(tool["inputSchema"]["properties"]) == ["message"]
        assert text_of(await result(backend, "helper", {"message": "hello"})) == "HELLO"
        assert (await backend.check()).ok
        with pytest.raises(UnknownName):
            await backend.command("x", {})


async def test_a_conversation_goes_on_by_its_id_for_who_began_it(tmp_path: Path) -> None:
    async with agent(REMEMBERS, tmp_path) as backend:
        first = await result(backend, "helper", {"message": "one"})
        context_id = first["_meta"]["mcpbridge/agent"]["contextId"]
        assert text_of(first) == f'|one\nTo continue this conversation: context_id "{context_id}".'
        second = await result(backend, "helper", {"message": "two", "context_id": context_id})
        assert text_of(second).startswith("u:one a:|one|two\n")
        other = await result(backend, "helper", {"message": "three"})
        assert text_of(other).startswith("|three\n")

        class Stranger:
            principal, session = "stranger", LOCAL.session

        with pytest.raises(ArgumentsRefused, match="no conversation"):
            await backend.run(
                call_of("helper", {"message": "x", "context_id": context_id}, caller=Stranger())  # type: ignore[arg-type]
            )


async def test_it_remembers_the_latest_conversations(tmp_path: Path) -> None:
    async with agent(REMEMBERS, tmp_path) as backend:
        ids = []
        for number in range(101):
            told = await result(backend, "helper", {"message": str(number)})
            ids.append(told["_meta"]["mcpbridge/agent"]["contextId"])
        with pytest.raises(ArgumentsRefused, match="no conversation"):
            await result(backend, "helper", {"message": "x", "context_id": ids[0]})
        assert "u:100" in text_of(await result(backend, "helper", {"message": "x", "context_id": ids[100]}))


async def test_an_agent_that_remembers_by_itself_gets_the_id_and_data(tmp_path: Path) -> None:
    async with agent(OWN_MEMORY, tmp_path) as backend:
        assert set(backend.tools[0]["inputSchema"]["properties"]) == {"message", "data", "context_id"}
        told = await result(backend, "helper", {"message": "x", "data": {"a": 1}})
        context_id, message = told["structuredContent"]["result"]
        assert re.fullmatch("[0-9a-f]{16}", context_id)
        assert message == {"message": "x", "data": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "answer", "heard"),
    [(PIECES, "a b ", ["a ", "b "]), (PIECES_IN_THREAD, "ab", ["", "a", "b"]), (RETURNS, "answer", ["thinking"])],
)
async def test_what_comes_in_pieces_is_told_and_joined(
    text: str, answer: str, heard: list[str], tmp_path: Path
) -> None:
    told: list[dict[str, Any]] = []
    async with agent(text, tmp_path) as backend:
        got = (await backend.run(call_of("helper", {"message": "a b"}, told))).value()
    assert text_of(got) == answer
    assert [one["message"] if "_meta" not in one else "" for one in told] == heard


async def test_its_context_comes_by_annotation_and_schemas_by_hand(tmp_path: Path) -> None:
    async with agent(CONTEXT, tmp_path) as backend:
        assert list(backend.tools[0]["inputSchema"]["properties"]) == ["message"]
        assert text_of(await result(backend, "helper", {"message": "x"})) == "true"
    schema = {"type": "object", "properties": {"topic": {"type": "string"}}}
    async with agent("def agent(task): return task", tmp_path, input_schema=schema) as backend:
        assert backend.tools[0]["inputSchema"] == schema
        assert (await result(backend, "helper", {"topic": "x"}))["structuredContent"] == {"topic": "x"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def agent(): ...", "its first parameter must take the message"),
        ("def agent(*messages): ...", "its first parameter must take the message"),
        ("def agent(message, model): ...", "nothing is known for its parameter `model`"),
        ("agent = 3", "it is no function but int"),
        ("agent = max", "its parameters cannot be read"),
        ("#", "has no 'agent'"),
    ],
)
async def test_what_is_no_agent_says_why(text: str, told: str, tmp_path: Path) -> None:
    async with agent(text, tmp_path, "failed") as backend:
        assert told in backend.condition.reason


async def test_its_answers_are_held_to_a_schema_given_by_hand(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["a"]}
    async with agent("def agent(message: str): return {message: 1}", tmp_path, output_schema=schema) as backend:
        assert backend.tools[0]["outputSchema"] == schema
        assert (await result(backend, "helper", {"message": "a"}))["structuredContent"] == {"a": 1}
        assert (await result(backend, "helper", {"message": "b"}))["isError"]
    async with agent("def agent(message: str): ...", tmp_path, "failed", output_schema={"type": "no"}) as backend:
        assert "its output schema is none" in backend.condition.reason
