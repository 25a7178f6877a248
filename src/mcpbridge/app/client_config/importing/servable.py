"""Whether the bridge would take a translated server; what it would refuse is mended or left out, with the reason.

The bridge's own check decides, so that nothing is written that it cannot read.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

from mcpbridge.app.client_config.discover.discovered_servers import FoundServer
from mcpbridge.app.client_config.discover.variables import PROJECT
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.check import check, refuse_what_only_loading_sets
from mcpbridge.config.error_messages import dotted

_MAKES_IT = {"command", "args", "env", "cwd", "url", "headers"}
"""Without these it would be another server."""
_MOST_MISTAKES = 50


def servable(entry: FoundServer) -> FoundServer:
    """The same server with only what the bridge would take, or skipped with the reason."""
    if entry.skipped:
        return entry
    server, left_out, notes = dict(entry.server), dict(entry.left_out), list(entry.notes)
    for _ in range(_MOST_MISTAKES):
        mistake = _mistake(server, entry.file)
        if mistake is None:
            return _with(entry, server, left_out, notes)
        key = _key_in(mistake, server)
        if key is None or key in _MAKES_IT:
            return _skipped(entry, _reason(mistake))
        left_out[key] = server.pop(key)
        notes.append(f"`{key}` was left out: {_reason(mistake)}")
    return _skipped(entry, "too much of it would be refused")


def _mistake(server: dict[str, object], file: Path) -> ConfigError | None:
    """What the bridge would say. Variables count as there: what they bring in is known only later."""
    for key, value in server.items():
        try:
            json.dumps({key: value}, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            return ConfigError("there is half a character in it", key=f"servers.it.{dotted([key])}")
        except ValueError:
            return ConfigError("there is a number in it that is none", key=f"servers.it.{dotted([key])}")
    document: dict[str, object] = {"servers": {"it": _without_references(server)}}
    try:
        refuse_what_only_loading_sets(document, str(file), lambda key: None)
        check(document, file, {}, lambda key: None)
    except ConfigError as mistake:
        return mistake
    except RecursionError:
        return ConfigError("nested too deeply")
    return None


def _without_references(value: object, key: str = "") -> object:
    """The value with something harmless where a variable brings something in; where projects may stand is checked."""
    if isinstance(value, str):
        whole = "http://unavailable.invalid" if key in ("url", "proxy") else "1"
        value = re.sub(r"^\$\{[^}]*\}", whole, value) if not value.startswith(PROJECT) else value
        return re.sub(r"(?<!\$)\$\{(?!PROJECT_ROOT\})[^}]*\}", "1", value)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: _without_references(member, name) for name, member in members.items()}
    if isinstance(value, list):
        return [_without_references(item) for item in cast("list[object]", value)]
    return value


def _key_in(mistake: ConfigError, server: dict[str, object]) -> str | None:
    """Which key of the server is wrong, if it is one."""
    key = (mistake.key or "").removeprefix("servers.it").removeprefix(".")
    return next((name for name in server if key == dotted([name]) or key.startswith(f"{dotted([name])}.")), None)


def _reason(mistake: ConfigError) -> str:
    """On one line, and never with a value: the bridge shows values of these files nowhere."""
    what = re.sub(r" \(found .*\)$", "", mistake.what.partition("\n")[0])
    return re.sub(r"\s+", " ", what)


def _skipped(entry: FoundServer, reason: str) -> FoundServer:
    return replace(entry, server={}, skipped=reason)


def _with(entry: FoundServer, server: dict[str, object], left_out: dict[str, object], notes: list[str]) -> FoundServer:
    return replace(entry, server=server, left_out=left_out, notes=tuple(notes))
