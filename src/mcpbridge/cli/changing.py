"""What `add`, `remove`, `enable` and `disable` share: the configuration is changed, checked as a whole, and written."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct

from mcpbridge.builtin.defaults import NAMES
from mcpbridge.cli.daemons import survey
from mcpbridge.cli.exits import USAGE, CommandFailed, fail
from mcpbridge.cli.launching import configuration_to_write
from mcpbridge.cli.output import print_json, print_text, visible
from mcpbridge.cli.said import Wish, holds_against, how_to_undo, said_over, told
from mcpbridge.client_files.configuration import prepared, write
from mcpbridge.client_files.file_writing import decoded, read_bytes
from mcpbridge.config.editing import switch
from mcpbridge.doctor.fixing import difference
from mcpbridge.errors import ConfigError, nearest
from mcpbridge.model import BUILTIN, TOOLS
from mcpbridge.over_http import Section

__all__ = ["What", "change", "owner_of", "switch_named"]

_PATIENCE = 60.0


class What(Struct, frozen=True):
    """What a command changes, and what that is to come to."""

    section: Section
    name: str
    wish: Wish
    tool: str = ""
    """One tool of it; empty: the whole."""


def switch_named(name: str, config: str | None, *, to: Literal["on", "off"], is_dry: bool, as_json: bool) -> None:
    """Switch on or off what a name stands for in the configuration. Raises as `change`."""
    path = configuration_to_write(config, os.environ)
    section, owner, tool = owner_of(path, name)
    change(
        path,
        lambda text: switch(text, section, owner, on=to == "on", tool=tool),
        What(section, owner, to, tool),
        done=f"{name} is switched {to}",
        is_dry=is_dry,
        as_json=as_json,
    )


def change(
    path: Path,
    edit: Callable[[str], str],
    what: What,
    *,
    done: str,
    is_dry: bool,
    as_json: bool,
) -> None:
    """Change the configuration and say what was `done`. Running bridges take it in; a wrong change changes nothing.

    Raises:
        ConfigError: the file, or what it would come to, is wrong, or it cannot be written.
        CommandFailed: it has no effect, since something else was said over the API or by a program.
    """
    change = prepared(path, edit, os.environ)
    before, after, named, path = change.before, change.after, path, change.path
    if change.loaded is not None and not is_dry:
        write(change, os.environ)
    heard = [] if is_dry or after == before else _taken_in(path)
    _show(path, before, after, heard, done=done, is_dry=is_dry, as_json=as_json)
    if not is_dry:
        _require_effect(named, what)


def _show(
    path: Path,
    before: str,
    after: str,
    heard: Sequence[Mapping[str, object]],
    *,
    done: str,
    is_dry: bool,
    as_json: bool,
) -> None:
    if as_json:
        print_json(
            {
                "config": str(path),
                "changed": after != before,
                "written": after != before and not is_dry,
                "bridges": heard,
            }
        )
        return
    if after == before:
        print_text(f"nothing to change in {path}")
        return
    print_text(f"{'would change' if is_dry else 'changed'} {path}: {done}")
    if is_dry:
        print_text(difference(before, after, path.name))
    for one in heard:
        told_wrong = cast("Mapping[str, object]", one.get("config_error") or {})
        pid, wrong = one.get("pid"), one.get("error") or told_wrong.get("message")
        print_text(visible(f"process {pid}: {wrong}" if wrong else f"process {pid} has taken it in"))


def _require_effect(path: Path, what: What) -> None:
    """Look whether something lies over the file that is in the way."""
    for said in said_over(path):
        is_it = (said["section"], said["name"]) == (what.section, what.name)
        if is_it and holds_against(said, what.tool, what.wish):
            advice = how_to_undo(said, what.tool, what.wish)
            fail(USAGE, visible(f"it has no effect on bridges: {told(said)}"), visible(advice))


def _taken_in(path: Path) -> list[dict[str, object]]:
    """What running bridges say to it."""
    return [dict(one.ask("reload", patience=_PATIENCE)) for one in survey(path).bridges]


def owner_of(path: Path, name: str) -> tuple[Section, str, str]:
    """Where a name stands in the configuration: section, table, and the tool of it that is meant; empty: the whole."""
    import tomllib

    data = read_bytes(path.resolve())
    try:
        document = tomllib.loads(decoded(data, path).replace("\r\n", "\n")) if data is not None else {}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}", file=str(path)) from error
    servers, tools = document.get("servers", {}), document.get("tools", {})
    head, _, rest = name.partition("/")
    if head == TOOLS and rest in tools:
        return "tools", rest, ""
    sections: list[tuple[Section, dict[str, object]]] = [("servers", servers), ("tools", tools)]
    for section, known in sections:
        if name in known:
            return section, name, ""
        if rest and head in known:
            return section, head, rest
    names = [*servers, *(f"{TOOLS}/{tool}" for tool in tools)]
    close = nearest(name, names, limit=1)
    advice = f"Did you mean `{close[0]}`?" if close else f"There are: {', '.join(names) or 'none'}."
    advice = next(_elsewhere(path, document, name), advice)
    raise CommandFailed(USAGE, visible(f"{path} has no server or tool {name[:100]!r}"), visible(advice))


def _elsewhere(path: Path, document: Mapping[str, Any], name: str) -> Iterator[str]:
    """Where a name stands that is in neither section, and what can be done there."""
    head = name.removeprefix(f"{TOOLS}/").partition("/")[0]
    if (own := name.removeprefix(f"{BUILTIN}/")) in NAMES:
        yield f"`{own}` is a built-in tool: it is there if `builtin.enable` names it."
    for pack in _texts(document.get("packs")):
        from mcpbridge.backends.pack_names import pack_name

        if pack_name(pack) == head:
            yield f"{head!r} is the pack {pack!r}: it is there if `packs` names it."
    for said in said_over(path):
        if said["name"] == head:
            yield f"{told(said)}. `DELETE /api/{said['section']}/{head}` takes it out."
    if specs := _texts(document.get("spec")):
        from mcpbridge.config.load import read

        if head in read(path, os.environ).settings.tools:
            yield f"{head!r} is described in a file of `spec` ({', '.join(specs)}): change it there."


def _texts(value: object) -> list[str]:
    return [one for one in cast("list[object]", value) if isinstance(one, str)] if isinstance(value, list) else []
