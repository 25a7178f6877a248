"""Adapters of models: what comes in pieces is made whole, whatever a provider does; and MCP's sampling."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import pytest

from mcpbridge.core.context import CallContext
from mcpbridge.core.elicitation import NOBODY, QuestionRefused
from mcpbridge.library.agent.models.anthropic import AnthropicModel
from mcpbridge.library.agent.models.model import Delta, ModelRequest
from mcpbridge.library.agent.models.openai import OpenAIModel, OpenAIResponsesModel
from mcpbridge.library.agent.models.sampling import SamplingModel
from mcpbridge.library.calls.run_events import ArgumentsDelta, RunFailed, TextDelta, Usage, usage_of
from support.harness import first_line
from support.models.agent_runs import HELLO, bridge_with, texts

TESTS = Path(__file__).parents[2]


class Stream:
    """What a client that is not async gives for a stream."""

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def __iter__(self) -> Any:
        return iter(self._events)


class Client:
    """Stands for a client of any package: answers every request with these events."""

    def __init__(self, *events: Any) -> None:
        self.asked: dict[str, Any] = {}
        self._events = events

    @property
    def chat(self) -> "Client":
        return self

    @property
    def completions(self) -> "Client":
        return self

    @property
    def messages(self) -> "Client":
        return self

    @property
    def responses(self) -> "Client":
        return self

    def create(self, **params: Any) -> Stream:
        self.asked = params
        return Stream(self._events)


async def streamed(model: Any) -> tuple[dict[str, Any], list[Delta]]:
    heard: list[Delta] = []
    return await model(ModelRequest(HELLO, [], "r", 1, heard.append)), heard


def chunk(**delta: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def piece(arguments: str = "", **more: Any) -> dict[str, Any]:
    name = more.pop("name", None)
    return {**more, "function": {"arguments": arguments, **({"name": name} if name else {})}}


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([piece("{}", index=0, id="a", name="x"), piece("{}", index=0, id="b", name="y")], id="one-index"),
        pytest.param([piece("{}", id="a", name="x"), piece("{}", id="b", name="y")], id="no-index"),
        pytest.param(
            [
                piece("", index=0, id="a", name="x"),
                piece("{", index=0),
                piece("{}", index=1, id="b", name="y"),
                piece("}", index=0),
            ],
            id="interleaved",
        ),
        pytest.param(
            [
                piece("{", index=0, id="a", name="x"),
                piece("}", index=0, id="a"),
                piece("{}", index=1, id="b", name="y"),
            ],
            id="id-repeated",
        ),
    ],
)
async def test_calls_are_put_together_however_a_provider_numbers_them(pieces: list[dict[str, Any]]) -> None:
    whole, heard = await streamed(OpenAIModel(Client(*(chunk(tool_calls=[one]) for one in pieces)), model="m"))
    made = whole["choices"][0]["message"]["tool_calls"]
    assert [(call["id"], call["function"]) for call in made] == [
        ("a", {"name": "x", "arguments": "{}"}),
        ("b", {"name": "y", "arguments": "{}"}),
    ]
    told = dict[str, str]()
    for delta in heard:
        assert isinstance(delta, ArgumentsDelta)
        told[delta.call_id] = told.get(delta.call_id, "") + delta.json
    assert told == {"a": "{}", "b": "{}"}


async def test_what_other_providers_add_to_a_message_is_kept() -> None:
    """Some want their own fields back (`reasoning_content`)."""
    other = {"choices": [{"index": 1, "delta": {"content": "another choice"}}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    chunks = [chunk(role="assistant", reasoning_content="h"), chunk(reasoning_content="m"), chunk(content="Hi"), other]
    client = Client(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, usage)
    whole, heard = await streamed(OpenAIModel(client, model="m", temperature=0, stream_options=None))
    (choice,) = whole["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}
    assert (choice["finish_reason"], usage_of(whole), heard) == ("stop", Usage(3, 4), [TextDelta("Hi")])
    assert client.asked == {"model": "m", "temperature": 0, "messages": HELLO, "stream": True}


async def test_thinking_and_what_servers_ran_stay_in_anthropics_message() -> None:
    def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        events = [{"type": "content_block_start", "index": index, "content_block": begun}]
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        return [*events, {"type": "content_block_stop", "index": index}]

    def arguments(raw: str) -> dict[str, Any]:
        return {"type": "input_json_delta", "partial_json": raw}

    call = {"type": "tool_use", "name": "x", "input": {}}
    events = [
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 2}}},
        *block(0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "hm"})[:2],
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "of_a_later_day"}},
        *block(
            1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "a"}, {"type": "text_delta", "text": "b"}
        ),
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"url": "u"}}},
        *block(2, {"type": "server_tool_use", "id": "s", "name": "search", "input": {}}, arguments('{"q":1}')),
        *block(3, {**call, "id": "c"}, arguments(""), arguments('{"a":'), arguments("1}")),
        *block(4, {**call, "id": "d"}),
        *block(5, {**call, "id": "e"}, arguments('{"a"')),
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    message, heard = await streamed(AnthropicModel(Client(*events), model="m"))
    assert message["content"][:2] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "ab", "citations": [{"url": "u"}]},
    ]
    assert [part["input"] for part in message["content"][2:]] == [{"q": 1}, {"a": 1}, {}, {"INVALID_JSON": '{"a"'}]
    assert (message["stop_reason"], usage_of(message)) == ("max_tokens", Usage(2, 5))
    assert [delta.json for delta in heard if isinstance(delta, ArgumentsDelta)] == ['{"a":', "1}", '{"a"']


async def test_a_stream_of_a_response_that_breaks_off_is_no_answer() -> None:
    with pytest.raises(ConnectionError):
        await streamed(OpenAIResponsesModel(Client({"type": "response.created", "response": {}}), model="m"))


async def test_what_a_thread_raises_is_raised_here() -> None:
    class Broken(Client):
        def create(self, **params: Any) -> Stream:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await streamed(OpenAIModel(Broken(), model="m"))


@pytest.mark.parametrize(
    ("response", "usage"),
    [
        ({"usage": {"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 3}}, Usage(3, 3)),
        ({"usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 5, "thoughtsTokenCount": 6}}, Usage(4, 11)),
        ({"usage": {"prompt_tokens": None}}, Usage()),
        ({}, Usage()),
        ("text", Usage()),
    ],
    ids=["anthropic", "gemini", "none", "nothing", "text"],
)
def test_usage_is_read_in_every_apis_words(response: Any, usage: Usage) -> None:
    assert usage_of(response) == usage


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def sampled(_: Any, params: mcp_types.CreateMessageRequestParams) -> mcp_types.CreateMessageResultWithTools:
    """The client's model: calls `add` at first."""
    said: list[Any] = [{"type": "text", "text": "It is three."}]
    if len(params.messages) == 1:
        assert [tool.name for tool in params.tools or ()] == ["add"]
        said = [{"type": "tool_use", "id": "1", "name": "add", "input": {"a": 2}}]
    answer = {"role": "assistant", "model": "m", "content": said, "stopReason": "endTurn"}
    return mcp_types.CreateMessageResultWithTools.model_validate(answer)


QUESTION = [{"role": "user", "content": {"type": "text", "text": "2 and 1?"}}]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_tool_works_with_the_model_of_the_client_that_calls_it(mode: str, tmp_path: Path) -> None:
    async def think(context: CallContext) -> str:
        outcome = await bridge.run(SamplingModel(context), QUESTION, tools=["add"])
        return f"{outcome.text} {texts(outcome.results)}"

    options: dict[str, Any] = {
        "sampling_callback": sampled,
        "sampling_capabilities": mcp_types.SamplingCapability(tools=mcp_types.SamplingToolsCapability()),
        "mode": mode,
    }
    with anyio.fail_after(60):
        async with bridge_with(tmp_path, add, think) as bridge, bridge.client(**options) as client:
            result = await client.call_tool("think", {})
    assert result.content[0].text == "It is three. ['3']"  # type: ignore[union-attr]


async def test_a_client_without_a_model_cannot_be_asked(tmp_path: Path) -> None:
    async with bridge_with(tmp_path, add) as bridge:
        with pytest.raises(RunFailed) as failed:
            await bridge.run(SamplingModel(NOBODY), QUESTION)
    assert isinstance(failed.value.__cause__, QuestionRefused)


async def test_a_session_of_a_server_of_ones_own_samples_too(tmp_path: Path) -> None:
    from mcp import Client as McpClient
    from mcp.server.mcpserver import Context, MCPServer

    server = MCPServer("own")

    @server.tool()
    async def think(context: Context[Any]) -> str:  # pyright: ignore[reportUnusedFunction]
        outcome = await bridge.run(SamplingModel(context.session, max_tokens=9), QUESTION, tools=["add"])
        return outcome.text

    options: dict[str, Any] = {
        "sampling_callback": sampled,
        "sampling_capabilities": mcp_types.SamplingCapability(tools=mcp_types.SamplingToolsCapability()),
        "mode": "legacy",
    }
    with anyio.fail_after(60):
        async with bridge_with(tmp_path, add) as bridge, McpClient(server, **options) as client:
            result = await client.call_tool("think", {})
    assert result.content[0].text == "It is three."  # type: ignore[union-attr]


async def test_the_scripted_models_are_a_program_too(tmp_path: Path) -> None:
    """As examples run against it: in a process of its own."""
    script = tmp_path / "script.json"
    turns = [
        {"text": "I add.", "calls": [{"name": "add", "arguments": {"a": 1}}]},
        {"calls": [{"name": "add", "arguments": {"a": "$last"}}]},
        {"text": "Done."},
    ]
    script.write_text(json.dumps(turns))
    with anyio.fail_after(90):
        async with await anyio.open_process(
            [sys.executable, "-m", "support.models.scripted_models", "0", str(script)], cwd=TESTS
        ) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            address = await first_line(process.stdout)
            import openai

            async with (
                openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="k") as client,
                bridge_with(tmp_path, add) as bridge,
            ):
                outcome = await bridge.run(OpenAIModel(client, model="m"), HELLO)
            await process.stdin.aclose()
    assert (outcome.text, texts(outcome.results), process.returncode) == ("Done.", ["2", "3"], 0)
