"""Tools that no server has (of `[tools]`, of packs, built-in ones), and what is wrong with those that do not work."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.failures import unavailable
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.app.doctor.report import ToolReport
from mcpbridge.base.errors import BridgeError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import BUILTIN, TOOLS
from mcpbridge.library.bridge import Bridge


@dataclass(frozen=True, slots=True)
class LookedTools:
    """What was found of these tools."""

    reports: list[ToolReport] = field(default_factory=list[ToolReport])
    why_not: str = ""
    """Why none could be looked at; empty: they were."""
    pinned: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    """Of tables whose definitions come from another machine, by name: the tools that they offer now."""


async def look_at_tools(settings: Settings, redact: Redactor) -> LookedTools:
    """Make these tools and look at each, in a bridge without servers; `check` of each is harmless."""
    if not settings.tools and not settings.packs and not settings.builtin.enable:
        return LookedTools()
    alone: dict[str, Any] = {"servers": {}, "approval": settings.approval.model_copy(update={"ask": []})}
    try:
        async with Bridge(settings.model_copy(update=alone), redact=redact, is_whole=False) as bridge:
            await bridge.startup.settled()
            found = {one.name: one for one in await bridge.health_checks.check_all() if one.kind == "backend"}
            status = bridge.status()
            tables = bridge.backends.names().items()
            pinned = {name: tuple(one.offered) for name, one in tables if one.is_pinned and one.offered}
    except BridgeError as error:
        return LookedTools(why_not=redact(str(error)))
    looked = {name: (one.ok, redact(one.detail)) for name, one in found.items()}
    return LookedTools(_reports(status, settings, looked), pinned=pinned)


def running_tools(status: Mapping[str, Any], settings: Settings) -> list[ToolReport]:
    """How those are that a running bridge has, by its status; empty: it says nothing of any."""
    return _reports(status, settings, {})


def _reports(status: Mapping[str, Any], settings: Settings, looked: Mapping[str, tuple[bool, str]]) -> list[ToolReport]:
    if not status:
        return []
    reports: list[ToolReport] = []
    for one in status.get("backends") or ():
        is_ready, detail = looked.get(one["name"], (one["state"] == "ready", str(one["reason"])))
        reports.append(ToolReport(f"{TOOLS}/{one['name']}", str(one["kind"]), is_ready, detail))
    lacking = {one["name"]: str(one["reason"]) for one in status.get("inactive") or ()}
    own = dict.fromkeys(settings.builtin.enable)
    reports += (ToolReport(f"{BUILTIN}/{name}", "builtin", name not in lacking, lacking.get(name, "")) for name in own)
    return reports


def about_tools(reports: Iterable[ToolReport], why_not: str, source: Source) -> Iterator[Finding]:
    """What is wrong with them. `why_not`: why none could be looked at."""
    if why_not:
        where = str(source.path)
        yield Finding("tools-not-made", "fail", why_not, "", where, "No tool could be looked at.", about="tools")
    for one in reports:
        if not one.is_ready:
            yield _finding(one, source)


def _finding(one: ToolReport, source: Source) -> Finding:
    if one.kind == "builtin":
        where, why = source.where("builtin", "enable"), "Until then it is not listed, and refuses calls."
        return Finding("tool-inactive", "warn", one.detail, one.id, where, why, about="tools")
    if "missing variable" in one.detail:
        return replace(unavailable(one.id, one.detail, source, (TOOLS, one.name)), about="tools")
    is_written = source.where(TOOLS, one.name) if one.kind != "pack" else source.where("packs")
    return Finding("tool-failed", "fail", one.detail or "it does not work", one.id, is_written, about="tools")
