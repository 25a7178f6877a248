"""A configuration as a person decides about it: what misses a variable at the moment is in it as it is written. Pure.

A server whose variable is missing is off, and the rest of it is not used. But the yes of a person also holds when the
variable is there again, so they must see all of it, and the files that it names must count.
"""

from collections.abc import Callable, Mapping
from typing import cast

from pydantic import BaseModel

from mcpbridge.config.schema import Settings

_JUDGED: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("url", "image", "proxy", "cwd", "function", "endpoint", "openapi", "grpc", "descriptor"), str),
    **dict.fromkeys(("env", "headers"), dict),
    "args": list,
    "command": (str, list),
}
"""Of a server or a tool: what a person decides about, and of which kind each is."""


def as_written(
    settings: Settings, whole: Mapping[str, object], complete: Callable[[dict[str, object]], object]
) -> Settings:
    """The settings, in which servers and tools that miss a variable have what `whole` says of them.

    `complete` makes relative paths of a server whole.
    """
    changed: dict[str, object] = {}
    for section in ("servers", "tools"):
        tables = whole.get(section)
        entries = cast("dict[str, BaseModel]", getattr(settings, section))
        lost = {name: entry for name, entry in entries.items() if getattr(entry, "unavailable", None)}
        if not lost or not isinstance(tables, dict):
            continue
        for name, entry in lost.items():
            table = cast("dict[str, object]", tables).get(name)
            if isinstance(table, dict):
                members = dict(cast("dict[str, object]", table))
                if section == "servers":
                    complete(members)
                known = {
                    key: members[key]
                    for key, kind in _JUDGED.items()
                    if key in type(entry).model_fields
                    and isinstance(members.get(key), kind)
                    and _are_texts(members[key])
                }
                lost[name] = entry.model_copy(update=known)
        changed[section] = {**entries, **lost}
    return settings.model_copy(update=changed) if changed else settings


def _are_texts(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(one, str) for one in cast("dict[str, object]", value).values())
    return isinstance(value, str) or all(isinstance(one, str) for one in cast("list[object]", value))
