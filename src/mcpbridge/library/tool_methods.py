"""The methods of `Bridge` for tools: list and call them, read resources and prompts, add and remove tools and servers.

What a model needs of them is in `agent_methods.py`. Each request goes the way of every client's: every rule, limit and
log applies. Cancelling a call here also cancels it at its server.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import move_on_after

from mcpbridge.base.errors import ConfigError, UnknownName
from mcpbridge.base.suggestions import nearest
from mcpbridge.core.model import TOOLS, Caller
from mcpbridge.core.tool_calls_and_results import CallResult, ToolCall
from mcpbridge.engine.engine import Engine

if TYPE_CHECKING:  # loaded when they are used: the first answer of `serve` must come fast
    from mcpbridge.catalog.snapshot import ToolRef
    from mcpbridge.config.needs_restart import Reloaded
    from mcpbridge.core.tool_calls_and_results import PausedCall
    from mcpbridge.engine.registry.registry import Keep
    from mcpbridge.engine.wiring.tools import ProgramTool
    from mcpbridge.library.calls.call import Progress
    from mcpbridge.library.calls.paused_calls import PausedCalls
    from mcpbridge.library.define_tools.info import ToolInfo


R = TypeVar("R")

_SERVER_SECONDS = 30.0
"""Seconds to wait for a server that is added."""


class ToolMethods(Engine):
    """An engine, with what programs do with its tools."""

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
        (of which `tenant`), where single ones have tools of their own. Cancelling is safe: it only reads.

        Raises:
            UnknownName: one of `only` is no tool.
        """
        from mcpbridge.library.define_tools.info import chosen, first, info_of

        self.require_running()
        await self.startup.settled()
        self.catalog.flush()
        extra = self.backends.extra
        tenant = self._tenant_of(user, tenant)
        session = self._program.session(user, run, tenant) if run and extra.are_any else None
        client = self._program.client(user, session)
        audience = self.catalog.audience(client.name, client.principal, client.identity)
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
        return [info_of(ref) for ref in await self._search(query, limit, refs, client)]

    async def _search(
        self, query: str, limit: int | None, refs: "Mapping[str, ToolRef]", client: Caller
    ) -> "list[ToolRef]":
        """Those that fit a query, best first; what a resolver computed comes before all others."""
        from mcpbridge.catalog.search.find import find
        from mcpbridge.library.define_tools.info import first

        visible = self.tool_search.visible_to(client)
        most = limit if limit is not None else self.settings.search.limit
        found = find(query, most, visible, await visible.ranker(query))
        ids = [one.id for one in found.abilities] if found.fits else []
        by_id = {ref.id: ref for ref in refs.values()}
        own = [ref for wire, ref in refs.items() if wire not in visible.tools and ref.server == TOOLS]
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
        Cancelling this cancels the call, also at its server.
        """
        from mcpbridge.library.calls.call import Asked, make_call

        asked = Asked(run, user, tenant, metadata)
        wanted = call.returns is not None if whole is None else whole
        return await make_call(self, call, asked, whole=wanted, on_progress=on_progress)

    def _tenant_of(self, user: str, tenant: str) -> str:
        """The tenant of this user: that of the user's token in the configuration comes first, as for all calls."""
        return self._context.tenants.get(user, "") or tenant

    async def read_resource(self, uri: str, *, user: str = "") -> dict[str, Any]:
        """What a resource holds: `contents`, as MCP has them. Kept results are read so too: `mcpbridge://results/…`.

        Cancelling this cancels the request, also at its server.

        Raises:
            RequestFailed: there is none, or it cannot be read.
        """
        return await self.request("resources/read", {"uri": uri}, user=user)

    async def list_resources(self, *, user: str = "") -> list[dict[str, Any]]:
        """The resources of all servers, as MCP has them. Cancelling is safe: it only reads."""
        return await self._all_pages("resources/list", "resources", user)

    async def list_prompts(self, *, user: str = "") -> list[dict[str, Any]]:
        """The prompts of all servers, as MCP has them. Cancelling is safe: it only reads."""
        return await self._all_pages("prompts/list", "prompts", user)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, user: str = ""
    ) -> dict[str, Any]:
        """A prompt, by the name that `list_prompts` shows or as `server/prompt`: `messages`, as MCP has them.

        Cancelling this cancels the request, also at its server.

        Raises:
            RequestFailed: there is none, or its server refuses the arguments.
        """
        params = {"name": name, "arguments": dict(arguments or {})}
        return await self.request("prompts/get", params, user=user)

    async def _all_pages(self, method: str, member: str, user: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self.request(method, cursor, user=user)
            found += page.get(member, [])
            if not page.get("nextCursor"):
                return found
            cursor = {"cursor": page["nextCursor"]}

    async def recall(self, handle: str | Sequence[str] = (), *, user: str = "", **query: Any) -> CallResult[Any]:
        """Query a kept result by its handle, as the tool `recall` does (`path`, `where`, `select`, `sort` …).

        Without a handle it lists what is kept. What is wrong with a query is a result with `is_error`. The whole of a
        result: `read_resource(f"mcpbridge://results/{handle}")`. Cancelling is safe: what is kept stays.
        """
        handles = handle if isinstance(handle, str) else list(handle)
        arguments = {**({"handle": handles} if handles else {}), **query}
        return await self.call_tool("mcpbridge/recall", arguments, user=user)

    async def artifacts_of(self, meta: Mapping[str, Any], user: str) -> list[Any]:
        """What the `_meta` of a result leads to, for the program alone; see `ToolResult.artifacts`.

        Cancelling is safe: it only reads.
        """
        if "mcpbridge/artifacts" not in meta:
            return []
        from mcpbridge.tools.python.output import ARTIFACTS, read

        handle = meta[ARTIFACTS]
        return await read(self.store, user, handle) if isinstance(handle, str) else []

    async def paused_of(
        self, meta: Mapping[str, Any], call: ToolCall[Any, Any], *, run: str = "", user: str = "", tenant: str = ""
    ) -> "PausedCall | None":
        """The call as a paused one, if the `_meta` of its result says so, and this bridge did; None: it is not paused.

        What servers say of that, and what clients have paused under the same names, is not believed. Cancelling is
        safe: it only reads.
        """
        if "mcpbridge/paused" in meta:
            tenant = self._tenant_of(user, tenant)
            return await self._paused.of_result(meta, call, run=run, user=user, tenant=tenant)
        asked = meta.get("mcpbridge/approval")
        if not isinstance(asked, str):
            return None
        from mcpbridge.library.calls.paused_calls import waits_for_approval

        return waits_for_approval(self.approvals.let_go(asked), call, run, user)

    @cached_property
    def _paused(self) -> "PausedCalls":
        from mcpbridge.library.calls.paused_calls import PausedCalls

        return PausedCalls(self.store, self._context, self)

    # -- tools and servers that come and go

    async def add_tool(self, tool: Any) -> None:
        """Offer one more tool of the program: a function, or what `tool`, `ToolBuilder`, `adapt_function` make.

        Cancelling this adds nothing.

        Raises:
            ConfigError: it cannot be a tool, or there is something of its name already.
        """
        name, given = _given_of(tool)
        if name in self._program_tools:
            raise ConfigError(
                f"there is a tool {name!r} already", key=name, hint="`replace_tool` puts it in its place."
            )
        await self.set_backend(name, given)
        self._tools[name] = tool

    async def replace_tool(self, tool: Any) -> None:
        """Offer a tool in the place of the program's tool of the same name, if there is one.

        Calls under way end as they began. Cancelling this replaces nothing.

        Raises:
            ConfigError: it cannot be a tool, or the configuration has a server or tool of its name.
        """
        name, given = _given_of(tool)
        await self.set_backend(name, given)
        self._tools[name] = tool

    async def remove_tool(self, name: str) -> None:
        """Take a tool of the program out; clients are notified. Calls under way end as they began.

        Cancelling this leaves it where it is.

        Raises:
            UnknownName: the program has none of this name.
        """
        name = name.removeprefix(f"{TOOLS}/")
        if name not in self._program_tools:
            raise UnknownName("tool", name, candidates=nearest(name, self._program_tools))
        await self.set_backend(name, None)
        self._tools.pop(name, None)

    @cached_property
    def _tools(self) -> dict[str, Any]:
        """What the program gave, by name, as it gave it."""
        return {}

    async def add_server(self, name: str, table: Mapping[str, Any], *, keep: "Keep" = False) -> "Reloaded":
        """Connect to one more server: `table` is what is below `[servers.NAME]` in the configuration.

        `keep`: as long as the bridge, in its store (True), or written into the configuration (`"file"`).

        Returns once its tools are there, or it could not be reached within 30 seconds; `status` says why. Cancelling
        this ends the waiting alone: the server is added all the same.

        Raises:
            ConfigError: the table is wrong.
            RegistryProblem: there is something of this name already.
        """
        self._refuse_keeping(keep)
        done = await self.registry.put("servers", name, table, keep=keep)
        await self._there(name)
        return done

    async def replace_server(self, name: str, table: Mapping[str, Any], *, keep: "Keep" = False) -> "Reloaded":
        """Connect to a server in the place of the one of this name, if there is one; see `add_server`.

        Cancelling this ends the waiting alone: the server is replaced all the same.
        """
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
                await upstream.connection.stepped()
        self.catalog.flush()

    async def remove_server(self, name: str, *, keep: "Keep" = False) -> "Reloaded":
        """Part with a server; its processes end, calls under way end as they began. See `add_server`.

        Cancelling this ends the waiting alone: the server is removed all the same.

        Raises:
            RegistryProblem: there is none of this name.
        """
        return await self.registry.remove("servers", name, keep=keep)


def _given_of(tool: Any) -> "tuple[str, ProgramTool]":
    from mcpbridge.library.define_tools.define import given_of

    return given_of(tool)
