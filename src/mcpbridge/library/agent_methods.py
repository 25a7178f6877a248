"""The methods of `Bridge` for agents: tools in the formats of model APIs, runs, context, paused calls and approvals.

A run itself is in `agent/run.py`, the formats are in `llm_formats/`, paused calls in `calls/paused_calls.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from mcpbridge.base.errors import ConfigError, UnknownName
from mcpbridge.core.context import new_run
from mcpbridge.core.model import TOOLS
from mcpbridge.core.tool_calls_and_results import CallResult, ToolCall
from mcpbridge.engine.requests import check_names
from mcpbridge.library.agent.defaults import MAX_ROUNDS
from mcpbridge.library.tool_methods import ToolMethods

if TYPE_CHECKING:  # loaded when they are used: the first answer of `serve` must come fast
    from mcpbridge.core.tool_calls_and_results import PausedCall
    from mcpbridge.engine.session_tools import Resolver, RunTools
    from mcpbridge.library.agent.models.model import Model
    from mcpbridge.library.agent.options import Prepare, StopWhen, Tools, ToolsOf
    from mcpbridge.library.agent.run import Run
    from mcpbridge.library.calls.calls import OnCall, OnResult
    from mcpbridge.library.calls.run_events import RunEvent
    from mcpbridge.library.define_tools.info import ToolInfo
    from mcpbridge.library.llm_formats.messages import Format
    from mcpbridge.library.llm_formats.tool_definitions import Offered, Strictness
    from mcpbridge.pipeline.approvals.pending import Pending
    from mcpbridge.pipeline.approvals.request import Scope


class AgentMethods(ToolMethods):
    """An engine, with what agents need beside its tools."""

    # -- tools for models

    async def tools_for(
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
        """The tools in the format of a model's API, to be handed to it as they are.

        `tools`: a text finds those that fit it; a sequence names them, by id, name or glob on ids, or gives tools of
        the program: one that the bridge has not is this run's alone, or without `run` added to the bridge. `strict`:
        where the API can hold its model to the schemas, it is asked to; what cannot be strict is sent as it is, and
        `Offered.not_strict` says why. The rest is as for `list_tools`. Cancelling is safe; tools of the program that
        were added by then stay.

        Raises:
            FormatError: there is no such format, or they are more tools than it takes.
            UnknownName: one that is named is not there.
        """
        from mcpbridge.library.llm_formats.format import offered

        return offered(api, await self._offerable(tools, limit, user, tenant, run), strict=strict)

    async def _offerable(self, tools: "Tools", limit: int | None, user: str, tenant: str, run: str) -> "list[ToolInfo]":
        if tools is None:
            return await self.list_tools(limit=limit, user=user, tenant=tenant, run=run)
        if isinstance(tools, str):
            return await self.list_tools(tools, limit=limit, user=user, tenant=tenant, run=run)
        only = [one if isinstance(one, str) else await self._offered(one, user, tenant, run) for one in tools]
        return await self.list_tools(limit=limit, only=only, user=user, tenant=tenant, run=run) if only else []

    async def _offered(self, tool: Any, user: str, tenant: str, run: str) -> str:
        """The id of a tool of the program, which the bridge has from here on, or this run alone."""
        from mcpbridge.library.define_tools.define import given_of

        name, given = given_of(tool)
        if name in self._program_tools:
            if self._tools.get(name) is not tool:
                hint = "`replace_tool` puts it in its place."
                raise ConfigError(f"there is another tool {name!r} already", key=name, hint=hint)
        elif run:
            self._run_tools.lend(user, run, self._tenant_of(user, tenant), name, tool)
        else:
            await self.add_tool(tool)
        return name if given.has_several else f"{TOOLS}/{name}"

    @cached_property
    def _run_tools(self) -> "RunTools":
        from mcpbridge.engine.session_tools import RunTools
        from mcpbridge.library.define_tools.define import backend_of

        return RunTools(self.backends.extra, self._program.session, backend_of)

    def calls_from(self, response: Any, offered: "Offered | None" = None) -> list[ToolCall[Any, Any]]:
        """The calls that a model's response wants made: an object of an official package, or as JSON values.

        `offered`: what `tools_for` gave; without it each name is looked for among all tools. Arguments that cannot be
        read are reported in `ToolCall.problem`, and answered with that.

        Raises:
            FormatError: it is of no format that is known.
        """
        from msgspec.structs import replace

        from mcpbridge.library.llm_formats.format import calls_from
        from mcpbridge.library.llm_formats.schemas.from_strict import unstricted

        if offered is not None:
            return calls_from(response, offered)
        calls = calls_from(response, names=self._names_in_formats())
        return [
            call
            if call.problem or (schema := self.schema_of(call.name)) is None
            else replace(call, arguments=unstricted(call.arguments, schema))
            for call in calls
        ]

    def _names_in_formats(self) -> dict[str, str]:
        """Wire names by the names that tools have in formats, where those are others."""
        from mcpbridge.library.llm_formats.messages import FORMATS, name_in

        wires = [*self.catalog.snapshot.tools, *self.catalog.snapshot.unlisted]
        return {name: wire for wire in wires for api in FORMATS if (name := name_in(api, wire)) != wire}

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """The JSON Schema of a tool's arguments, by its name or id; None: there is no such tool."""
        from mcpbridge.library.define_tools.info import info_of

        try:
            return info_of(self.catalog.snapshot.tool(name)).input_schema
        except UnknownName:
            return None

    def results_for(self, api: "Format", results: Sequence[CallResult[Any]]) -> list[dict[str, Any]]:
        """The messages that give results back to the model, for the end of its history.

        Raises:
            FormatError: there is no such format.
        """
        from mcpbridge.library.llm_formats.format import results_for

        return results_for(api, results)

    @property
    def calls_at_once(self) -> int:
        """Calls of one turn that may run or wait at a time."""
        return self.settings.calls.batch + self.settings.calls.max_queued

    # -- calls and runs

    async def run_tool_calls(
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
        """Make the calls of one turn of a model, side by side, and give the results in their order.

        One that fails (no such tool, bad arguments, a refusal, an error) is a result with `is_error` for the model, and
        no concern of the others. One that waits for an answer from outside is `paused`; with `approvals="pause"` so is
        one that somebody must agree to, and once they do it passes when it is made again. `on_call`, `on_result` are as
        for `run`; `on_event` hears of calls, progress and results as they happen. Cancelling this cancels all of them,
        at their servers too.

        Raises:
            CallbackFailed: a function of the program failed; all calls were made, and the error has their results.
        """
        from mcpbridge.library.calls.call import Asked
        from mcpbridge.library.calls.calls import CallingHooks, run_calls, unheard

        return await run_calls(
            self,
            calls,
            Asked(run, user, tenant, metadata),
            at_once=self.calls_at_once,
            pauses=approvals == "pause",
            hooks=CallingHooks(on_call, on_result),
            on_event=on_event or unheard,
        )

    def run(
        self,
        model: "Model",
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: "Tools | ToolsOf" = None,
        max_rounds: int = MAX_ROUNDS,
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
    ) -> "Run":
        """Let a model work with the tools until it is done: `outcome = await bridge.run(model, messages)`.

        Iterated (`async for event in bridge.run(…)`), it reports what happens meanwhile: text and arguments as they
        are written, calls, progress, results.

        Args:
            model: `OpenAIModel`, `AnthropicModel` and so on, or any async function of a `ModelRequest`.
            messages: the history so far, as the model's own API has it; or a text, which is what the user says first.
            tools: what it is offered, as for `tools_for`; tools of the program that the bridge has not are this run's
                alone. A function of the turn before computes all that for each round.
            max_rounds: how often the model is asked at most; left out, 10 times.
            stop_when: says of each turn whether to stop after it, though the model would continue.
            prepare: called before each round; may give another history, or other tools for this round.
            resolver: computes further tools for this run alone, once, in place of the bridge's own resolver.
            run: names the run; the same name continues one that was paused, in this process or another.
            user: as whom calls are made; `tenant` and `metadata` go along in their context.
            tenant: see `user`.
            metadata: see `user`.
            strict: as for `tools_for`.
            approvals: whether a call that somebody must agree to pauses the run, or waits, and the run with it.
            on_call: sees each call before it is made; may change it, answer it, or refuse it (`CallRefused`).
            on_result: sees each result; may give another in its place.

        Raises:
            TypeError: the model is none.
            ValueError: `max_rounds` is none.
            FormatError: the model speaks a format that there is not.
        """
        from mcpbridge.library.agent.run import run as begin
        from mcpbridge.library.define_tools.tool import Tool
        from mcpbridge.library.llm_formats.format import user_message
        from mcpbridge.library.llm_formats.messages import known_format

        if not callable(model):
            raise TypeError(
                f"a model is `OpenAIModel`, … or a function of a `ModelRequest`, not {type(model).__name__}"
            )
        if isinstance(messages, str):
            messages = [user_message(known_format(getattr(model, "format", "openai")), messages)]
        if isinstance(tools, Tool):  # it can be called, but says nothing of turns
            tools = [tools]
        run, tenant = run or new_run(), self._tenant_of(user, tenant)
        if resolver is not None:
            self._run_tools.resolve(user, run, tenant, resolver)
        return begin(
            self,
            model,
            messages,
            tools=tools,
            max_rounds=max_rounds,
            stop_when=stop_when,
            prepare=prepare,
            run=run,
            user=user,
            tenant=tenant,
            metadata=metadata,
            strict=strict,
            approvals=approvals,
            on_call=on_call,
            on_result=on_result,
        )

    # -- what handlers keep

    async def get_context(self, run: str, tool: str = "", *, kind: Any = None, user: str = "", tenant: str = "") -> Any:
        """What a tool keeps of a run (`Context.value`), as JSON; without `tool`, what all share. None: nothing yet.

        `kind`: the type to make of it. Cancelling is safe: it only reads.

        Raises:
            ConfigError: the run has no name. ContextRefused: what is kept is not of that type.
        """
        from mcpbridge.library.agent.options import get_context

        tenant = self._tenant_of(user, tenant)
        return await get_context(self.contexts, run, tool, kind=kind, user=user, tenant=tenant)

    async def set_context(self, run: str, value: Any, tool: str = "", *, user: str = "", tenant: str = "") -> None:
        """Set what a tool keeps of a run, or without `tool` what all tools share; calls under way see it at once.

        Set before the first call of the run, it takes the place of what an initialiser would make. Cancelling this may
        leave the value with calls under way and not kept for those that follow.

        Raises:
            ConfigError: the run has no name. UnknownName: there is no such tool.
            ContextRefused: it does not fit, or is too large.
        """
        from mcpbridge.library.agent.options import set_context

        tenant = self._tenant_of(user, tenant)
        await set_context(self.contexts, run, value, tool, user=user, tenant=tenant, unknown=self._unknown_of_all)

    def _unknown_of_all(self, tool: str) -> UnknownName | None:
        """Why no client can have a tool of this id; None: one may have it, or will once it has started."""
        self.catalog.flush()
        try:
            self.catalog.snapshot.tool(tool)
        except UnknownName as unknown:
            return None if self.backends.extra.are_any or self.backends.why_missing(tool) is not None else unknown
        return None

    # -- calls that wait for somebody

    async def paused_calls(self, *, run: str = "", user: str = "") -> "list[PausedCall]":
        """The calls that wait for an answer from outside, oldest first; `run`: of this run only.

        Cancelling is safe: it only reads.
        """
        check_names(run=run)
        return await self._paused.list(user, run=run)

    async def resume(self, id: str, answer: Any, *, user: str = "") -> CallResult[Any]:  # noqa: A002 - what it is
        """Answer a paused call; returns what came of it, which a run that continues finds by itself.

        Of several who answer one call, one is heard. Cancelling this leaves the call paused.

        Raises:
            UnknownName: there is no such call, or not any more.
            AlreadyResumed: it was answered before, or somebody else is answering it now.
            ArgumentsRefused: the answer does not fit its schema; the call stays paused.
            CallFailed: the tool is not there, or failed at the answer; the call stays paused.
        """
        return await self._paused.resume(id, answer, user=user)

    async def cancel_paused(self, id: str, reason: str = "", *, user: str = "") -> CallResult[Any]:  # noqa: A002 - what it is
        """Give a paused call up: its result is an error that says that it was declined, and why. Raises as `resume`.

        Cancelling this leaves the call paused, unless the result was written down by then.
        """
        return await self._paused.cancel(id, reason, user=user)

    async def answered(
        self,
        run: str,
        call_id: str,
        *,
        id: str = "",  # noqa: A002 - what it is
        user: str = "",
        tenant: str = "",
    ) -> CallResult[Any] | None:
        """What came of the paused call that a model made under this id in this run; None: nothing yet.

        `id`: of the paused call; some models give several calls one id, and without it the latest is meant. One that
        expired came to an error that says so. Cancelling is safe: it only reads.
        """
        tenant = self._tenant_of(user, tenant)
        return await self._paused.answered(run, call_id, user, tenant, id=id)

    async def pending_approvals(self) -> "list[Pending]":
        """The calls that wait for somebody to agree, oldest first; also those that gave up and may be made again.

        Cancelling is safe: it only reads.
        """
        return await self.approvals.pending()

    async def approve(self, id: str, *, scope: "Scope" = "once", by: str = "program") -> "Pending":  # noqa: A002 - what it is
        """Agree to a call that waits. `scope`: this call `once`, or the same call again in this `session`.

        Cancelling is safe: it waits for the moment in which the yes is given, so the request is approved or, where
        this had not begun, still pending.

        Raises:
            UnknownApproval: no call waits under this id. AlreadyDecided: somebody was quicker.
        """
        return await self.approvals.decide(id, scope, by)

    async def deny(self, id: str, *, scope: "Scope" = "once", by: str = "program") -> "Pending":  # noqa: A002 - what it is
        """Refuse a call that waits; raises as `approve`. Cancelling this refuses it all the same, once it has begun.

        `scope`: this call `once`, or the same call again in this `session`.
        """
        return await self.approvals.decide(id, None, by, in_session=scope == "session")
