"""What servers that the doctor has started show and nobody agreed to: as a running bridge compares it.

It is compared with `servers.lock` where there is one, else with what a bridge saw of them first. Nothing is written.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
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
from mcpbridge.engine.pins.current_pins import how_it_is_reached
from mcpbridge.engine.pins.first_sight import SightStore
from mcpbridge.engine.pins.words import as_json


def about_changes(
    settings: Settings,
    boots: Mapping[str, Boot],
    source: Source,
    environ: Mapping[str, str],
    redact: Callable[[str], str],
) -> Iterator[Finding]:
    """What these servers show and nobody agreed to, each with the command that agrees to it."""
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
        for change in _changes(name, boot, baseline, rules, facts, boots):
            told = as_json(name, change)
            yield changed_definition(name, str(told["text"]), str(told["approve"]), source)


def _changes(
    name: str,
    boot: Boot,
    baseline: Baseline,
    rules: Rules,
    facts: Mapping[Any, bytes],
    boots: Mapping[str, Boot],
) -> Iterator[Change]:
    if isinstance(baseline, LockBaseline) and baseline.is_empty:
        yield from unknown_server(boot.lists, rules).findings
        return
    yield from review_instructions(boot.instructions, baseline, rules).findings
    yield from review_facts(facts, baseline)
    yield from review_lists(boot.lists, baseline, rules, partial(_others, name, boots)).findings


def _others(server: str, boots: Mapping[str, Boot]) -> Collection[str]:
    """Names of tools that only other servers have."""
    names = {name: {name_of("tools", one) for one in boot.lists.get("tools", ())} for name, boot in boots.items()}
    own = names.pop(server, set())
    return {one for of in names.values() for one in of if one} - own
