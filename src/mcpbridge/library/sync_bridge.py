"""`SyncBridge`: the bridge for programs that are not asynchronous: scripts, notebooks, threads.

It owns a thread with an event loop, in which a `Bridge` runs; each method here has its work done there and waits for
it. The methods, their parameters and results are those of `Bridge`, whose docstrings say more; a test compares them.
"""

import os
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import anyio

from mcpbridge.base.errors import BridgeClosed
from mcpbridge.config.load import Reloaded
from mcpbridge.config.schema import Settings
from mcpbridge.core.events import Event
from mcpbridge.core.tool_calls import CallResult, ToolCall
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.client.sync_loop import LoopThread

if TYPE_CHECKING:
    from mcpbridge.core.tool_calls import PausedCall
    from mcpbridge.downstream.elicitation.program import Answerer
    from mcpbridge.engine.cassettes.cassette import Cassette
    from mcpbridge.engine.registry.registry import Keep
    from mcpbridge.engine.session_tools import Resolver
    from mcpbridge.library.agent.models.model import Model
    from mcpbridge.library.agent.options import Prepare, StopWhen, Tools, ToolsOf
    from mcpbridge.library.calls.call import Progress
    from mcpbridge.library.calls.calls import OnCall, OnResult
    from mcpbridge.library.calls.run_events import RunEvent
    from mcpbridge.library.client.open_options import Config
    from mcpbridge.library.client.sync_loop import SyncRun
    from mcpbridge.library.define_tools.info import ToolInfo
    from mcpbridge.library.llm_formats.messages import Format
    from mcpbridge.library.llm_formats.offer import Offered, Strictness
    from mcpbridge.pipeline.approvals.approvers import ApprovalHandler
    from mcpbridge.pipeline.approvals.pending import Pending
    from mcpbridge.pipeline.approvals.request import Scope
    from mcpbridge.pipeline.hooks.call import Hook
    from mcpbridge.tools.python.run_context.context import Init


R = TypeVar("R")


class SyncBridge:
    """One bridge: `with SyncBridge.open("servers.toml") as bridge`, or `close` it later. Any thread may use it.

    Where it is closed neither way, that happens when nobody holds it any more, or when the interpreter exits. Callbacks
    that are no coroutines (tools, approvers) run on threads; `on_progress` and hooks are called in the bridge's own.
    Ctrl-C while it waits cancels what it waits for; it can be used on.
    """

    def __init__(self, make: Callable[[], Bridge]) -> None:
        """`make` is called in the bridge's thread; what it returns runs from here on. Raises what that raises."""
        self._thread = LoopThread(make)
        self._end = weakref.finalize(self, self._thread.end)
        self._end.atexit = False  # the thread sees to that, earlier

    @classmethod
    def open(
        cls,
        config: "Config" = None,
        *,
        tools: Sequence[Any] = (),
        approver: "ApprovalHandler | None" = None,
        hooks: "Sequence[Hook]" = (),
        resolver: "Resolver | None" = None,
        dependencies: Mapping[str, Any] | None = None,
        shared: Any = None,
        init_shared: "Init | None" = None,
        on_elicitation: "Answerer | None" = None,
        on_sampling: "Answerer | None" = None,
        project: str | os.PathLike[str] | None = None,
        cassette: "Cassette | str | os.PathLike[str] | None" = None,
        remember: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """A bridge of this configuration, which runs from here on; see `Bridge.open`.

        Raises:
            ConfigError: the configuration cannot be read or is wrong, or a tool cannot be one; says where and why.
        """
        return cls(
            lambda: Bridge.open(
                config,
                tools=tools,
                approver=approver,
                hooks=hooks,
                resolver=resolver,
                dependencies=dependencies,
                shared=shared,
                init_shared=init_shared,
                on_elicitation=on_elicitation,
                on_sampling=on_sampling,
                project=project,
                cassette=cassette,
                remember=remember,
                environ=environ,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every upstream and its processes, and wait for that. Calls under way are cancelled. Again: nothing."""
        self._end.detach()
        self._thread.close()

    # -- what there is

    def list_tools(
        self,
        query: str | None = None,
        *,
        limit: int | None = None,
        only: Sequence[str] = (),
        user: str = "",
        tenant: str = "",
        run: str = "",
    ) -> "list[ToolInfo]":
        """The tools that may be called, or those that fit a query, best first."""
        return self._wait(self._bridge.list_tools(query, limit=limit, only=only, user=user, tenant=tenant, run=run))

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        run: str = "",
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        whole: bool = False,
        on_progress: "Progress | None" = None,
    ) -> CallResult[Any]:
        """Call a tool by its id (`server/tool`) or name, and wait for what comes of it."""
        return self._wait(
            self._bridge.call_tool(
                name,
                arguments,
                run=run,
                user=user,
                tenant=tenant,
                metadata=metadata,
                whole=whole,
                on_progress=on_progress,
            )
        )

    def call(
        self,
        call: ToolCall[Any, R],
        *,
        run: str = "",
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        whole: bool | None = None,
        on_progress: "Progress | None" = None,
    ) -> CallResult[R]:
        """Make a call that a tool of the program made (`add.call(1, 2)`), or a model wanted."""
        return self._wait(
            self._bridge.call(
                call, run=run, user=user, tenant=tenant, metadata=metadata, whole=whole, on_progress=on_progress
            )
        )

    def read_resource(self, uri: str, *, user: str = "") -> dict[str, Any]:
        """What a resource holds: `contents`, as MCP has them."""
        return self._wait(self._bridge.read_resource(uri, user=user))

    def list_resources(self, *, user: str = "") -> list[dict[str, Any]]:
        """The resources of all servers, as MCP has them."""
        return self._wait(self._bridge.list_resources(user=user))

    def list_prompts(self, *, user: str = "") -> list[dict[str, Any]]:
        """The prompts of all servers, as MCP has them."""
        return self._wait(self._bridge.list_prompts(user=user))

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None, *, user: str = "") -> dict[str, Any]:
        """A prompt: `messages`, as MCP has them."""
        return self._wait(self._bridge.get_prompt(name, arguments, user=user))

    def recall(self, handle: str | Sequence[str] = (), *, user: str = "", **query: Any) -> CallResult[Any]:
        """Query a kept result by its handle, as the tool `recall` does; without a handle it lists what is kept."""
        return self._wait(self._bridge.recall(handle, user=user, **query))

    def events(self, *, limit: int = 1000, timeout: float | None = None) -> Iterator[Event]:
        """What happens from now on; it ends with the bridge, or when nothing happened for `timeout` seconds."""
        heard = self._thread.do(lambda: self._bridge.events(limit=limit))

        async def following() -> Event | None:
            with anyio.move_on_after(timeout):
                return await anext(heard, None)

        def events() -> Iterator[Event]:
            with suppress(BridgeClosed):
                while (event := self._wait(following())) is not None:
                    yield event

        return events()

    # -- tools and servers that come and go

    def add_tool(self, tool: Any) -> None:
        """Offer one more tool of the program: a function, or what `tool`, `ToolBuilder`, `adapt_function` make."""
        return self._wait(self._bridge.add_tool(tool))

    def replace_tool(self, tool: Any) -> None:
        """Offer a tool in the place of the program's tool of the same name, if there is one."""
        return self._wait(self._bridge.replace_tool(tool))

    def remove_tool(self, name: str) -> None:
        """Take a tool of the program out; clients are told."""
        return self._wait(self._bridge.remove_tool(name))

    def add_server(self, name: str, table: Mapping[str, Any], *, keep: "Keep" = False) -> "Reloaded":
        """Connect to one more server: `table` is what stands below `[servers.NAME]` in the configuration."""
        return self._wait(self._bridge.add_server(name, table, keep=keep))

    def replace_server(self, name: str, table: Mapping[str, Any], *, keep: "Keep" = False) -> "Reloaded":
        """Connect to a server in the place of the one of this name, if there is one."""
        return self._wait(self._bridge.replace_server(name, table, keep=keep))

    def remove_server(self, name: str, *, keep: "Keep" = False) -> "Reloaded":
        """Part with a server; its processes end, calls under way end as they began."""
        return self._wait(self._bridge.remove_server(name, keep=keep))

    # -- models

    def tools_for(
        self,
        api: "Format",
        *,
        tools: "Tools" = None,
        strict: "Strictness" = False,
        limit: int | None = None,
        user: str = "",
        tenant: str = "",
        run: str = "",
    ) -> "Offered":
        """The tools in the format of a model's API, to be handed to it as they are."""
        return self._wait(
            self._bridge.tools_for(api, tools=tools, strict=strict, limit=limit, user=user, tenant=tenant, run=run)
        )

    def calls_from(self, response: Any, offered: "Offered | None" = None) -> list[ToolCall[Any, Any]]:
        """The calls that a model's response wants made: an object of an official package, or as JSON values."""
        return self._thread.do(lambda: self._bridge.calls_from(response, offered))

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """The JSON Schema of a tool's arguments, by its name or id; None: there is no such tool."""
        return self._thread.do(lambda: self._bridge.schema_of(name))

    def results_for(self, api: "Format", results: Sequence[CallResult[Any]]) -> list[dict[str, Any]]:
        """The messages that give results back to the model, for the end of its history."""
        return self._thread.do(lambda: self._bridge.results_for(api, results))

    def run_tool_calls(
        self,
        calls: Sequence[ToolCall[Any, Any]],
        *,
        run: str = "",
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        approvals: Literal["pause", "wait"] = "wait",
        on_call: "OnCall | None" = None,
        on_result: "OnResult | None" = None,
        on_event: "Callable[[RunEvent], object] | None" = None,
    ) -> list[CallResult[Any]]:
        """Make the calls of one turn of a model, side by side, and give the results in their order."""
        return self._wait(
            self._bridge.run_tool_calls(
                calls,
                run=run,
                user=user,
                tenant=tenant,
                metadata=metadata,
                approvals=approvals,
                on_call=on_call,
                on_result=on_result,
                on_event=on_event,
            )
        )

    def run(
        self,
        model: "Model",
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: "Tools | ToolsOf" = None,
        max_rounds: int = 10,
        stop_when: "StopWhen | None" = None,
        prepare: "Prepare | None" = None,
        resolver: "Resolver | None" = None,
        run: str = "",
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        strict: "Strictness" = False,
        approvals: Literal["pause", "wait"] = "pause",
        on_call: "OnCall | None" = None,
        on_result: "OnResult | None" = None,
    ) -> "SyncRun":
        """Let a model work with the tools until it is done: `outcome = bridge.run(model, messages).outcome`.

        Iterated (`for event in bridge.run(…)`), it tells of what happens meanwhile. The model and all functions given
        here are called in the bridge's thread.
        """
        from mcpbridge.library.client.sync_loop import SyncRun

        begun = self._thread.do(
            lambda: self._bridge.run(
                model,
                messages,
                tools=tools,
                max_rounds=max_rounds,
                stop_when=stop_when,
                prepare=prepare,
                resolver=resolver,
                run=run,
                user=user,
                tenant=tenant,
                metadata=metadata,
                strict=strict,
                approvals=approvals,
                on_call=on_call,
                on_result=on_result,
            )
        )
        return SyncRun(self._thread, begun)

    # -- what handlers keep

    def get_context(self, run: str, tool: str = "", *, kind: Any = None, user: str = "", tenant: str = "") -> Any:
        """What a tool keeps of a run, as JSON; without `tool`, what all share. None: nothing yet."""
        return self._wait(self._bridge.get_context(run, tool, kind=kind, user=user, tenant=tenant))

    def set_context(self, run: str, value: Any, tool: str = "", *, user: str = "", tenant: str = "") -> None:
        """Set what a tool keeps of a run, or without `tool` what all tools share; calls under way see it at once."""
        return self._wait(self._bridge.set_context(run, value, tool, user=user, tenant=tenant))

    # -- paused calls

    def paused_calls(self, *, run: str = "", user: str = "") -> "list[PausedCall]":
        """The calls that wait for an answer from outside, oldest first; `run`: of this run only."""
        return self._wait(self._bridge.paused_calls(run=run, user=user))

    def resume(self, id: str, answer: Any, *, user: str = "") -> CallResult[Any]:  # noqa: A002 - what it is
        """Answer a paused call; returns what came of it, which a run that goes on finds by itself."""
        return self._wait(self._bridge.resume(id, answer, user=user))

    def cancel_paused(self, id: str, reason: str = "", *, user: str = "") -> CallResult[Any]:  # noqa: A002
        """Give a paused call up: its result is an error that says that it was declined, and why."""
        return self._wait(self._bridge.cancel_paused(id, reason, user=user))

    # -- approvals

    def pending_approvals(self) -> "list[Pending]":
        """The calls that wait for somebody to agree, oldest first."""
        return self._wait(self._bridge.pending_approvals())

    def approve(self, id: str, *, scope: "Scope" = "once", by: str = "program") -> "Pending":  # noqa: A002 - what it is
        """Agree to a call that waits."""
        return self._wait(self._bridge.approve(id, scope=scope, by=by))

    def deny(self, id: str, *, by: str = "program") -> "Pending":  # noqa: A002
        """Refuse a call that waits."""
        return self._wait(self._bridge.deny(id, by=by))

    # -- the engine

    def settled(self, timeout: float) -> bool:
        """Wait until every upstream is ready or has failed once, at most `timeout` seconds. False when time was up."""
        return self._wait(self._bridge.settled(timeout))

    def status(self) -> dict[str, Any]:
        """The state of everything, as JSON values."""
        return self._thread.do(self._bridge.status)

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        run: str = "",
    ) -> dict[str, Any]:
        """Make a request of MCP as a client in this process; the same way as every other client's."""
        return self._wait(self._bridge.request(method, params, user=user, tenant=tenant, metadata=metadata, run=run))

    def reload(self, settings: Settings) -> Reloaded:
        """Go on with these settings: what they change is changed, and nothing else is disturbed."""
        return self._wait(self._bridge.reload(settings))

    def resolve_again(self, session: str = "") -> None:
        """Ask the resolver anew what tools there are for this session (its id), or for all; clients are told."""
        return self._thread.do(lambda: self._bridge.resolve_again(session))

    def clear_cache(self, *, server: str = "", tool: str = "") -> int:
        """Forget kept results: all, those of one server, or of tools whose id matches a glob; says how many."""
        return self._thread.do(lambda: self._bridge.clear_cache(server=server, tool=tool))

    def cache_status(self) -> dict[str, Any]:
        """What is kept of results and how it served since the start, as JSON values; sizes in bytes."""
        return self._thread.do(self._bridge.cache_status)

    @property
    def _bridge(self) -> Bridge:
        return self._thread.held

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        return self._thread.wait(work)
