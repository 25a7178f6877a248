"""Build the backends of `[tools]`: what they offer, how calls reach them, and their status.

A backend whose settings are the same continues over a reload (`leases.py`), and so does one that a program handed in.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.background_tasks import is_asked_to_end
from mcpbridge.base.errors import (
    BridgeError,
    ConfigError,
    ToolInactive,
    UnknownName,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.base.log import get_logger
from mcpbridge.base.suggestions import nearest
from mcpbridge.catalog.definitions.check import KINDS
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.config.schema import Settings
from mcpbridge.core.call_settings import CALL_SECONDS, LOCAL_SECONDS, LONGEST_SECONDS, CallSettings
from mcpbridge.core.model import OWN, TOOLS, Asks, Call, Tool
from mcpbridge.core.source_settings import OfferSettings, ToolSettings
from mcpbridge.downstream.requests.session_tools import SessionTools
from mcpbridge.engine.leases import Lease
from mcpbridge.engine.pins.enforcement import PinEnforcement
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.sandbox.job import Runner
from mcpbridge.tools.backend import ENDING_SECONDS, Backend, BackendContext, Condition, Health, ManagedBackend
from mcpbridge.tools.factory import has_several, kind_of, make, refuse_unused
from mcpbridge.tools.serving import Run, Serving, runner_of
from mcpbridge.tools.settings import BackendSettings

if TYPE_CHECKING:  # loaded by who has one
    from mcpbridge.engine.cassettes.cassette import Cassette


log = get_logger("mcpbridge.backends")

_REMOTE = frozenset({"http", "openapi", "grpc", "agent"})
PINNED = frozenset({"openapi", "grpc"})
"""Kinds whose definitions come from another machine: changes of them are compared as those of servers are."""
_FUNCTIONS = frozenset({"function", "executor", "manual", "human", "pack"})
_CHECK_SECONDS = 30.0
_TELLING_SECONDS = 15.0
_COMMAND_SECONDS = 600.0
"""Seconds that a management command may take."""
_TIMEOUTS = Timeouts(LOCAL_SECONDS, LONGEST_SECONDS)
_UNTOUCHED = frozenset(OfferSettings.model_fields) - {"call_timeout", "max_call_timeout", "retry"}
"""Settings of what is around its calls: a backend is not made anew for them."""


class ProgramTool(Struct, frozen=True, eq=False):
    """A tool, or several, of a program's own backend, with its settings."""

    backend: Backend
    settings: BackendSettings
    has_several: bool = False
    """Its tools come as those of a server: `NAME/tool`. Else it has one, which is called as the backend is here."""

    def check(self, name: str) -> None:
        """Refuse settings that nobody would keep.

        Raises:
            ConfigError: there are some.
        """
        settings, key = self.settings, f"tools.{name}"
        try:
            refuse_unused(settings, several=self.has_several)
        except ValueError as error:
            raise ConfigError(str(error), key=key) from None
        mine = ["input_schema", "output_schema", *(["description", "annotations"] if self.has_several else [])]
        if type(settings) is BackendSettings and (idle := [one for one in mine if getattr(settings, one)]):
            # Settings of a kind are what such a backend is made with, so it keeps them itself.
            hint = "FunctionBackend.of(function, settings=FunctionSettings(output_schema=…)) and the like keep it."
            raise ConfigError(f"`{idle[0]}` is for who makes the backend", key=key, hint=hint)


Given = ProgramTool
"""The older name of `ProgramTool`."""


class ConfiguredBackend(Struct, frozen=True):
    """One backend of a generation."""

    name: str
    settings: BackendSettings
    managed: ManagedBackend
    server: str
    """The server that its tools are of."""
    seconds: float = LOCAL_SECONDS
    """How long a call may take without progress, where nothing is said of that."""

    @property
    def backend(self) -> Backend:
        """Who does the work."""
        return self.managed.backend

    @property
    def condition(self) -> Condition:
        """How it is."""
        why = self.settings.unavailable
        return Condition("failed", why, is_lasting=True) if why else self.managed.condition

    @property
    def is_pinned(self) -> bool:
        """Changes of its tools are compared with what people agreed to."""
        return self.backend.kind in PINNED and self.server != TOOLS

    @property
    def offered(self) -> tuple[bytes, ...]:
        """The definitions of its tools."""
        if self.settings.unavailable:
            return ()
        offered = self.managed.offered
        return tuple(self._as_set(tool) for tool in offered[:1]) if self.server == TOOLS else offered

    def _as_set(self, offered: bytes) -> bytes:
        """A single tool has the name of its table; a program may have called it otherwise."""
        tool: dict[str, Any] = msgspec.json.decode(offered)
        said: dict[str, Any] = {"name": self.name}
        if self.settings.description:
            said["description"] = self.settings.description
        if self.settings.annotations:
            said["annotations"] = (tool.get("annotations") or {}) | self.settings.annotations
        return encode(tool | said) if any(tool.get(key) != value for key, value in said.items()) else offered


class BackendSet(Struct, frozen=True):
    """The backends of one reading of the settings."""

    by_name: Mapping[str, ConfiguredBackend]
    """By the name of the table."""
    sources: Mapping[str, OfferSettings]
    """What is set of their tools, by server."""
    serve: Mapping[str, Run]
    """The end of the way of their calls, by server."""

    def is_own_function(self, tool: Tool) -> bool:
        """It is a Python function of whoever runs the bridge."""
        one = self.by_name.get(tool.name if tool.server == TOOLS else tool.server)
        return one is not None and one.managed.backend.kind in _FUNCTIONS

    def offers(self) -> Iterator[Offer]:
        """What each server offers; also the one that single tools are of."""
        offered: dict[str, tuple[bytes, ...]] = dict.fromkeys(self.sources, ())
        for one in self.by_name.values():
            offered[one.server] += one.offered
        for server, tools in offered.items():
            yield Offer(server, tools)


class Backends:
    """The backends of one bridge: builds them from settings, and has those in effect."""

    def __init__(
        self,
        catalog: Catalog,
        serving: Serving,
        runner: Callable[[Settings], Runner],
        redact: Callable[[str], str],
        on_change: Callable[[], None],
        cassette: "Cassette | None" = None,
        pins: PinEnforcement | None = None,
    ) -> None:
        """Touches nothing. `runner`: the sandbox of these settings; `on_change` hears when a backend's state changes.

        `cassette` records those that reach other services, or answers in their place. `pins` decides what is listed of
        those whose definitions come from another machine.
        """
        self._cassette, self._pins = cassette, pins
        self._catalog, self._serving, self._redact, self._on_change = catalog, serving, redact, on_change
        self._runner = runner
        self._now = BackendSet({}, {}, {})
        self.extra = SessionTools(None, redact)
        """What single sessions have besides."""

    def build(self, settings: Settings, given: Mapping[str, ProgramTool], lease: Lease) -> BackendSet:
        """Build the backends of these settings. Nothing changes before `take_effect`; `lease` holds what runs."""
        by_name: dict[str, ConfiguredBackend] = {}
        for name, own in sorted(settings.tools.items()):
            if not own.disabled:
                by_name[name] = self._configured(name, own, settings, lease)
        for name in settings.packs:
            pack = self._pack(name, settings, lease)
            for taken in pack.keys() & {*by_name, *settings.servers}:
                raise ConfigError(f"there is a server or a tool {taken!r} already", key="packs")
            by_name |= pack
        for name, one in sorted(given.items()):
            if not one.settings.disabled:
                if name in by_name or name in settings.servers or name in OWN:
                    raise ConfigError(f"there is a server or a tool {name!r} already", key=f"tools.{name}")
                one.check(name)
                kept = self._hold(
                    "given",
                    name,
                    (name, one),
                    partial(self._create, name, one.backend.kind, lambda one=one: one.backend),
                    lease,
                )
                by_name[name] = ConfiguredBackend(name, one.settings, kept, name if one.has_several else TOOLS)
        return BackendSet(by_name, _sources(by_name), self._handlers(by_name))

    def _configured(self, name: str, own: BackendSettings, settings: Settings, lease: Lease) -> ConfiguredBackend:
        context = self._backend_context(settings)
        decisive = type(own), own.model_dump(exclude=set(_UNTOUCHED)), settings.source
        if own.unavailable:
            kept = ManagedBackend(make(name, own, context), self._redact)  # it never runs
        else:
            key = (name, decisive, settings.sandbox)
            made = partial(self._create, name, kind_of(own), partial(make, name, own, context))
            kept = self._hold("backend", name, key, made, lease)
        seconds = _seconds(own, kept.backend.kind, settings.sandbox.timeout)
        return ConfiguredBackend(name, own, kept, name if has_several(own) else TOOLS, seconds)

    def _create(self, name: str, kind: str, make: Callable[[], Backend]) -> Backend:
        return make() if self._cassette is None else self._cassette.backend(name, kind, make)

    def _pack(self, named: str, settings: Settings, lease: Lease) -> dict[str, ConfiguredBackend]:
        from mcpbridge.tools.packs import PackBackend
        from mcpbridge.tools.settings import pack_name

        context, name = self._backend_context(settings), pack_name(named)
        kept = self._hold("pack", name, (named, settings.source), lambda: PackBackend(named, context), lease)
        return {name: ConfiguredBackend(name, BackendSettings(), kept, name)}

    def _hold(self, kind: str, name: str, key: object, make: Callable[[], Backend], lease: Lease) -> ManagedBackend:
        return lease.hold(
            kind,
            key,
            lambda: ManagedBackend(make(), self._redact),
            run=lambda kept: kept.running(lambda: self.changed(name)),
            ends_in=ENDING_SECONDS,
        )

    def _backend_context(self, settings: Settings) -> BackendContext:
        directory = Path(settings.source).parent if settings.source else Path()
        return BackendContext(self._runner(settings), self._redact, directory)

    def take_effect(self, backends: BackendSet) -> None:
        """Offer these from now on."""
        gone = self._now.sources.keys() - backends.sources.keys()
        self._now = backends
        for server in gone:
            self._catalog.remove(server)
            if self._pins is not None:
                self._pins.forget(server)
        for offer in backends.offers():
            self._catalog.update(self._as_agreed(offer))

    def review_pins(self) -> None:
        """Decide anew what is listed: what was agreed to is different now."""
        for offer in self._now.offers():
            if self._is_pinned(offer.server):
                self._catalog.update(self._as_agreed(offer))

    def _is_pinned(self, server: str) -> bool:
        one = self._now.by_name.get(server)
        return one is not None and one.is_pinned

    def _as_agreed(self, offer: Offer) -> Offer:
        """What is listed of an offer. One without tools is of a document that was not read."""
        if self._pins is None or not offer.tools or not self._is_pinned(offer.server):
            return offer
        lists = {kind: offer.tools if kind == "tools" else () for kind in KINDS}
        tools = self._pins.listed(offer.server, lists).get("tools", ())
        return replace(offer, tools=tools, withheld=self._pins.withheld(offer.server))

    def asking(self, backends: BackendSet, others: Callable[[Tool], Asks | None]) -> Callable[[Tool], Asks | None]:
        """Finds what decides for the calls of a tool whether a person must agree. `others`: of tools of no backend."""

        def asks(tool: Tool) -> Asks | None:
            one = backends.by_name.get(tool.name if tool.server == TOOLS else tool.server)
            if one is not None:
                return _asks_of(one.backend)
            return self._extra_asks if tool.server == TOOLS and self.extra.are_any else others(tool)

        return asks

    def _extra_asks(self, call: Call) -> str | Awaitable[str]:
        backend = self.extra.run_of(call)
        asks = _asks_of(backend) if backend is not None else None
        return asks(call) if asks is not None else ""

    def changed(self, name: str) -> None:
        """A backend has other tools, or another state."""
        one = self._now.by_name.get(name)
        if one is not None:
            condition = one.condition
            if condition.state == "failed":
                log.warning("backend failed", backend=name, reason=self._redact(condition.reason))
            for offer in self._now.offers():
                if offer.server == one.server:
                    self._catalog.update(self._as_agreed(offer))
        self._on_change()

    @property
    def have_settled(self) -> bool:
        """No backend is starting any more."""
        return all(one.condition.state != "starting" for one in self._now.by_name.values())

    def why_missing(self, name: str) -> UpstreamUnavailable | ToolInactive | None:
        """Why a tool of this name is not there: its backend could not be started, or is starting."""
        for one in self._now.by_name.values():
            condition = one.condition
            own = one.name if one.server == TOOLS else ""
            begins = (f"{one.name}__", f"{one.name}/", f"{one.name}.")
            if condition.state != "ready" and (name in (own, f"{TOOLS}/{own}") or name.startswith(begins)):
                reason = self._redact(condition.reason).rstrip(". ") or "it is starting"
                if condition.is_lasting:
                    return ToolInactive(f"{TOOLS}/{one.name}", reason, "")
                return UpstreamUnavailable(f"{TOOLS}/{one.name}", reason)
        return None

    def listed(self) -> dict[str, tuple[bytes, ...]]:
        """The definitions of each server of which all backends are ready, that of single tools always among them."""
        found: dict[str, tuple[bytes, ...]] = {TOOLS: ()}
        for one in self._now.by_name.values():
            found[one.server] = (*found.get(one.server, ()), *one.offered)
        late = {one.server for one in self._now.by_name.values() if one.condition.state != "ready"}
        return {server: tools for server, tools in found.items() if server not in late}

    def names(self) -> Mapping[str, ConfiguredBackend]:
        """The backends in effect."""
        return self._now.by_name

    async def check(self, name: str) -> Health:
        """Look whether a backend works. Never raises but for an unknown name (KeyError)."""
        one = self._now.by_name[name]
        if one.settings.unavailable or one.managed.failed is not None:
            return Health(ok=False, detail=self._redact(one.condition.reason))
        began = time.monotonic()
        try:
            with anyio.fail_after(_CHECK_SECONDS):
                return await one.backend.check()
        except TimeoutError:
            return Health(ok=False, detail="no answer in time", seconds=round(time.monotonic() - began, 3))
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_asked_to_end():
                raise
            return Health(ok=False, detail=self._error_text(error), seconds=round(time.monotonic() - began, 3))

    async def command(self, name: str, command: str, data: Mapping[str, Any]) -> Any:
        """Have a backend do a management command; returns a JSON value.

        Raises:
            UnknownName: there is no such backend, or it has no such command.
            UpstreamError: it failed, or the backend cannot be used as it is configured.
        """
        one = self._now.by_name.get(name)
        if one is None:
            raise UnknownName("backend", name, candidates=lambda: nearest(name, self._now.by_name))
        self._require_started(one, f"{TOOLS}/{name}" if one.server == TOOLS else name)
        limit = asyncio.timeout(_COMMAND_SECONDS)
        try:
            async with limit:
                return await one.backend.command(command, data)
        except BridgeError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_asked_to_end():
                raise
            if limit.expired():
                raise UpstreamTimeout(name, _COMMAND_SECONDS) from error
            raise UpstreamUnavailable(name, f"{command!r} failed: {self._error_text(error)}") from error

    def _error_text(self, error: BaseException) -> str:
        return self._redact(f"{type(error).__name__}: {error}".removesuffix(": "))[:300]

    async def try_again(self) -> None:
        """Try those that failed: what was wrong may have been mended meanwhile."""
        for name, one in self._now.by_name.items():
            if one.condition.state == "failed" and not one.settings.unavailable:
                await self.check(name)

    def status(self) -> list[dict[str, Any]]:
        """How each is, as JSON values."""
        return [
            {
                "name": one.name,
                "kind": one.backend.kind,
                "state": one.condition.state,
                "reason": self._redact(one.condition.reason),
                "tools": len(one.offered),
                **(self._pins.status(one.name) if self._pins is not None and one.is_pinned else {}),
            }
            for one in self._now.by_name.values()
        ]

    def _handlers(self, by_name: Mapping[str, ConfiguredBackend]) -> dict[str, Run]:
        singles = {one.name: one for one in by_name.values() if one.server == TOOLS}
        serve = {one.server: partial(self._run, one) for one in by_name.values() if one.server != TOOLS}

        def single(call: Call) -> Awaitable[Body]:
            if call.target not in runs and (extra := self.extra.run_of(call)) is not None:
                return self._serving.serve(call, extra.run, _TIMEOUTS)
            return runner_of(runs, call)(call)

        runs: dict[str, Run] = {name: partial(self._run, one) for name, one in singles.items()}
        return {**serve, TOOLS: single}

    def _require_started(self, one: ConfiguredBackend, upstream: str) -> None:
        if one.settings.unavailable or one.managed.failed is not None:
            raise UpstreamUnavailable(upstream, self._redact(one.condition.reason))

    async def _run(self, one: ConfiguredBackend, call: Call) -> Body:
        self._require_started(one, call.upstream)
        return await self._serving.serve(call, one.backend.run, one.settings.timeouts)


def _asks_of(backend: Backend) -> Asks | None:
    """What a backend says of its calls: its `asks`, where it has one."""
    return getattr(backend, "asks", None)


def _sources(by_name: Mapping[str, ConfiguredBackend]) -> dict[str, OfferSettings]:
    sources: dict[str, OfferSettings] = {one.server: one.settings for one in by_name.values() if one.server != TOOLS}
    singles = {one.name: _as_tool_settings(one) for one in by_name.values() if one.server == TOOLS}
    if singles:
        sources[TOOLS] = OfferSettings(trusted=True, tool=singles)
    return sources


def _seconds(own: BackendSettings, kind: str, in_sandbox: float) -> float:
    """How long a call may take without progress, where nothing is said of that."""
    if kind in _REMOTE:
        return CALL_SECONDS
    if kind == "command":  # its program ends first, so that what it wrote by then is told
        sandbox = getattr(own, "sandbox", None)
        seconds: float = getattr(own, "timeout", None) or getattr(sandbox, "timeout", None) or in_sandbox
        return seconds + _TELLING_SECONDS
    return LOCAL_SECONDS


def _as_tool_settings(one: ConfiguredBackend) -> ToolSettings:
    """What is set of a backend, as what is set of a tool."""
    settings = one.settings
    given: dict[str, Any] = {key: getattr(settings, key) for key in CallSettings.model_fields}
    if given["call_timeout"] is None:
        given["call_timeout"] = one.seconds
    return ToolSettings(
        **given,
        max_concurrent=settings.max_concurrent,
        rate_limit=settings.rate_limit,
        results=settings.results,
        tags=settings.tags,
        trusted=settings.trusted,
    )
