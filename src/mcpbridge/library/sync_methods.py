"""The methods of `SyncBridge` that differ from those of `Bridge` only in that they wait.

This module is written by `scripts/sync_methods.py`; `make docs` writes it anew. `Bridge` says more of each method.
"""

# ruff: noqa: A002 - the parameters are those of `Bridge`

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mcpbridge.config.needs_restart import Reloaded
from mcpbridge.config.schema import Settings
from mcpbridge.core.tool_calls_and_results import CallResult, ToolCall
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.client.sync_loop import LoopThread
from mcpbridge.library.tool_methods import R

if TYPE_CHECKING:
    from mcpbridge.core.tool_calls_and_results import PausedCall
    from mcpbridge.engine.registry.registry import Keep
    from mcpbridge.library.agent.options import Tools
    from mcpbridge.library.calls.call import Progress
    from mcpbridge.library.calls.calls import OnCall, OnResult
    from mcpbridge.library.calls.run_events import RunEvent
    from mcpbridge.library.define_tools.info import ToolInfo
    from mcpbridge.library.llm_formats.messages import Format
    from mcpbridge.library.llm_formats.tool_definitions import Offered, Strictness
    from mcpbridge.pipeline.approvals.pending import Pending
    from mcpbridge.pipeline.approvals.request import Scope
    from mcpbridge.pipeline.roles.break_glass import RoleGrant
    from mcpbridge.storage.quotas import Used


class SyncMethods:
    """The methods of a bridge that lives in the loop of another thread."""

    _thread: LoopThread[Bridge]

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
        """The tools that may be called, in the order of the catalog, or those that fit a query, best first."""
        return self._thread.wait(
            self._thread.held.list_tools(query, limit=limit, only=only, user=user, tenant=tenant, run=run)
        )

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
        return self._thread.wait(
            self._thread.held.call_tool(
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
        """Make a call that a tool of the program made (`add.call(1, 2)`), or a model wanted; see `call_tool`."""
        return self._thread.wait(
            self._thread.held.call(
                call, run=run, user=user, tenant=tenant, metadata=metadata, whole=whole, on_progress=on_progress
            )
        )

    def read_resource(self, uri: str, *, user: str = "") -> dict[str, Any]:
        """What a resource holds: `contents`, as MCP has them. Kept results are read so too: `mcpbridge://results/…`."""
        return self._thread.wait(self._thread.held.read_resource(uri, user=user))

    def list_resources(self, *, user: str = "") -> list[dict[str, Any]]:
        """The resources of all servers, as MCP has them. Cancelling is safe: it only reads."""
        return self._thread.wait(self._thread.held.list_resources(user=user))

    def list_prompts(self, *, user: str = "") -> list[dict[str, Any]]:
        """The prompts of all servers, as MCP has them. Cancelling is safe: it only reads."""
        return self._thread.wait(self._thread.held.list_prompts(user=user))

    def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None, *, user: str = "") -> dict[str, Any]:
        """A prompt, by the name that `list_prompts` shows or as `server/prompt`: `messages`, as MCP has them."""
        return self._thread.wait(self._thread.held.get_prompt(name, arguments, user=user))

    def recall(self, handle: str | Sequence[str] = (), *, user: str = "", **query: Any) -> CallResult[Any]:
        """Query a kept result by its handle, as the tool `recall` does (`path`, `where`, `select`, `sort` …)."""
        return self._thread.wait(self._thread.held.recall(handle, user=user, **query))

    def add_tool(self, tool: Any) -> None:
        """Offer one more tool of the program: a function, or what `tool`, `ToolBuilder`, `adapt_function` make."""
        return self._thread.wait(self._thread.held.add_tool(tool))

    def replace_tool(self, tool: Any) -> None:
        """Offer a tool in the place of the program's tool of the same name, if there is one."""
        return self._thread.wait(self._thread.held.replace_tool(tool))

    def remove_tool(self, name: str) -> None:
        """Take a tool of the program out; clients are notified. Calls under way end as they began."""
        return self._thread.wait(self._thread.held.remove_tool(name))

    def add_server(self, name: str, table: Mapping[str, Any], *, keep: "Keep" = False) -> "Reloaded":
        """Connect to one more server: `table` is what is below `[servers.NAME]` in the configuration."""
        return self._thread.wait(self._thread.held.add_server(name, table, keep=keep))

    def replace_server(self, name: str, table: Mapping[str, Any], *, keep: "Keep" = False) -> "Reloaded":
        """Connect to a server in the place of the one of this name, if there is one; see `add_server`."""
        return self._thread.wait(self._thread.held.replace_server(name, table, keep=keep))

    def remove_server(self, name: str, *, keep: "Keep" = False) -> "Reloaded":
        """Part with a server; its processes end, calls under way end as they began. See `add_server`."""
        return self._thread.wait(self._thread.held.remove_server(name, keep=keep))

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
        return self._thread.wait(
            self._thread.held.tools_for(api, tools=tools, strict=strict, limit=limit, user=user, tenant=tenant, run=run)
        )

    def calls_from(self, response: Any, offered: "Offered | None" = None) -> list[ToolCall[Any, Any]]:
        """The calls that a model's response wants made: an object of an official package, or as JSON values."""
        return self._thread.do(lambda: self._thread.held.calls_from(response, offered))

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """The JSON Schema of a tool's arguments, by its name or id; None: there is no such tool."""
        return self._thread.do(lambda: self._thread.held.schema_of(name))

    def results_for(self, api: "Format", results: Sequence[CallResult[Any]]) -> list[dict[str, Any]]:
        """The messages that give results back to the model, for the end of its history."""
        return self._thread.do(lambda: self._thread.held.results_for(api, results))

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
        return self._thread.wait(
            self._thread.held.run_tool_calls(
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

    def get_context(self, run: str, tool: str = "", *, kind: Any = None, user: str = "", tenant: str = "") -> Any:
        """What a tool keeps of a run (`Context.value`), as JSON; without `tool`, what all share. None: nothing yet."""
        return self._thread.wait(self._thread.held.get_context(run, tool, kind=kind, user=user, tenant=tenant))

    def set_context(self, run: str, value: Any, tool: str = "", *, user: str = "", tenant: str = "") -> None:
        """Set what a tool keeps of a run, or without `tool` what all tools share; calls under way see it at once."""
        return self._thread.wait(self._thread.held.set_context(run, value, tool, user=user, tenant=tenant))

    def paused_calls(self, *, run: str = "", user: str = "") -> "list[PausedCall]":
        """The calls that wait for an answer from outside, oldest first; `run`: of this run only."""
        return self._thread.wait(self._thread.held.paused_calls(run=run, user=user))

    def resume(self, id: str, answer: Any, *, user: str = "") -> CallResult[Any]:
        """Answer a paused call; returns what came of it, which a run that continues finds by itself."""
        return self._thread.wait(self._thread.held.resume(id, answer, user=user))

    def cancel_paused(self, id: str, reason: str = "", *, user: str = "") -> CallResult[Any]:
        """Give a paused call up: its result is an error that says that it was declined, and why. Raises as `resume`."""
        return self._thread.wait(self._thread.held.cancel_paused(id, reason, user=user))

    def pending_approvals(self) -> "list[Pending]":
        """The calls that wait for somebody to agree, oldest first; also those that gave up and may be made again."""
        return self._thread.wait(self._thread.held.pending_approvals())

    def approve(self, id: str, *, scope: "Scope" = "once", by: str = "program") -> "Pending":
        """Agree to a call that waits. `scope`: this call `once`, or the same call again in this `session`."""
        return self._thread.wait(self._thread.held.approve(id, scope=scope, by=by))

    def deny(self, id: str, *, scope: "Scope" = "once", by: str = "program") -> "Pending":
        """Refuse a call that waits; raises as `approve`. Cancelling this refuses it all the same, once it has begun."""
        return self._thread.wait(self._thread.held.deny(id, scope=scope, by=by))

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
        """Make a request as a client in this process; the same way as every other client's."""
        return self._thread.wait(
            self._thread.held.request(method, params, user=user, tenant=tenant, metadata=metadata, run=run)
        )

    def settled(self, timeout: float) -> bool:
        """Wait until every upstream is ready or has failed once, at most `timeout` seconds. False when time was up."""
        return self._thread.wait(self._thread.held.settled(timeout))

    def status(self) -> dict[str, Any]:
        """The state of everything, as JSON values."""
        return self._thread.do(self._thread.held.status)

    def used_quotas(self, now: float) -> "Sequence[Used]":
        """What is used of the quotas of roles; nothing where no role has one. Cancelling is safe."""
        return self._thread.wait(self._thread.held.used_quotas(now))

    def break_glass_grants(self) -> "Sequence[RoleGrant]":
        """The roles that people have taken for a time and have still, the oldest first."""
        return self._thread.do(self._thread.held.break_glass_grants)

    def reload(self, settings: Settings) -> Reloaded:
        """Continue with these settings: what they change is changed, and nothing else is disturbed."""
        return self._thread.wait(self._thread.held.reload(settings))

    def review_pins(self) -> None:
        """Decide anew what is listed of all servers: what was agreed to of them, or how that counts, has changed."""
        return self._thread.do(self._thread.held.review_pins)

    def resolve_again(self, session: str = "") -> None:
        """Ask the resolver anew what tools there are for this session (its id), or for all; clients are notified."""
        return self._thread.do(lambda: self._thread.held.resolve_again(session))

    def check_before_start(self, check: Callable[[str], None]) -> None:
        """Have `check` called with the name of a server before a program of it is started; it raises to refuse that."""
        return self._thread.do(lambda: self._thread.held.check_before_start(check))

    def clear_cache(self, *, server: str = "", tool: str = "") -> int:
        """Forget kept results: all, those of one server, or of tools whose id (`server/tool`) matches a glob."""
        return self._thread.do(lambda: self._thread.held.clear_cache(server=server, tool=tool))

    def cache_status(self) -> dict[str, Any]:
        """What is kept of results and how it served since the start, as JSON values; sizes in bytes."""
        return self._thread.do(self._thread.held.cache_status)
