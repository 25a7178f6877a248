"""The reference server of the matrix, on the official SDK: one of each era on every transport that the era has.

    python -m matrix.upstream STATE legacy|modern     one server on standard input and output
    python -m matrix.upstream STATE                   all the others, each on a port of its own; prints their URLs

A server's tools and its resource depend on files below STATE that any process may change, as those of a real server do
on the world. It watches them, and tells everyone whom it concerns. In the same place it writes down what it did.
"""

import json
import os
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import anyio
import mcp_types as t
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError

from conformance.fixture.asking import NeedInput, ask, is_modern
from conformance.fixture.payloads import fields, form, sample, text
from conformance.fixture.serving import Era, application, held_to, serve_stdio
from matrix.cells import REACHED

ODD_RESULT: dict[str, Any] = {
    "content": [
        {"type": "text", "text": "plain", "shade": {"of": [1, None]}},
        {"type": "hologram", "data": "AAAA", "depth": 3},
    ],
    "invented": {"number": 12345678901234567890, "nothing": None},
    "_meta": {"vendor.example/key": {"kept": True, "null": None}},
}
"""A result with what no revision knows."""

_TOOLS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "description": "Gives its arguments back",
        "inputSchema": fields([], text={"type": "string", "x-vendor": 1}),
        "invented": {"deep": [None, 1]},
    },
    {"name": "broken", "inputSchema": "this is no schema"},
    *(
        {"name": name, "description": description, "inputSchema": fields([])}
        for name, description in (
            ("odd", "Gives back what no revision knows"),
            ("structured", "Gives back structured content"),
            ("large", "Gives back 20 MB"),
            ("hold", "Never ends by itself"),
            ("count", "Reports progress"),
            ("log", "Logs"),
            ("ask_form", "Asks the user"),
            ("ask_url", "Sends the user somewhere"),
            ("ask_model", "Asks the model"),
            ("ask_roots", "Asks for the roots"),
            ("grow", "Adds a tool"),
            ("touch", "Changes the resource"),
        )
    ),
]
_NAME = fields(["name"], name={"type": "string"})


class Reference:
    """One server: what it offers, and the files that it watches."""

    def __init__(self, name: str, state: Path) -> None:
        self.name = name
        self.state = state / name
        self.state.mkdir(parents=True, exist_ok=True)
        self.note = f"memo://{name}/note"
        self.bus = InMemorySubscriptionBus()
        self.connections: set[Any] = set()
        self.subscribed: dict[Any, set[str]] = {}

    def server(self) -> Server:
        """The SDK's server with this one's handlers."""
        server = Server(
            self.name,
            version="1",
            on_call_tool=self.call,
            on_list_tools=self.list_tools,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read,
            on_subscribe_resource=self.subscribe,
            on_unsubscribe_resource=self.unsubscribe,
            on_completion=self.complete,
            on_set_logging_level=self.accept,
            on_subscriptions_listen=ListenHandler(self.bus),
            get_tool_input_schema=lambda _name: fields([]),
        )
        server.middleware.append(self.raw)
        return server

    # -- what the SDK's models would lose: answered as it is

    async def raw(self, context: Any, call_next: Any) -> Any:
        params = context.params or {}
        if context.method == "notifications/initialized":
            self.connections.add(_connection(context))
        if context.method == "tools/list":
            listed = {"ttlMs": 0, "cacheScope": "private"} if is_modern(context) else {}
            return self.complete_result(context, tools=[*_TOOLS, *self.grown()], **listed)
        if context.method == "tools/call" and params["name"] == "echo":
            given = json.dumps(params.get("arguments"))
            return self.complete_result(context, content=[{"type": "text", "text": given}])
        if context.method == "tools/call" and params["name"] == "odd":
            return self.complete_result(context, **ODD_RESULT)
        return await call_next(context)

    def complete_result(self, context: Any, **result: Any) -> dict[str, Any]:
        return {"resultType": "complete", **result} if is_modern(context) else result

    def grown(self) -> list[dict[str, Any]]:
        """The tools that were added."""
        names = sorted(path.name for path in self.state.glob("grown-*"))
        return [{"name": name, "inputSchema": fields([])} for name in names]

    # -- tools

    async def list_tools(self, _context: Any, _params: Any) -> t.ListToolsResult:
        raise AssertionError("answered raw")

    async def call(self, context: Any, params: Any) -> t.CallToolResult | t.InputRequiredResult:
        given = params.arguments or {}
        try:
            return await getattr(self, f"tool_{params.name}")(context, params, given)
        except NeedInput as need:
            return need.result
        except (RuntimeError, ExceptionGroup) as error:
            return t.CallToolResult(content=[text(str(error))], is_error=True)

    async def tool_structured(self, _context: Any, _params: Any, _given: Any) -> t.CallToolResult:
        return t.CallToolResult(content=[text('{"answer": 42}')], structured_content={"answer": 42})

    async def tool_large(self, _context: Any, _params: Any, _given: Any) -> t.CallToolResult:
        return _said("x" * (20 * 2**20))

    async def tool_hold(self, _context: Any, _params: Any, given: Any) -> t.CallToolResult:
        (self.state / f"began-{given['token']}").touch()
        try:
            await anyio.sleep_forever()
        finally:
            (self.state / f"cancelled-{given['token']}").touch()
        raise AssertionError("unreachable")

    async def tool_count(self, context: Any, _params: Any, _given: Any) -> t.CallToolResult:
        for step in (1, 2, 3):
            await context.session.report_progress(step, 3, f"step {step}")
        return _said("counted")

    async def tool_log(self, context: Any, _params: Any, given: Any) -> t.CallToolResult:
        await context.session.send_log_message(
            level="warning", data=given["token"], logger="reference", related_request_id=context.request_id
        )
        return _said("logged")

    async def tool_ask_form(self, context: Any, params: Any, given: Any) -> t.CallToolResult:
        answer = (await ask(context, params, {"who": form(f"Who are you? {given['token']}", _NAME)}))["who"]
        return _said(f"{answer.action}: {(answer.content or {}).get('name')}")

    async def tool_ask_url(self, context: Any, params: Any, given: Any) -> t.CallToolResult:
        token = given["token"]
        request = t.ElicitRequestURLParams(
            message=f"Go there: {token}",
            url=f"https://example.com/{token}",
            elicitation_id=None if is_modern(context) else token,
        )
        answer = (await ask(context, params, {"where": t.ElicitRequest(params=request)}))["where"]
        return _said(answer.action)

    async def tool_ask_model(self, context: Any, params: Any, given: Any) -> t.CallToolResult:
        answer = (await ask(context, params, {"model": sample(f"What is it? {given['token']}")}))["model"]
        return _said(answer.content.text)

    async def tool_ask_roots(self, context: Any, params: Any, _given: Any) -> t.CallToolResult:
        answer = (await ask(context, params, {"roots": t.ListRootsRequest()}))["roots"]
        return _said(" ".join(str(root.uri) for root in answer.roots))

    async def tool_grow(self, _context: Any, _params: Any, given: Any) -> t.CallToolResult:
        (self.state / f"grown-{given['token']}").touch()
        return _said("grown")

    async def tool_touch(self, _context: Any, _params: Any, given: Any) -> t.CallToolResult:
        (self.state / f"touched-{given['token']}").touch()
        return _said("touched")

    # -- beside tools

    async def list_prompts(self, _context: Any, _params: Any) -> t.ListPromptsResult:
        arguments = [t.PromptArgument(name="who", required=True)]
        return t.ListPromptsResult(prompts=[t.Prompt(name="greet", arguments=arguments)])

    async def get_prompt(self, _context: Any, params: Any) -> t.GetPromptResult:
        words = text(f"Greet {params.arguments['who']}.")
        return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=words)])

    async def list_resources(self, _context: Any, _params: Any) -> t.ListResourcesResult:
        return t.ListResourcesResult(resources=[t.Resource(uri=self.note, name=f"note of {self.name}")])

    async def list_templates(self, _context: Any, _params: Any) -> t.ListResourceTemplatesResult:
        template = t.ResourceTemplate(uri_template=f"memo://{self.name}/page/{{number}}", name="page")
        return t.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, context: Any, params: Any) -> t.ReadResourceResult:
        if "missing" in params.uri:
            code = t.INVALID_PARAMS if is_modern(context) else -32002
            raise MCPError(code, "Resource not found", data={"uri": params.uri})
        contents = t.TextResourceContents(uri=params.uri, mime_type="text/plain", text=f"content of {params.uri}")
        return t.ReadResourceResult(contents=[contents])

    async def subscribe(self, context: Any, params: Any) -> t.EmptyResult:
        await anyio.sleep(0.2)  # whoever is answered before this has come to its end misses what changes meanwhile
        self.subscribed.setdefault(_connection(context), set()).add(params.uri)
        return t.EmptyResult()

    async def unsubscribe(self, context: Any, params: Any) -> t.EmptyResult:
        self.subscribed.get(_connection(context), set()).discard(params.uri)
        return t.EmptyResult()

    async def complete(self, _context: Any, params: Any) -> t.CompleteResult:
        value = params.argument.value
        return t.CompleteResult(completion=t.Completion(values=[f"{value}1", f"{value}2"], total=2, has_more=False))

    async def accept(self, _context: Any, _params: Any) -> t.EmptyResult:
        return t.EmptyResult()

    # -- the world

    async def watch(self) -> None:
        """Tell of changes, whoever made them."""
        grown, touched = self.seen()
        while True:
            await anyio.sleep(0.02)  # there is no portable way to wait for a file
            before, (grown, touched) = (grown, touched), self.seen()
            if grown != before[0]:
                await self.bus.publish(ToolsListChanged())
                for connection in list(self.connections):
                    await self.tell(connection, connection.send_tool_list_changed)
            if touched != before[1]:
                await self.bus.publish(ResourceUpdated(uri=self.note))
                for connection in [of for of, uris in self.subscribed.items() if self.note in uris]:
                    await self.tell(connection, connection.send_resource_updated, self.note)

    def seen(self) -> tuple[int, int]:
        return len(list(self.state.glob("grown-*"))), len(list(self.state.glob("touched-*")))

    async def tell(self, connection: Any, send: Any, *what: str) -> None:
        try:
            with anyio.fail_after(1):
                await send(*what)
        except Exception:  # noqa: BLE001 - that client has gone
            self.connections.discard(connection)
            self.subscribed.pop(connection, None)


def _connection(context: Any) -> Any:
    return context.session._connection  # the session is made anew for each message


def _said(words: str) -> t.CallToolResult:
    return t.CallToolResult(content=[text(words)])


async def one(state: Path, era: Era) -> None:
    """Serve on standard input and output."""
    reference = Reference(f"{era}-stdio", state)
    async with anyio.create_task_group() as group:
        group.start_soon(reference.watch)
        await serve_stdio(held_to(reference.server(), era), era)
        group.cancel_scope.cancel()


async def all_others(state: Path) -> None:
    """Serve on ports, each server alone, until standard input ends; the first line of the output says where."""
    import uvicorn

    urls: dict[str, str] = {}
    async with anyio.create_task_group() as group:
        for era, transport in REACHED:
            if transport == "stdio":
                continue
            reference = Reference(f"{era}-{transport}", state)
            # The protocol is named so that asyncio switches Nagle's algorithm off: else answers wait 40 ms.
            listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            scheme, path = {"http": ("http", "mcp"), "sse": ("http", "sse"), "ws": ("ws", "ws")}[transport]
            urls[reference.name] = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/{path}"
            app: Any = application(held_to(reference.server(), era), era)
            config = uvicorn.Config(app, ws="websockets-sansio", ws_max_size=2**30, log_level="warning")
            server = uvicorn.Server(config)
            group.start_soon(server.serve, [listening])
            group.start_soon(reference.watch)
        print(json.dumps(urls), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)  # whoever started this closes it, or dies
        os._exit(0)  # uvicorn would first wait for the streams of the bridge to end


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the SDK's own, about what it deprecates
    folder, *rest = sys.argv[1:]
    if rest:
        anyio.run(one, Path(folder), rest[0])
    else:
        anyio.run(all_others, Path(folder))
