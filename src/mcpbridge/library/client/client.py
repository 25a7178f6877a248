"""`Client`: an `mcp.Client` that also knows what only bridges have, and explains failed connections in one sentence.

`Client` of a daemon is created with its URL, that of a bridge in this process by `Bridge.client`. It connects to
whatever `mcp.Client` can; methods that only bridges have say so elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self, cast
from urllib.parse import urlsplit

import anyio
import mcp
from mcp.client.caching import CacheMode
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolResult,
    InputResponses,
    ListToolsResult,
    RequestParamsMeta,
    TextContent,
)

from mcpbridge.base.errors import CallFailed, ConfigError, NoBridge, NotConnected
from mcpbridge.catalog.listing.exposure import UNLISTED
from mcpbridge.core.context import new_run
from mcpbridge.core.model import BRIDGE
from mcpbridge.core.tool_calls_and_results import ToolCall
from mcpbridge.protocol.meta import CONTEXT, QUERY, RUN, TURN, WHOLE

_HERE = ("localhost", "127.0.0.1", "::1")
_ENDPOINT = "/mcp"

_PATIENCE, _SILENCE = 30.0, 300.0
"""Seconds to connect in, and between two signs of life of an answer: as the SDK has them."""

_START = "Is the bridge running there? `mcpbridge serve --http HOST:PORT` starts one."
_PATH = "Look at the URL: a bridge is at `/mcp`, one of its servers or profiles at `/mcp/NAME`."


class Endpoint:
    """A transport: streamable HTTP to one URL. For one connection, as a client is."""

    def __init__(self, url: str, token: str = "") -> None:
        """`token` is sent along, if it is not empty.

        Raises:
            ConfigError: the token cannot be in a header.
        """
        if not (token.isascii() and token.isprintable()):
            raise ConfigError("`token` has characters that no header can have: only printable ones of ASCII can be")
        self.url, self._token = url, token
        self._status: int | None = None  # of the last answer
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Any:
        import httpx2

        async def note(response: httpx2.Response) -> None:
            self._status = response.status_code

        http = httpx2.AsyncClient(
            headers={"authorization": f"Bearer {self._token}"} if self._token else None,
            timeout=httpx2.Timeout(_PATIENCE, read=_SILENCE),
            # A bridge on this machine, and a token for it, are no business of a proxy.
            trust_env=urlsplit(self.url).hostname not in _HERE,
            event_hooks={"response": [note]},
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(http)
            streams = await stack.enter_async_context(streamable_http_client(self.url, http_client=http))
            self._open = stack.pop_all()
        return streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._open.__aexit__(kind, error, trace)

    def problem(self, error: BaseException) -> tuple[NotConnected, BaseException] | None:
        """What an error that came from here means, and its part that says so; None: it is no matter of this."""
        import httpx2

        parts = list(leaves(error))
        if not all(isinstance(part, (MCPError, httpx2.HTTPError, httpx2.InvalidURL, OSError)) for part in parts):
            return None
        for part in parts:
            if isinstance(part, (httpx2.HTTPError, httpx2.InvalidURL, OSError)):
                return self._unreached(part, isinstance(part, (httpx2.TimeoutException, TimeoutError))), part
        return self._answered(), parts[0]

    def _unreached(self, error: BaseException, is_late: bool) -> NotConnected:
        import httpx2

        if is_late:
            why = "no answer in time"
        elif isinstance(error, httpx2.InvalidURL):
            why = "it is no valid URL"
        elif isinstance(error, httpx2.ConnectError):
            why = "no connection: nobody answers there"
        else:
            why = "the connection broke"
        return NotConnected(plain(self.url), why, _START)

    def _answered(self) -> NotConnected:
        """What stands in the answers is the peer's: only their status is told."""
        status = self._status
        if status == 401 and self._token:
            why, advice = "it refuses this token", "Is it one of the bridge's `http.tokens`, and still valid?"
        elif status == 401:
            yours = "`mcpbridge status` names the file with that of your own bridge; else whoever runs it has one"
            why, advice = "it wants a token", f"Give `token=`: {yours}."
        elif status == 403:
            why, advice = "it lets this client not in (HTTP 403)", "Whoever runs it can say what is missing."
        elif status is not None and status >= 500:
            why, advice = f"it fails (HTTP {status})", "Its log says more; try again later."
        elif status is not None and 300 <= status < 400:
            why, advice = f"it refers elsewhere, where no client follows (HTTP {status})", _PATH
        elif status is None:
            why, advice = "no answer in time", _START
        else:
            why, advice = f"what answers there is no MCP server for this client (HTTP {status})", _PATH
        return NotConnected(plain(self.url), why, advice, status=status)


def endpoint_of(url: str) -> str:
    """The URL, which means the endpoint of all servers where it has no path.

    Raises:
        ConfigError: it is no URL of HTTP.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts._replace(path=_ENDPOINT).geturl() if parts.path in ("", "/") else url
    except ValueError:  # its port is no number, or larger than any
        pass
    raise ConfigError(
        f"'{plain(url)}' is no address of a bridge: it begins with http:// or https:// and a host, perhaps with "
        "the number of a port"
    )


def plain(url: str) -> str:
    """Without what may be a secret."""
    scheme, mark, rest = url.rpartition("://")
    authority, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"


def leaves(error: BaseException) -> Iterator[BaseException]:
    """An error, or in its place those that a group holds, and the groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(part)
    else:
        yield error


_AT_ONCE = 64
"""Calls of one turn that are made at a time; how many of them run is the bridge's business."""

_FINDERS = {*UNLISTED, "recall"}
"""Tools of the bridge that are listed beside those that were found."""

Detail = Literal["names", "signatures", "schemas"]


@dataclass
class Client(mcp.Client):
    """`async with Client("http://127.0.0.1:8808", token=TOKEN) as client`.

    A URL without a path means the endpoint `/mcp`; `/mcp/NAME` is that of one server or profile. All else is as
    `mcp.Client` has it: what it can be connected to, its callbacks, its methods, `mode`, `extensions`.

    Cancelling a method cancels its requests at the server, where a tool that was called may have had an effect by then.
    """

    token: str = field(default="", kw_only=True, repr=False)
    """Sent as `Authorization: Bearer …`; only with a URL."""

    _endpoint: Endpoint | None = field(default=None, init=False, repr=False)
    _listed: set[str] = field(default_factory=set[str], init=False, repr=False)
    _unlisted: set[str] = field(default_factory=set[str], init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.server, str):
            url = endpoint_of(self.server)
            if self.cache is not None and self.cache.target_id is None:
                self.cache = replace(self.cache, target_id=plain(url))
            self.server = self._endpoint = Endpoint(url, self.token)
            super().__post_init__()
            self.server = url
        elif self.token:
            raise ConfigError("`token` goes with a URL: it is a header of HTTP requests")
        else:
            super().__post_init__()

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            NotConnected: with a URL: nobody answers there, the token is refused, or it is no MCP server.
        """
        try:
            await super().__aenter__()
        except Exception as error:
            self._explain(error)
            raise
        self._check_listed_only()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Disconnect. What the block raised is passed on unchanged: task groups of the SDK would wrap it.

        Raises:
            NotConnected: the connection broke meanwhile, and what ran in the block was cancelled for that.
        """
        try:
            await super().__aexit__(exc_type, exc_val, exc_tb)
        except BaseException as ended:
            if exc_val is None or exc_val not in leaves(ended):
                self._explain(ended)
                raise

    def _explain(self, error: BaseException) -> None:
        """Raise what says it in one sentence, if there is such a thing."""
        if self._endpoint is not None and (problem := self._endpoint.problem(error)) is not None:
            explained, cause = problem
            raise explained from cause

    def _check_listed_only(self) -> None:
        """See to it that results are checked against the schema of their tool where a list has one.

        Bridges have more tools than they list, and take ids for names. The SDK would ask for the list after each
        result of such a tool, and then warn that it could check nothing.
        """
        check = self.session.validate_tool_result

        async def check_listed(name: str, result: CallToolResult) -> None:
            if name not in self._listed and name not in self._unlisted and not name.startswith(f"{BRIDGE}/"):
                await self.list_tools()
                if name not in self._listed:
                    self._unlisted.add(name)
            if name in self._listed:
                await check(name, result)

        self.session.validate_tool_result = check_listed

    # -- as every client has it, and more

    async def list_tools(
        self,
        *,
        cursor: str | None = None,
        meta: RequestParamsMeta | None = None,
        cache_mode: CacheMode = "use",
        query: str = "",
        limit: int | None = None,
    ) -> ListToolsResult:
        """List tools. `query`: what they are for, in a few words; a bridge then lists those for it alone.

        `limit`: at most so many, of those for a query the best; of others the first of the page.
        """
        if query:
            meta = _with(meta, {QUERY: query if limit is None else {"query": query, "limit": limit}})
            cache_mode = "bypass"  # the next list without a query is another one
        listed = await super().list_tools(cursor=cursor, meta=meta, cache_mode=cache_mode)
        names = {tool.name for tool in listed.tools}
        is_whole = cursor is None and listed.next_cursor is None
        self._listed = names if is_whole else self._listed | names  # the SDK keeps their schemas by the same rule
        if limit is None:
            return listed
        found = [tool for tool in listed.tools if not query or tool.name not in _FINDERS]
        return listed.model_copy(update={"tools": found[:limit]})

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: float | None = None,
        progress_callback: ProgressFnT | None = None,
        *,
        input_responses: InputResponses | None = None,
        request_state: str | None = None,
        meta: RequestParamsMeta | None = None,
        run: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        whole: bool = False,
    ) -> CallToolResult:
        """Call a tool, by its wire name or its id (`server/tool`), listed or not.

        `run`, `tenant`, `metadata`: the context of the call, as hooks, rules and local tools see it (`CallContext`).
        `whole`: the result is not shortened, however large it is. All of these mean something to bridges alone.
        """
        context: dict[str, Any] = {}
        if run:
            context[RUN] = run
        if tenant or metadata:
            context[CONTEXT] = {"tenant": tenant, "metadata": dict(metadata or {})}
        if whole:
            context[WHOLE] = "whole"
        return await super().call_tool(
            name,
            arguments,
            read_timeout_seconds,
            progress_callback,
            input_responses=input_responses,
            request_state=request_state,
            meta=_with(meta, context) if context else meta,
        )

    # -- what bridges have

    async def call_tools(
        self,
        calls: Sequence[ToolCall[Mapping[str, Any], Any] | Mapping[str, Any]],
        *,
        run: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        whole: bool = False,
    ) -> list[CallToolResult]:
        """Call several tools as one turn of a model, side by side; the results come in the order of the calls.

        Each is a `ToolCall`, or `{"name": …, "arguments": …}`. One that fails is a result with `is_error`, and no
        concern of the others. The rest is as for `call_tool`.
        """
        turn, at_once = new_run(), anyio.CapacityLimiter(_AT_ONCE)
        results: dict[int, CallToolResult] = {}

        async def make(number: int, name: str, arguments: dict[str, Any]) -> None:
            meta = cast("RequestParamsMeta", {TURN: turn})
            async with at_once:
                try:
                    results[number] = await self.call_tool(
                        name, arguments, meta=meta, run=run, tenant=tenant, metadata=metadata, whole=whole
                    )
                except (MCPError, TimeoutError, RuntimeError, ValueError) as error:  # the last two: what the SDK checks
                    text = str(error) or "no answer in time"
                    results[number] = CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)

        async with anyio.create_task_group() as tasks:
            for number, call in enumerate(calls):
                tasks.start_soon(make, number, *_read(call))
        return [results[number] for number in range(len(calls))]

    async def find_tools(self, query: str, *, limit: int | None = None, detail: Detail = "signatures") -> str:
        """Which tools do this, as text for a model: names, signatures or schemas. For lists: `list_tools(query=…)`.

        Raises:
            NoBridge: this is no bridge, or it has no such tool for this client.
            CallFailed: it did not like the query; says why.
        """
        asked = {"query": query, "detail": detail, **({"limit": limit} if limit is not None else {})}
        return _checked_text(await self._own("find_tools", asked))

    async def describe_tools(self, *names: str) -> str:
        """All about these tools, as text for a model: every parameter, the whole description, what they return.

        Raises:
            NoBridge: this is no bridge, or it has no such tool for this client.
            CallFailed: none of them is known; names those that may be meant.
        """
        return _checked_text(await self._own("describe_tools", {"names": list(names)}))

    async def recall(self, handle: str | Sequence[str] = (), **query: Any) -> CallToolResult:
        """Query a kept result by its handle, as the tool `recall` does (`path`, `where`, `select`, `sort`, `lines`, …).

        Without a handle it lists what is kept. What is wrong with a query is a result with `is_error`. The whole of a
        result: `read_resource(f"mcpbridge://results/{handle}")`.

        Raises:
            NoBridge: this is no bridge, or it keeps no results.
        """
        handles = handle if isinstance(handle, str) else list(handle)
        return await self._own("recall", {**({"handle": handles} if handles else {}), **query})

    async def _own(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool of the bridge itself, by its id: servers may have tools of the same name."""
        name = f"{BRIDGE}/{tool}"
        try:
            result = await self.call_tool(name, arguments)
        except MCPError as error:
            if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                raise self._lacks(tool) from error
            raise
        if result.is_error and name in _text_of(result):  # servers that tell of an unknown tool in a result
            raise self._lacks(tool)
        return result

    def _lacks(self, tool: str) -> NoBridge:
        who = self.server_info.name if self.server_info is not None else "the server"
        return NoBridge(tool, who)


def _read(call: "ToolCall[Mapping[str, Any], Any] | Mapping[str, Any]") -> tuple[str, dict[str, Any]]:
    if isinstance(call, ToolCall):
        return call.name, dict(call.arguments)
    return str(call["name"]), dict(call.get("arguments") or {})


def _with(meta: RequestParamsMeta | None, members: Mapping[str, Any]) -> RequestParamsMeta:
    return cast("RequestParamsMeta", {**(meta or {}), **members})


def _checked_text(result: CallToolResult) -> str:
    text = _text_of(result)
    if result.is_error:
        raise CallFailed(text)
    return text


def _text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))
