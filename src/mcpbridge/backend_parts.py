"""All that backends need, built from the settings: what they offer, how calls reach them, how they are.

A backend whose settings are the same goes on over a reload (`holdings.py`); so does one that a program gave.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from mcpbridge.backends.backend import Backend, Condition, Health
from mcpbridge.backends.making import Surroundings, has_several, make
from mcpbridge.backends.serving import Run, Serving, found
from mcpbridge.backends.settings import BackendSettings
from mcpbridge.catalog.refresh import Catalog
from mcpbridge.catalog.snapshot import Offer
from mcpbridge.conduct import CALL_SECONDS, LOCAL_SECONDS, LONGEST_SECONDS, CallSettings
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.extra_tools import ExtraTools
from mcpbridge.errors import BridgeError, ConfigError, UnknownName, UpstreamUnavailable, nearest
from mcpbridge.holdings import Lease
from mcpbridge.logs import get_logger
from mcpbridge.model import OWN, TOOLS, Call
from mcpbridge.sandbox.job import Runner
from mcpbridge.upstream.offer_settings import OfferSettings, ToolSettings
from mcpbridge.wire.body import Body
from mcpbridge.wire.deadlines import Timeouts
from mcpbridge.wire.frame import encode

__all__ = ["BackendConcerns", "BackendParts", "Given"]

log = get_logger("mcpbridge.backends")

_REMOTE = frozenset({"http", "openapi", "grpc", "agent"})
_CHECK_SECONDS = 30.0
_TELLING_SECONDS = 15.0
_TIMEOUTS = Timeouts(LOCAL_SECONDS, LONGEST_SECONDS)
_UNTOUCHED = frozenset(OfferSettings.model_fields) - {"call_timeout", "max_call_timeout", "retry"}
"""Settings of what is around its calls: a backend is not made anew for them."""


class Given(Struct, frozen=True, eq=False):
    """A backend that a program gave, with what is set of it."""

    backend: Backend
    settings: BackendSettings
    has_several: bool = False
    """Its tools come as those of a server: `NAME/tool`."""


class One(Struct, frozen=True):
    """One backend of a generation."""

    name: str
    settings: BackendSettings
    backend: Backend
    server: str
    """The server that its tools are of."""
    seconds: float = LOCAL_SECONDS
    """How long a call may take without progress, where nothing is said of that."""

    @property
    def condition(self) -> Condition:
        """How it is."""
        return Condition("failed", self.settings.unavailable) if self.settings.unavailable else self.backend.condition

    @property
    def offered(self) -> tuple[bytes, ...]:
        """The definitions of its tools."""
        return () if self.settings.unavailable else tuple(encode(dict(tool)) for tool in self.backend.tools)


class BackendConcerns(Struct, frozen=True):
    """What follows from one reading of the settings."""

    ones: Mapping[str, One]
    """By the name of the table."""
    sources: Mapping[str, OfferSettings]
    """What is set of their tools, by server."""
    serve: Mapping[str, Run]
    """The end of the way of their calls, by server."""

    def offers(self) -> Iterator[Offer]:
        """What each server offers; also the one that single tools are of."""
        offered: dict[str, tuple[bytes, ...]] = dict.fromkeys(self.sources, ())
        for one in self.ones.values():
            offered[one.server] += one.offered
        for server, tools in offered.items():
            yield Offer(server, tools)


class BackendParts:
    """What one bridge has for all its life, whatever the settings are."""

    def __init__(
        self,
        catalog: Catalog,
        serving: Serving,
        runner: Callable[[Settings], Runner],
        redact: Callable[[str], str],
        noticed: Callable[[], None],
    ) -> None:
        """Touches nothing. `runner`: the sandbox of these settings; `noticed`: told when a backend's state changes."""
        self._catalog, self._serving, self._redact, self._noticed = catalog, serving, redact, noticed
        self._runner = runner
        self._now = BackendConcerns({}, {}, {})
        self.extra = ExtraTools(None)
        """What single sessions have besides."""

    def concerns(self, settings: Settings, given: Mapping[str, Given], lease: Lease) -> BackendConcerns:
        """What these settings come to; nothing is different before `take_effect`. `lease` holds what runs."""
        ones: dict[str, One] = {}
        for name, own in sorted(settings.tools.items()):
            if not own.disabled:
                ones[name] = self._one(name, own, settings, lease)
        for name in settings.packs:
            pack = self._pack(name, settings, lease)
            for taken in pack.keys() & {*ones, *settings.servers}:
                raise ConfigError(f"there is a server or a tool {taken!r} already", key="packs")
            ones |= pack
        for name, one in sorted(given.items()):
            if not one.settings.disabled:
                if name in ones or name in settings.servers or name in OWN:
                    raise ConfigError(f"there is a server or a tool {name!r} already", key=f"tools.{name}")
                backend = lease.hold("given", (name, one), lambda one=one: one.backend, run=self._run_of(name))
                ones[name] = One(name, one.settings, backend, name if one.has_several else TOOLS)
        return BackendConcerns(ones, _sources(ones), self._serve(ones))

    def _one(self, name: str, own: BackendSettings, settings: Settings, lease: Lease) -> One:
        around = self._surroundings(settings)
        decisive = type(own), own.model_dump(exclude=set(_UNTOUCHED)), settings.source
        if own.unavailable:
            backend = make(name, own, around)  # it never runs
        else:
            key = (name, decisive, settings.sandbox)
            backend = lease.hold("backend", key, partial(make, name, own, around), run=self._run_of(name))
        seconds = _seconds(own, backend.kind, settings.sandbox.timeout)
        return One(name, own, backend, name if has_several(own) else TOOLS, seconds)

    def _pack(self, named: str, settings: Settings, lease: Lease) -> dict[str, One]:
        from mcpbridge.backends.packs import PackBackend, pack_name

        around, name = self._surroundings(settings), pack_name(named)
        backend = lease.hold(
            "pack", (named, settings.source), lambda: PackBackend(named, around), run=self._run_of(name)
        )
        return {name: One(name, BackendSettings(), backend, name)}

    def _surroundings(self, settings: Settings) -> Surroundings:
        directory = Path(settings.source).parent if settings.source else Path()
        return Surroundings(self._runner(settings), self._redact, directory)

    def _run_of(self, name: str) -> Callable[[Backend], Any]:
        return lambda backend: backend.running(lambda: self.changed(name))

    def take_effect(self, concerns: BackendConcerns) -> None:
        """Offer these from now on."""
        gone = self._now.sources.keys() - concerns.sources.keys()
        self._now = concerns
        for server in gone:
            self._catalog.remove(server)
        for offer in concerns.offers():
            self._catalog.update(offer)

    def changed(self, name: str) -> None:
        """A backend has other tools, or another state."""
        one = self._now.ones.get(name)
        if one is not None:
            condition = one.condition
            if condition.state == "failed":
                log.warning("backend failed", backend=name, reason=self._redact(condition.reason))
            for offer in self._now.offers():
                if offer.server == one.server:
                    self._catalog.update(offer)
        self._noticed()

    @property
    def have_settled(self) -> bool:
        """No backend is starting any more."""
        return all(one.condition.state != "starting" for one in self._now.ones.values())

    def why_missing(self, name: str) -> UpstreamUnavailable | None:
        """Why a tool of this name is not there: its backend could not be started, or is starting."""
        for one in self._now.ones.values():
            condition = one.condition
            own = one.name if one.server == TOOLS else ""
            begins = (f"{one.name}__", f"{one.name}/", f"{one.name}.")
            if condition.state != "ready" and (name in (own, f"{TOOLS}/{own}") or name.startswith(begins)):
                reason = self._redact(condition.reason) or "it is starting"
                return UpstreamUnavailable(f"{TOOLS}/{one.name}", reason)
        return None

    def names(self) -> Mapping[str, One]:
        """The backends in effect."""
        return self._now.ones

    async def check(self, name: str) -> Health:
        """Look whether a backend works. Never raises but for an unknown name (KeyError)."""
        one = self._now.ones[name]
        if one.settings.unavailable:
            return Health(ok=False, detail=one.settings.unavailable)
        began = time.monotonic()
        try:
            with anyio.fail_after(_CHECK_SECONDS):
                return await one.backend.check()
        except TimeoutError:
            return Health(ok=False, detail="no answer in time", seconds=round(time.monotonic() - began, 3))
        except Exception as error:  # noqa: BLE001 - a backend's own code; the answer is that it does not work
            text = self._redact(f"{type(error).__name__}: {error}")
            return Health(ok=False, detail=text[:300], seconds=round(time.monotonic() - began, 3))

    async def command(self, name: str, command: str, data: Mapping[str, Any]) -> Any:
        """Have a backend do a management command; returns a JSON value.

        Raises:
            UnknownName: there is no such backend, or it has no such command.
            UpstreamError: it failed.
        """
        one = self._now.ones.get(name)
        if one is None or one.settings.unavailable:
            raise UnknownName("backend", name, candidates=lambda: nearest(name, self._now.ones))
        try:
            return await one.backend.command(command, data)
        except BridgeError:
            raise
        except Exception as error:
            told = self._redact(f"{type(error).__name__}: {error}")[:300]
            raise UpstreamUnavailable(name, f"{command!r} failed: {told}") from error

    async def try_again(self) -> None:
        """Try those that failed: what was wrong may have been mended meanwhile."""
        for name, one in self._now.ones.items():
            if one.condition.state == "failed" and not one.settings.unavailable:
                await self.check(name)

    def standing(self) -> list[dict[str, Any]]:
        """How each is, as JSON values."""
        return [
            {
                "name": one.name,
                "kind": one.backend.kind,
                "state": one.condition.state,
                "reason": self._redact(one.condition.reason),
                "tools": len(one.offered),
            }
            for one in self._now.ones.values()
        ]

    def _serve(self, ones: Mapping[str, One]) -> dict[str, Run]:
        singles = {one.name: one for one in ones.values() if one.server == TOOLS}
        serve = {one.server: partial(self._run, one) for one in ones.values() if one.server != TOOLS}

        def single(call: Call) -> Awaitable[Body]:
            if call.target not in runs and (extra := self.extra.run_of(call)) is not None:
                return self._serving.serve(call, extra.run, _TIMEOUTS)
            return found(runs, call)(call)

        runs: dict[str, Run] = {name: partial(self._run, one) for name, one in singles.items()}
        return {**serve, TOOLS: single}

    async def _run(self, one: One, call: Call) -> Body:
        if one.settings.unavailable:
            raise UpstreamUnavailable(call.upstream, one.settings.unavailable)
        return await self._serving.serve(call, one.backend.run, one.settings.timeouts)


def _sources(ones: Mapping[str, One]) -> dict[str, OfferSettings]:
    sources: dict[str, OfferSettings] = {one.server: one.settings for one in ones.values() if one.server != TOOLS}
    singles = {one.name: _of_single(one) for one in ones.values() if one.server == TOOLS}
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


def _of_single(one: One) -> ToolSettings:
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
