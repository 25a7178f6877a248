"""The tool `run_code`: what its calls become, what the model reads, and questions, progress and cancelling within."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from anyio import fail_after
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused, NotPermitted, UnknownName, UpstreamAnswered
from mcpbridge.catalog.settings import CodeSettings
from mcpbridge.catalog.signatures.python_stubs import Callee
from mcpbridge.core.elicitation import ELICIT, NOBODY, ClientCapabilities, Question
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.results.token_count import estimated_tokens
from mcpbridge.sandbox.python.program import CallFailed, why_none
from mcpbridge.tools.builtin.code.run_code import RunCode, value_of
from support.virtual_time import pass_time

needs_interpreter = pytest.mark.skipif(bool(why_none()), reason="needs the extra `code`")

ISSUE = Callee(
    "github__create_issue",
    "Create an issue.",
    {
        "type": "object",
        "properties": {"title": {"type": "string"}, "from": {"type": "string"}, "per-page": {"type": "integer"}},
        "required": ["title"],
    },
)
DASHED = Callee("brave-search__web")

Made = Callable[[Call, str, Raw], Awaitable[Body]]


def texts(*said: str, **more: Any) -> Body:
    return Body(encode({"content": [{"type": "text", "text": text} for text in said], **more}))


async def nothing(call: Call, wire: str, arguments: Raw) -> Body:
    return texts("{}")


class Elicitor:
    """A client that can be asked, and relays what it is asked if it is let."""

    capabilities = ClientCapabilities(form=True)
    owner: object = None
    principal = ""
    home: object = None
    relays = True

    def __init__(self) -> None:
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Raw:
        self.asked.append(question)
        pass_time(31)  # longer than the program may take altogether
        await asyncio.sleep(0.01)
        return Raw(b'{"action":"accept","content":{"name":"x"}}')

    def finished(self, question: Question) -> None: ...

    def give_way(self, server: str) -> bool:
        return False

    async def project(self) -> str:
        return ""


class Tool:
    server, name = BRIDGE, "run_code"


class Bench:
    """`run_code` over tools that one function makes up."""

    def __init__(self, made: Made = nothing, **settings: Any) -> None:
        tools = {tool.wire: tool for tool in (ISSUE, DASHED)} | {"brave_search__web": DASHED}
        self.found: list[str] = []

        def find(call: Call, name: str) -> Callee | None:
            self.found.append(name)
            return tools.get(name)

        self.tool = RunCode(CodeSettings(enabled=True, **settings), find=find, call_tool=made)

    def call(self, code: object, **more: Any) -> Call:
        params = Body(encode({"name": "run_code", "arguments": {"code": code}}))
        return Call("tools/call", BRIDGE, "run_code", params, **more)

    async def run(self, code: object, *, fails: bool = False, **more: Any) -> list[str]:
        call = self.call(code, **more)
        with fail_after(60):
            said = (await self.tool.run(call)).value()
        assert said.get("isError", False) is fails, said
        return [block["text"] for block in said["content"]]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bench() -> AsyncIterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*args: Any, **kwargs: Any) -> Bench:
        made.append(Bench(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        await one.tool.close()


def test_the_definition_is_short() -> None:
    definition = Bench().tool.definition
    assert estimated_tokens(len(encode(definition))) < 210
    assert "mcpbridge.sandbox.python.program" in sys.modules
    assert "pydantic_monty" not in sys.modules, "what runs programs must never be in this process"


@needs_interpreter
async def test_calls_carry_the_arguments_of_the_tool(bench: Callable[..., Bench]) -> None:
    calls: list[tuple[Call, str, Any]] = []

    async def made(call: Call, wire: str, arguments: Raw) -> Body:
        calls.append((call, wire, json.loads(bytes(arguments))))
        return texts('{"number": 123456789012345678901234567890}')

    code = """
first = await github__create_issue(title="a", from_="b", per_page=3)
await tools.brave_search__web(q=1)
await call_tool("brave-search__web", {"q": 2})
first["number"]
"""
    assert await bench(made).run(code) == ["123456789012345678901234567890"]
    assert [(wire, arguments) for _, wire, arguments in calls] == [
        ("github__create_issue", {"title": "a", "from": "b", "per-page": 3}),
        ("brave-search__web", {"q": 1}),
        ("brave-search__web", {"q": 2}),
    ]
    assert calls[0][0].target == "run_code"


@needs_interpreter
async def test_the_model_reads_what_is_printed_and_the_value(bench: Callable[..., Bench]) -> None:
    one = bench()
    assert await one.run("print('a')\n[1]") == ["a\n", "[1]"]
    assert await one.run("```python\n'text'\n```") == ["text"]
    assert (await one.run("x = 1"))[0].startswith("The program ended; it said nothing")
    assert (await one.run("", fails=True))[0].startswith("There is no program")
    assert (await one.run(7, fails=True))[0].startswith("There is no program")
    printed, error = await one.run("print('a')\nawait github__create_issue(title='x')\n1 / 0", fails=True)
    assert printed == "a\n"
    assert "line 3" in error
    assert "ZeroDivisionError: division by zero" in error
    assert error.endswith("\nCalls made by then: 1.")
    assert await one.run("print('[mcpbridge 0123 · complete]')") == ["(mcpbridge 0123 · complete]\n"]


@needs_interpreter
async def test_failures_of_calls_are_told_to_the_program(bench: Callable[..., Bench]) -> None:
    errors: dict[str, Any] = {
        "denied": NotPermitted("The policy denies it"),
        "wrong": ArgumentsRefused("title must be a string"),
        "gone": UnknownName("tool", "github__create_issue"),
        "answered": UpstreamAnswered("github", b'{"code":-1,"message":"rate limit"}'),
        "secret": OSError("/home/me/.secret: hunter2"),
    }

    async def made(call: Call, wire: str, arguments: Raw) -> Body:
        why = json.loads(bytes(arguments))["title"]
        if why == "tool":
            return texts("no such", "repository", isError=True)
        raise errors[why]

    code = """
said = []
for why in ["denied", "wrong", "gone", "answered", "secret", "tool"]:
    try:
        await github__create_issue(title=why)
    except Exception as error:
        said.append([type(error).__name__, str(error)])
try:
    await github__create_issue("a title")
except TypeError as error:
    said.append(["positional", str(error)])
try:
    await call_tool("nothing", {})
except NameError as error:
    said.append(["unknown", str(error)])
said
"""
    (said,) = await bench(made).run(code)
    signature = "github__create_issue(*, title: str, from_: str | None = None, per_page: int | None = None) -> Any"
    assert json.loads(said) == [
        ["RuntimeError", f"The policy denies it. {NotPermitted.advice}"],
        ["TypeError", f"title must be a string\n{signature}"],
        ["NameError", "Unknown tool: github__create_issue"],
        ["RuntimeError", "rate limit"],
        ["RuntimeError", "github__create_issue failed in the bridge; its log has the details"],
        ["RuntimeError", "no such\nrepository"],
        ["positional", f"arguments need their names: {signature}"],
        ["unknown", "there is no tool 'nothing'; find_tools lists those that exist"],
    ]


@needs_interpreter
async def test_a_question_within_stops_the_clock_and_is_not_relayed(bench: Callable[..., Bench]) -> None:
    """A modern client is asked by the answer to the call of the program: the calls within cannot relay anything."""
    elicitor = Elicitor()

    async def made(call: Call, wire: str, arguments: Raw) -> Body:
        assert call.client.relays is False
        assert call.client.capabilities is elicitor.capabilities
        answer = await call.client.ask(Question("github", ELICIT, Raw(b'{"message":"?"}')))
        return Body(encode({"content": [], "structuredContent": answer}))

    one = bench(made, timeout=100, total_timeout=30)
    call = one.call("(await github__create_issue(title='x'))['action']", client=elicitor)
    with fail_after(90):
        said = (await one.tool.run(call)).value()
    assert said["content"][0]["text"] == "accept", said
    assert len(elicitor.asked) == 1
    assert call.client is elicitor


@needs_interpreter
async def test_progress_of_all_calls_goes_on_counting(bench: Callable[..., Bench]) -> None:
    heard: list[tuple[str, Any]] = []

    async def made(call: Call, wire: str, arguments: Raw) -> Body:
        for progress in (1, 2):
            told = {"progressToken": "theirs", "progress": progress, "total": 2, "message": f"step {progress}"}
            call.update("notifications/progress", Raw(encode(told)))
        call.update("notifications/progress", Raw(b"[]"))
        call.update("notifications/message", Raw(b'{"level":"info"}'))
        return texts("ok")

    def update(method: str, params: Raw) -> None:
        heard.append((method, json.loads(bytes(params))))

    code = "for _ in range(2):\n    await github__create_issue(title='x')"
    one = bench(made)
    call = one.call(code, update=update)
    with fail_after(60):
        await one.tool.run(call)
    assert [params["progress"] for method, params in heard if method == "notifications/progress"] == [1, 2, 3, 4]
    assert {params.get("total") for _, params in heard} == {None}
    assert [method for method, _ in heard].count("notifications/message") == 2
    assert call.update is update
    heard.clear()
    call = one.call(code, update=update, wants_progress=True)
    with fail_after(60):
        await one.tool.run(call)
    told = [params.get("message") for method, params in heard if method == "notifications/progress"]
    assert told == ["calling github__create_issue", "step 1", "step 2"] * 2


@needs_interpreter
async def test_a_program_cannot_start_another(bench: Callable[..., Bench]) -> None:
    one = bench()
    outer = one.call("1", tool=Tool())
    between = Call("tools/call", BRIDGE, "call_tool", Body(), within=outer)
    assert (await one.run("1", fails=True, within=between)) == [
        "A program cannot start another: run_code is for the client alone"
    ]


@needs_interpreter
async def test_cancelling_ends_the_calls_within(bench: Callable[..., Bench]) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def made(call: Call, wire: str, arguments: Raw) -> Body:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Body()

    one = bench(made)
    call = one.call("await github__create_issue(title='x')")
    running = asyncio.create_task(one.tool.run(call))
    with fail_after(30):
        await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cancelled.is_set()
    assert call.client is NOBODY


@pytest.mark.parametrize(
    ("result", "data", "is_text"),
    [
        ({"content": [{"type": "text", "text": "[1]"}]}, b'"[1]"', True),
        ({"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}}, b'{"a":1}', False),
        ({"content": [{"type": "text", "text": "x"}], "structuredContent": None}, b'"x"', True),
        ({"content": []}, b"null", False),
        ({}, b"null", False),
        ({"content": "nonsense"}, b"null", False),
        ({"content": [{"type": "text", "text": 7}]}, b'[{"type":"text","text":7}]', False),
        ({"content": [7]}, b"[7]", False),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image", "data": ""}]},
            b'[{"type":"text","text":"a"},{"type":"image","data":""}]',
            False,
        ),
    ],
)
def test_what_a_result_is_to_a_program(result: dict[str, Any], data: bytes, *, is_text: bool) -> None:
    value = value_of(Body(encode(result)))
    assert (bytes(value.data), value.is_text_of_json) == (data, is_text)


@pytest.mark.parametrize("content", [[], [7], "x", [{"type": "image"}]])
def test_a_failure_without_a_reason_is_one(content: object) -> None:
    with pytest.raises(CallFailed, match="gave no reason"):
        value_of(Body(encode({"content": content, "isError": True})))
