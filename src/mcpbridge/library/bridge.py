"""`Bridge`: the bridge as programs have it. `mcpbridge serve` and the daemon run this same class.

What runs is the `Engine`'s; here is what a program says and gets. Each request goes the way of every client's: no rule,
limit or log is passed by.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from anyio import move_on_after

from mcpbridge.base.errors import ConfigError, UnknownName, nearest
from mcpbridge.core.context import new_run
from mcpbridge.core.model import TOOLS, Caller
from mcpbridge.core.tool_calls import CallResult, ToolCall
from mcpbridge.engine.engine import Engine
from mcpbridge.engine.session_tools import check_names

if TYPE_CHECKING:  # loaded when they are used: the first answer of `serve` must come fast
    from mcpbridge.catalog.snapshot import ToolRef
    from mcpbridge.config.load import Reloaded
    from mcpbridge.core.tool_calls import PausedCall
    from mcpbridge.downstream.elicitation.program import Answerer
    from mcpbridge.engine.cassettes.cassette import Cassette
    from mcpbridge.engine.registry.registry import Keep
    from mcpbridge.engine.session_tools import Resolver, RunTools
    from mcpbridge.engine.wiring.tools import Given
    from mcpbridge.library.agent.models.model import Model
    from mcpbridge.library.agent.options import Prepare, StopWhen, Tools, ToolsOf
    from mcpbridge.library.agent.run import Run
    from mcpbridge.library.calls.call import Progress
    from mcpbridge.library.calls.calls import OnCall, OnResult
    from mcpbridge.library.calls.paused_calls import PausedCalls
    from mcpbridge.library.calls.run_events import RunEvent
    from mcpbridge.library.client.client import Client
    from mcpbridge.library.client.open_options import Config
    from mcpbridge.library.define_tools.info import ToolInfo
    from mcpbridge.library.llm_formats.messages import Format
    from mcpbridge.library.llm_formats.offer import Offered, Strictness
    from mcpbridge.pipeline.approvals.approvers import ApprovalHandler
    from mcpbridge.pipeline.approvals.pending import Pending
    from mcpbridge.pipeline.approvals.request import Scope
    from mcpbridge.pipeline.hooks.call import Hook
    from mcpbridge.tools.python.run_context.context import Init


R = TypeVar("R")

_SERVER_SECONDS = 30.0
"""Seconds to wait for a server that is added."""


class Bridge(Engine):
    """One bridge: `async with Bridge.open("servers.toml") as bridge`. Leaving ends every upstream and its processes."""

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
        """A bridge of this configuration, which runs within `async with`.

        Args:
            config: a file (`servers.toml`, or any mcpServers JSON), the same tables as a mapping, or None: the file
                that commands find (`$MCPBRIDGE_CONFIG`, `./servers.toml`, the user's own).
            tools: the program's own: functions, or what `tool`, `ToolBuilder`, `adapt_function` and so on make.
            approver: asked first whether a call may be made that somebody must agree to.
            hooks: see all calls, after those of the configuration; made with `before` and `after`.
            resolver: computes further tools for single clients.
            dependencies: what handlers find in `context.dependencies`.
            shared: the type of what all tools of a run have in common (`Context.shared`).
            init_shared: makes the first such value of a run, once; sync or async.
            on_elicitation: answers what servers ask people during the program's calls; see `Answerer`. None: nobody.
            on_sampling: answers what servers ask a model then.
            project: the directory that servers are told to work in.
            cassette: a file in which the traffic with servers is recorded, or out of which it is replayed where it is
                there; a `Cassette` says more.
            remember: what servers offer is kept for the next start, so that they need not run to be listed.
            environ: where `${VAR}` is looked up, in place of the process's environment.

        Raises:
            ConfigError: the configuration cannot be read or is wrong, or a tool cannot be one; says where and why.
        """
        from pathlib import Path

        from mcpbridge.base.directories import cache_directory
        from mcpbridge.base.redaction import Redactor
        from mcpbridge.downstream.elicitation.program import ProgramAnswers
        from mcpbridge.engine.cassettes.cassette import Cassette
        from mcpbridge.engine.session_tools import resolving
        from mcpbridge.library.client.open_options import patient, read_config, use_logging
        from mcpbridge.library.define_tools.define import all_given, backend_of
        from mcpbridge.upstream.manifest import Manifest

        if approver is not None and not callable(approver):
            raise ConfigError(f"a function of the request, or None; not {approver!r}", key="approver")
        tape = cassette if cassette is None or isinstance(cassette, Cassette) else Cassette(cassette)
        loaded = read_config(config, environ, is_replayed=tape is not None and tape.is_replay)
        redact = Redactor(loaded.secrets)
        use_logging(redact)
        given = all_given(tools)
        bridge = cls(
            patient(loaded.settings),
            redact=redact,
            tools=given,
            approver=approver,
            hooks=hooks,
            resolver=resolving(resolver, backend_of) if resolver is not None else None,
            dependencies=dependencies,
            manifest=Manifest(cache_directory(os.environ) / "manifest") if remember else None,
            answers=ProgramAnswers(on_elicitation, on_sampling) if on_elicitation or on_sampling else None,
            cassette=tape,
            project=Path(project).absolute().as_uri() if project is not None else "",
        )
        bridge._tools.update(zip(given, tools, strict=True))
        if shared is not None or init_shared is not None:
            bridge.contexts.share(shared if shared is not None else dict[str, Any], init_shared)
        return bridge

    # -- what there is

    async def list_tools(
        self,
        query: str | None = None,
        *,
        limit: int | None = None,
        only: Sequence[str] = (),
        user: str = "",
        tenant: str = "",
        run: str = "",
    ) -> "list[ToolInfo]":
        """The tools that may be called, in the order of the catalog, or those that fit a query, best first.

        `query`: what somebody wants to do, in a few words; where nothing seems to fit, there are none. `only`: names,
        ids, or globs on ids (`github/*`), of which the list is then, in this order; the bridge's own finders can be
        named, too (`mcpbridge/find_tools`, `mcpbridge/call_tool`). `user`: as whom to look; `run`: in which run
        (of which `tenant`), where single ones have tools of their own.

        Raises:
            UnknownName: one of `only` is no tool.
        """
        from mcpbridge.library.define_tools.info import chosen, first, info_of

        self.require_running()
        await self.startup.settled()
        self.catalog.flush()
        extra = self.backends.extra
        tenant = self._context.tenants.get(user, "") or tenant  # as for calls
        session = self._program.session(user, run, tenant) if run and extra.are_any else None
        client = self._program.client(user, session)
        audience = self.catalog.audience(client.name, client.principal)
        snapshot = self.catalog.view("", audience)
        refs = {**(await extra.refs(client)), **snapshot.tools}
        only = [only] if isinstance(only, str) else only
        refs = (
            chosen(refs, only, snapshot.unlisted)
            if only
            else dict(sorted(refs.items(), key=lambda one: (one[1].server, one[1].name)))
        )
        if query is None:
            return [info_of(ref) for ref in first(refs.values(), limit)]
        return [info_of(ref) for ref in await self._found(query, limit, refs, client)]

    async def _found(
        self, query: str, limit: int | None, refs: "Mapping[str, ToolRef]", client: Caller
    ) -> "list[ToolRef]":
        """Those that fit a query, best first; what a resolver computed comes before all others."""
        from mcpbridge.catalog.search.found import find
        from mcpbridge.library.define_tools.info import first

        sight = self.routing.sight(client)
        most = limit if limit is not None else self.settings.search.limit
        found = find(query, most, sight, await sight.ranker(query))
        ids = [one.id for one in found.abilities] if found.fits else []
        by_id = {ref.id: ref for ref in refs.values()}
        own = [ref for wire, ref in refs.items() if wire not in sight.tools and ref.server == TOOLS]
        return first([*own, *(by_id[id_] for id_ in ids if id_ in by_id)], most)

    async def call_tool(
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
        """Call a tool by its id (`server/tool`) or name, and wait for what comes of it.

        What fails is a result with `is_error`. A large result is kept and comes as a preview with a `handle`, unless it
        is wanted `whole`. `run` names the piece of work that the call belongs to; `user`, `tenant` and `metadata` are
        its context. `on_progress` hears of progress. Cancelling this cancels the call, also at its server.

        Raises:
            RequestFailed: there is no such tool.
            ArgumentsRefused: an argument, or something of the metadata, is no JSON.
            ValueError: the name of the run or of the tenant is too long for one.
        """
        if arguments is not None and not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - of programs without types
            raise TypeError(f"arguments are a mapping of names to values, not {type(arguments).__name__}")
        call: ToolCall[Any, Any] = ToolCall(name, dict(arguments or {}))
        return await self.call(
            call, run=run, user=user, tenant=tenant, metadata=metadata, whole=whole, on_progress=on_progress
        )

    async def call(
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
        """Make a call that a tool of the program made (`add.call(1, 2)`), or a model wanted; see `call_tool`.

        `whole` left out: its result comes whole where its type is known, since a preview is not of that type.
        """
        from mcpbridge.library.calls.call import Asked, make_call

        asked = Asked(run, user, tenant, metadata)
        wanted = call.returns is not None if whole is None else whole
        return await make_call(self, call, asked, whole=wanted, on_progress=on_progress)

    async def read_resource(self, uri: str, *, user: str = "") -> dict[str, Any]:
        """What a resource holds: `contents`, as MCP has them. Kept results are read so too: `mcpbridge://results/…`.

        Raises:
            RequestFailed: there is none, or it cannot be read.
        """
        return await self.request("resources/read", {"uri": uri}, user=user)

    async def list_resources(self, *, user: str = "") -> list[dict[str, Any]]:
        """The resources of all servers, as MCP has them."""
        return await self._all_pages("resources/list", "resources", user)

    async def list_prompts(self, *, user: str = "") -> list[dict[str, Any]]:
        """The prompts of all servers, as MCP has them."""
        return await self._all_pages("prompts/list", "prompts", user)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, user: str = ""
    ) -> dict[str, Any]:
        """A prompt, by the name that `list_prompts` shows or as `server/prompt`: `messages`, as MCP has them.

        Raises:
            RequestFailed: there is none, or its server refuses the arguments.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        return await self.request("prompts/get", params, user=user)

    async def recall(self, handle: str | Sequence[str] = (), *, user: str = "", **query: Any) -> CallResult[Any]:
        """Query a kept result by its handle, as the tool `recall` does (`path`, `where`, `select`, `sort`, `lines` …).

        Without a handle it lists what is kept. What is wrong with a query is a result with `is_error`. The whole of a
        result: `read_resource(f"mcpbridge://results/{handle}")`.
        """
        handles = handle if isinstance(handle, str) else list(handle)
        arguments = {**({"handle": handles} if handles else {}), **query}
        return await self.call_tool("mcpbridge/recall", arguments, user=user)

    async def _all_pages(self, method: str, member: str, user: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self.request(method, cursor, user=user)
            found += page.get(member, [])
            if not page.get("nextCursor"):
                return found
            cursor = {"cursor": page["nextCursor"]}

    async def artifacts_of(self, meta: Mapping[str, Any], user: str) -> list[Any]:
        """What the `_meta` of a result leads to, for the program alone; see `ToolResult.artifacts`."""
        if "mcpbridge/artifacts" not in meta:
            return []
        from mcpbridge.tools.python.output import ARTIFACTS, read

        handle = meta[ARTIFACTS]
        return await read(self.store, user, handle) if isinstance(handle, str) else []

    async def paused_of(
        self, meta: Mapping[str, Any], call: ToolCall[Any, Any], *, run: str = "", user: str = "", tenant: str = ""
    ) -> "PausedCall | None":
        """The call as a paused one, if the `_meta` of its result says so, and this bridge did; None: it is not paused.

        What servers say of that, and what clients have paused under the same names, is not believed.
        """
        if "mcpbridge/paused" in meta:
            tenant = self._context.tenants.get(user, "") or tenant  # as for calls
            return await self._paused.told(meta, call, run=run, user=user, tenant=tenant)
        asked = meta.get("mcpbridge/approval")
        if not isinstance(asked, str):
            return None
        from mcpbridge.library.calls.paused_calls import waits_for_approval

        return waits_for_approval(self.approvals.let_go(asked), call, run, user)

    # -- clients

    def client(self, *, user: str = "", view: str = "", profile: str = "", **options: Any) -> "Client":
        """A client of the official SDK in this process, to be entered; it knows what bridges have beside.

        `view` is the one server that it sees, `profile` the profile that it is kept to; `options` are those of
        `mcp.Client`: callbacks, `mode`, `client_info` and so on. It is a client like all others.
        """
        from mcpbridge.library.client.client import Client
        from mcpbridge.library.client.in_process import InProcess

        inside = InProcess(self.server, user=user, view=view, profile=profile, project=self._project)
        return Client(inside, **options)

    # -- tools and servers that come and go

    async def add_tool(self, tool: Any) -> None:
        """Offer one more tool of the program: a function, or what `tool`, `ToolBuilder`, `adapt_function` make.

        Raises:
            ConfigError: it cannot be a tool, or there is something of its name already.
        """
        name, given = _given_of(tool)
        if name in self._given:
            raise ConfigError(
                f"there is a tool {name!r} already", key=name, hint="`replace_tool` puts it in its place."
            )
        await self.set_backend(name, given)
        self._tools[name] = tool

    async def replace_tool(self, tool: Any) -> None:
        """Offer a tool in the place of the program's tool of the same name, if there is one.

        Calls under way end as they began.

        Raises:
            ConfigError: it cannot be a tool, or the configuration has a server or tool of its name.
        """
        name, given = _given_of(tool)
        await self.set_backend(name, given)
        self._tools[name] = tool

    async def remove_tool(self, name: str) -> None:
        """Take a tool of the program out; clients are told. Calls under way end as they began.

        Raises:
            UnknownName: the program has none of this name.
        """
        name = name.removeprefix(f"{TOOLS}/")
        if name not in self._given:
            raise UnknownName("tool", name, candidates=nearest(name, self._given))
        await self.set_backend(name, None)
        self._tools.pop(name, None)

    async def add_server(self, name: str, table: Mapping[str, Any], *, keep: "Keep" = False) -> "Reloaded":
        """Connect to one more server: `table` is what stands below `[servers.NAME]` in the configuration.

        `keep`: as long as the bridge, in its store (True), or written into the configuration (`"file"`).

        Returns once its tools are there, or it could not be reached within 30 seconds; `status` says why.

        Raises:
            ConfigError: the table is wrong.
            RegistryProblem: there is something of this name already.
        """
        self._refuse_keeping(keep)
        done = await self.registry.put("servers", name, table, keep=keep)
        await self._there(name)
        return done

    async def replace_server(self, name: str, table: Mapping[str, Any], *, keep: "Keep" = False) -> "Reloaded":
        """Connect to a server in the place of the one of this name, if there is one; see `add_server`."""
        self._refuse_keeping(keep)
        done = await self.registry.put("servers", name, table, may_replace=True, keep=keep)
        await self._there(name)
        return done

    def _refuse_keeping(self, keep: "Keep") -> None:
        if keep is True and not self.settings.source:
            hint = "Other programs have the same store. Give `Bridge.open` a file, or leave `keep` out."
            raise ConfigError(
                "a bridge without a configuration file keeps no servers in the store", key="keep", hint=hint
            )

    async def _there(self, name: str) -> None:
        with move_on_after(_SERVER_SECONDS):
            while (upstream := self.pool.upstreams.get(name)) is not None and not upstream.has_settled:
                await upstream.stepped()
        self.catalog.flush()

    async def remove_server(self, name: str, *, keep: "Keep" = False) -> "Reloaded":
        """Part with a server; its processes end, calls under way end as they began. See `add_server`.

        Raises:
            RegistryProblem: there is none of this name.
        """
        return await self.registry.remove("servers", name, keep=keep)

    # -- models

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
        where the API can hold its model to the schemas, it is told to; what cannot be strict is sent as it is, and
        `Offered.not_strict` says why. The rest is as for `list_tools`.

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
        name, given = _given_of(tool)
        if name in self._given:
            if self._tools.get(name) is not tool:
                hint = "`replace_tool` puts it in its place."
                raise ConfigError(f"there is another tool {name!r} already", key=name, hint=hint)
        elif run:
            self._run_tools.lend(user, run, self._context.tenants.get(user, "") or tenant, name, tool)
        else:
            await self.add_tool(tool)
        return name if given.has_several else f"{TOOLS}/{name}"

    @cached_property
    def _run_tools(self) -> "RunTools":
        from mcpbridge.engine.session_tools import RunTools
        from mcpbridge.library.define_tools.define import backend_of

        return RunTools(self.backends.extra, self._program.session, backend_of)

    @cached_property
    def _tools(self) -> dict[str, Any]:
        """What the program gave, by name, as it gave it."""
        return {}

    def calls_from(self, response: Any, offered: "Offered | None" = None) -> list[ToolCall[Any, Any]]:
        """The calls that a model's response wants made: an object of an official package, or the same as JSON values.

        `offered`: what `tools_for` gave; without it each name is looked for among all tools. Arguments that cannot be
        read are told in `ToolCall.problem`, and answered with that.

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
    ) -> "Run":
        """Let a model work with the tools until it is done: `outcome = await bridge.run(model, messages)`.

        Iterated (`async for event in bridge.run(…)`), it tells of what happens meanwhile: text and arguments as they
        are written, calls, progress, results.

        Args:
            model: `OpenAIModel`, `AnthropicModel` and so on, or any async function of a `ModelRequest`.
            messages: the history so far, as the model's own API has it; or a text, which is what the user says first.
            tools: what it is offered, as for `tools_for`; tools of the program that the bridge has not are this run's
                alone. A function of the turn before computes all that for each round.
            max_rounds: how often the model is asked at most.
            stop_when: says of each turn whether to stop after it, though the model would go on.
            prepare: called before each round; may give another history, or other tools for this round.
            resolver: computes further tools for this run alone, once, in place of the bridge's own resolver.
            run: names the run; the same name goes on with one that was paused, in this process or another.
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
        run, tenant = run or new_run(), self._context.tenants.get(user, "") or tenant  # as for calls
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

        `kind`: the type to make of it.

        Raises:
            ConfigError: the run has no name. ContextRefused: what is kept is not of that type.
        """
        from mcpbridge.library.agent.options import get_context

        tenant = self._context.tenants.get(user, "") or tenant  # as for calls
        return await get_context(self.contexts, run, tool, kind=kind, user=user, tenant=tenant)

    async def set_context(self, run: str, value: Any, tool: str = "", *, user: str = "", tenant: str = "") -> None:
        """Set what a tool keeps of a run, or without `tool` what all tools share; calls under way see it at once.

        Set before the first call of the run, it stands in the place of what an initialiser would make.

        Raises:
            ConfigError: the run has no name. UnknownName: there is no such tool.
            ContextRefused: it does not fit, or is too large.
        """
        from mcpbridge.library.agent.options import set_context

        tenant = self._context.tenants.get(user, "") or tenant
        await set_context(self.contexts, run, value, tool, user=user, tenant=tenant, unknown=self._unknown_of_all)

    def _unknown_of_all(self, tool: str) -> UnknownName | None:
        """Why no client can have a tool of this id; None: one may have it, or will once it has started."""
        self.catalog.flush()
        try:
            self.catalog.snapshot.tool(tool)
        except UnknownName as unknown:
            return None if self.backends.extra.are_any or self.backends.why_missing(tool) is not None else unknown
        return None

    # -- paused calls

    @cached_property
    def _paused(self) -> "PausedCalls":
        from mcpbridge.library.calls.paused_calls import PausedCalls

        return PausedCalls(self.store, self._context, self)

    async def paused_calls(self, *, run: str = "", user: str = "") -> "list[PausedCall]":
        """The calls that wait for an answer from outside, oldest first; `run`: of this run only."""
        check_names(run=run)
        return await self._paused.list(user, run=run)

    async def resume(self, id: str, answer: Any, *, user: str = "") -> CallResult[Any]:  # noqa: A002 - what it is
        """Answer a paused call; returns what came of it, which a run that goes on finds by itself.

        Of several who answer one call, one is heard. Cancelling this leaves the call paused.

        Raises:
            UnknownName: there is no such call, or not any more.
            AlreadyResumed: it was answered before, or somebody else is answering it now.
            ArgumentsRefused: the answer does not fit its schema; the call stays paused.
            CallFailed: the tool is not there, or failed at the answer; the call stays paused.
        """
        return await self._paused.resume(id, answer, user=user)

    async def cancel_paused(self, id: str, reason: str = "", *, user: str = "") -> CallResult[Any]:  # noqa: A002
        """Give a paused call up: its result is an error that says that it was declined, and why. Raises as `resume`."""
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
        expired came to an error that says so.
        """
        tenant = self._context.tenants.get(user, "") or tenant  # as for calls
        return await self._paused.answered(run, call_id, user, tenant, id=id)

    # -- approvals

    async def pending_approvals(self) -> "list[Pending]":
        """The calls that wait for somebody to agree, oldest first; also those that gave up and may be made again."""
        return await self.approvals.pending()

    async def approve(self, id: str, *, scope: "Scope" = "once", by: str = "program") -> "Pending":  # noqa: A002 - what it is
        """Agree to a call that waits. `scope`: this call `once`, or the same call again in this `session`.

        Raises:
            UnknownApproval: no call waits under this id. AlreadyDecided: somebody was quicker.
        """
        return await self.approvals.decide(id, scope, by)

    async def deny(self, id: str, *, by: str = "program") -> "Pending":  # noqa: A002
        """Refuse a call that waits; raises as `approve`."""
        return await self.approvals.decide(id, None, by)


def _given_of(tool: Any) -> "tuple[str, Given]":
    from mcpbridge.library.define_tools.define import given_of

    return given_of(tool)
