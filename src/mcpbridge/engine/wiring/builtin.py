"""Build the built-in tools of `[builtin]` from the settings.

Tools that do work (`web-search`, `file-read`, …) belong to the server `builtin` and are found, hidden and listed like
those of any server. Tools about the bridge itself (`brief`, `pulse`, …) are beside `recall` and `find_tools`.
"""

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mcpbridge.base.directories import cache_directory, runtime_directory, state_directory
from mcpbridge.base.errors import ToolInactive
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.config.schema import Settings
from mcpbridge.config.trust.own_code import OwnCode
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import BRIDGE, BUILTIN, Asks, Call, Precheck, Tool
from mcpbridge.core.source_settings import OfferSettings, ToolSettings
from mcpbridge.engine.leases import Lease, until_closed
from mcpbridge.engine.wiring.sandbox import Sandboxes
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.storage.settings import call_log_path, store_path
from mcpbridge.tools.backend import ENDING_SECONDS
from mcpbridge.tools.builtin.builtin import Builtin
from mcpbridge.tools.builtin.factory import META, BuiltinContext, make
from mcpbridge.tools.serving import Run, Serving, runner_of

if TYPE_CHECKING:
    from mcpbridge.engine.cassettes.cassette import Cassette
    from mcpbridge.tools.builtin.meta.session_status import ReadStatus


class BuiltinSet(Struct, frozen=True):
    """The built-in tools of one reading of the settings."""

    tools: Mapping[str, Mapping[str, Builtin]]
    """By server, and by name."""
    sources: Mapping[str, OfferSettings]
    """What is set of them, by server."""
    serve: Mapping[str, Run]
    """The end of the way of their calls, by server."""

    def offers(self) -> Iterator[Offer]:
        """What is listed of them now: a tool that lacks what it works with is left out (`is_ready`)."""
        for server, tools in self.tools.items():
            ready = [tool for tool in tools.values() if getattr(tool, "is_ready", True)]
            yield Offer(server, tuple(encode(tool.definition) for tool in ready))

    def asks(self, tool: Tool) -> Asks | None:
        """Says why a person must agree to a call, where that depends on its arguments; empty: nobody must."""
        return getattr(self.tools.get(tool.server, {}).get(tool.name), "asks", None)

    def precheck(self, tool: Tool) -> Precheck | None:
        """Says that a call cannot be done, before a person is asked about it."""
        return getattr(self.tools.get(tool.server, {}).get(tool.name), "precheck", None)

    def inactive(self) -> list[dict[str, str]]:
        """Enabled tools that cannot work here, and why."""
        return [
            {"name": name, "reason": str(getattr(tool, "why_not", ""))}
            for tools in self.tools.values()
            for name, tool in tools.items()
            if not getattr(tool, "is_ready", True) or getattr(tool, "why_not", "")
        ]


class BuiltinTools:
    """The built-in tools of one bridge: builds them from settings, and has those in effect."""

    def __init__(
        self, catalog: Catalog, serving: Serving, on_change: Callable[[], None], cassette: "Cassette | None" = None
    ) -> None:
        """`on_change` is called when a tool has found out whether it can work.

        `cassette` records those that reach other services, or answers in their place.
        """
        self._cassette = cassette
        self._catalog, self._serving, self._on_change = catalog, serving, on_change
        self._now = BuiltinSet({}, {}, {})

    def build(
        self, settings: Settings, own: Mapping[str, Builtin], context: BuiltinContext, lease: Lease, read: Run
    ) -> BuiltinSet:
        """Build the tools of these settings. Nothing changes before `take_effect`.

        `own`: the meta-tools that there are anyway. `lease` holds what runs. `read`: answers `resources/read` of the
        bridge's own resources.
        """
        meta, working = dict(own), dict[str, Builtin]()
        for name in dict.fromkeys(settings.builtin.enable):
            section = settings.builtin.section_of(name)
            tool = lease.hold(
                "builtin",
                (name, section, settings.sandbox, settings.source),
                partial(self._create, name, section, context),
                run=_running(self._offer_again),
                ends_in=ENDING_SECONDS,
            )
            (meta if name in META else working)[name] = tool
        tools = {BRIDGE: meta, **({BUILTIN: working} if working else {})}
        sources = {server: _source(of_server, settings) for server, of_server in tools.items()}
        serve = {server: partial(self._run, server, of_server) for server, of_server in tools.items()}
        serve[BRIDGE] = partial(self._run_or_read, serve[BRIDGE], read)
        return BuiltinSet(tools, sources, serve)

    def _create(self, name: str, section: Any, context: BuiltinContext) -> Builtin:
        tool = make(name, section, context)
        return tool if self._cassette is None else self._cassette.builtin(name, tool)

    def take_effect(self, builtins: BuiltinSet) -> None:
        """Offer these from now on."""
        gone = self._now.tools.keys() - builtins.tools.keys()
        self._now = builtins
        for server in gone:
            self._catalog.remove(server)
        self._offer_again()

    def why_missing(self, name: str) -> ToolInactive | None:
        """Why an enabled tool of this name is not there."""
        for one in self._now.inactive():
            if name in (one["name"], f"{BUILTIN}/{one['name']}"):
                return ToolInactive(one["name"], one["reason"], "")
        return None

    def listed(self) -> dict[str, tuple[bytes, ...]]:
        """The definitions of the tools that are enabled, whether or not they are ready."""
        return {BUILTIN: tuple(encode(tool.definition) for tool in self._now.tools.get(BUILTIN, {}).values())}

    @property
    def now(self) -> BuiltinSet:
        """What is in effect."""
        return self._now

    @property
    def have_settled(self) -> bool:
        """Of each tool it is known whether it can work."""
        return all(getattr(tool, "is_settled", True) for tools in self._now.tools.values() for tool in tools.values())

    def _offer_again(self) -> None:
        for offer in self._now.offers():
            self._catalog.update(offer)
        self._on_change()

    def _run(self, server: str, tools: Mapping[str, Builtin], call: Call) -> Awaitable[Body]:
        runs = {name: tool.run for name, tool in tools.items()}
        return self._serving.serve(call, runner_of(runs, call), self._now.sources[server].timeouts)

    def _run_or_read(self, run: Run, read: Run, call: Call) -> Awaitable[Body]:
        if call.method == "resources/read":
            return self._serving.serve(call, read, self._now.sources[BRIDGE].timeouts)
        return run(call)


def _running(changed: Callable[[], None]) -> Callable[[Any], Any]:
    """What a tool runs within: its own `running(changed)`, or until it is closed if it holds something."""

    def run(tool: Any) -> Any:
        if hasattr(tool, "running"):
            return tool.running(changed)
        return until_closed(tool if hasattr(tool, "close") else _Nothing())

    return run


class _Nothing:
    async def close(self) -> None:
        pass


def _source(tools: Mapping[str, Builtin], settings: Settings) -> OfferSettings:
    """How each tool wants to be treated, where the configuration says nothing else."""
    by_tool: dict[str, ToolSettings] = {}
    for name, tool in tools.items():
        given = {key: value for key in CallSettings.model_fields if (value := getattr(tool.treatment, key)) is not None}
        own = settings.builtin.tool.get(name)
        if own is not None:
            given |= {key: getattr(own, key) for key in own.model_fields_set}
        by_tool[name] = ToolSettings(**given)
    return OfferSettings(trusted=True, tool=by_tool)


def builtin_context(settings: Settings, *, sandboxes: Sandboxes, report: "ReadStatus") -> BuiltinContext:
    """What the tools of these settings are made with. `report` gives what `brief` and `pulse` say."""
    directory = Path(settings.source).parent if settings.source else Path()
    return BuiltinContext(
        runner=lambda: sandboxes.of(settings),
        read_status=report,
        directory=directory,
        own_files=_own_files(settings),
        own_code=OwnCode(settings).holds,
    )


def _own_files(settings: Settings) -> tuple[str, ...]:
    """Files and directories of the bridge itself, which no tool may write."""
    own = [store_path(settings.store), call_log_path(settings.call_log, settings.store), state_directory(os.environ)]
    kept = [cache_directory(os.environ), runtime_directory(os.environ)]
    named = [Path(settings.source)] if settings.source else []
    beside = [named[0].parent / spec for spec in settings.spec] if named else []
    return tuple(str(path.absolute()) for path in (*named, *beside, *own, *kept) if str(path) not in ("", "."))
