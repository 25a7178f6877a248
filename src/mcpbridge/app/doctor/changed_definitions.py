"""What servers that the doctor has started show and nobody agreed to: as a running bridge compares it.

It is compared with `servers.lock` where there is one, else with what a bridge saw of them first. Nothing is written.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from mcpbridge.app.doctor.config_file import Source
from mcpbridge.app.doctor.daemon import broken_lock, changed_definition
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.app.doctor.start_servers import Boot
from mcpbridge.base.directories import state_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.catalog.pins.lock_file import Lock, lock_path, read_definition, read_lock
from mcpbridge.catalog.pins.review import (
    Baseline,
    LockBaseline,
    Rules,
    SightBaseline,
    review_facts,
    review_instructions,
    review_lists,
    unknown_server,
)
from mcpbridge.catalog.pins.review import Finding as Change
from mcpbridge.catalog.pins.server_pins import name_of
from mcpbridge.catalog.pins.trusted_lock import lock_is_trusted
from mcpbridge.config.schema import Settings
from mcpbridge.core.model import TOOLS
from mcpbridge.engine.pins.current_pins import how_it_is_reached
from mcpbridge.engine.pins.first_sight import SightStore
from mcpbridge.engine.pins.words import as_json
from mcpbridge.upstream.session.listings import Lists


def about_changes(
    settings: Settings,
    boots: Mapping[str, Boot],
    tables: Mapping[str, tuple[bytes, ...]],
    source: Source,
    environ: Mapping[str, str],
    redact: Callable[[str], str],
) -> Iterator[Finding]:
    """What these servers show and nobody agreed to, each with the command that agrees to it.

    `tables`: by name of a table of `[tools]`, the tools that it has of another machine.
    """
    if settings.source is None:
        return
    path = lock_path(Path(settings.source))
    lock: Lock | None = None
    try:
        lock = read_lock(path)
        why = lock_is_trusted(path, environ=environ)
        why = f"the lock {why}" if why else ""
    except ConfigError as error:
        why = str(error)
    if why:
        yield broken_lock(str(path), why)
        return
    sights = SightStore(state_directory(environ) / "pins")
    sights.follow(settings.source)
    names = {
        **{name: tuple(boot.lists.get("tools", ())) for name, boot in boots.items()},
        **tables,
    }
    others = partial(_others, names={name: _names(of) for name, of in names.items()})
    for name, boot in boots.items():
        own = settings.servers[name]
        policy = own.pin or settings.pin or ("hold" if lock is not None else "warn")
        if not boot.is_ready or policy == "off":
            continue
        rules = Rules(policy == "hold", (*settings.pin_ignore, *own.pin_ignore))
        if lock is not None:
            baseline: Baseline = LockBaseline(lock, name, partial(read_definition, path))
            facts: dict[Any, bytes] = dict(how_it_is_reached(own, redact, boot.package))
        else:
            baseline, facts = SightBaseline(sights.sight(name).definitions()), {}
        if boot.identity:
            facts["identity"] = msgspec.json.encode(boot.identity)
        for change in _changes(boot, baseline, rules, facts, partial(others, name)):
            yield _finding(name, change, source)
    policy = settings.pin or ("hold" if lock is not None else "warn")
    for name, tools in tables.items() if policy != "off" else ():
        lists: Lists = {"tools": tools}
        if lock is not None:
            baseline = LockBaseline(lock, name, partial(read_definition, path))
        else:
            baseline = SightBaseline(sights.sight(name).definitions())
        rules = Rules(policy == "hold", tuple(settings.pin_ignore))
        for change in _changes_of_lists(lists, baseline, rules, partial(others, name)):
            yield _finding(name, change, source, TOOLS)


def _finding(name: str, change: Change, source: Source, section: str = "") -> Finding:
    shown = as_json(name, change)
    return changed_definition(name, str(shown["text"]), str(shown["approve"]), source, section)


def _changes(
    boot: Boot,
    baseline: Baseline,
    rules: Rules,
    facts: Mapping[Any, bytes],
    others: Callable[[], Collection[str]],
) -> Iterator[Change]:
    if not (isinstance(baseline, LockBaseline) and baseline.is_empty):  # else it is all one change
        yield from review_instructions(boot.instructions, baseline, rules).findings
        yield from review_facts(facts, baseline)
    yield from _changes_of_lists(boot.lists, baseline, rules, others)


def _changes_of_lists(
    lists: Lists, baseline: Baseline, rules: Rules, others: Callable[[], Collection[str]]
) -> Iterator[Change]:
    if isinstance(baseline, LockBaseline) and baseline.is_empty:
        yield from unknown_server(lists, rules).findings
        return
    yield from review_lists(lists, baseline, rules, others).findings


def _names(tools: Iterable[bytes]) -> set[str]:
    return {name for name in (name_of("tools", one) for one in tools) if name}


def _others(server: str, names: Mapping[str, Collection[str]]) -> Collection[str]:
    """Names of tools that only other servers have."""
    own = {*names.get(server, ())}
    return {one for other, of in names.items() if other != server for one in of} - own
