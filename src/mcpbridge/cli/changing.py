"""What `add`, `remove`, `enable` and `disable` share: the configuration is changed, checked as a whole, and written."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from mcpbridge.cli.daemons import survey
from mcpbridge.cli.exits import USAGE, CommandFailed
from mcpbridge.cli.output import print_json, print_text, visible
from mcpbridge.client_files.configuration import prepared, write
from mcpbridge.client_files.file_writing import decoded, read_bytes
from mcpbridge.doctor.fixing import difference
from mcpbridge.errors import ConfigError, nearest
from mcpbridge.model import TOOLS
from mcpbridge.over_http import Section

__all__ = ["change", "owner_of"]

_PATIENCE = 60.0


def change(
    path: Path,
    edit: Callable[[str], str],
    *,
    done: str,
    is_dry: bool,
    as_json: bool,
) -> None:
    """Change the configuration and say what was `done`. Running bridges take it in; a wrong change changes nothing.

    Raises:
        ConfigError: the file, or what it would come to, is wrong, or it cannot be written.
    """
    change = prepared(path, edit, os.environ)
    before, after, path = change.before, change.after, change.path
    if change.loaded is not None and not is_dry:
        write(change, os.environ)
    told = [] if is_dry or after == before else _taken_in(path)
    if as_json:
        print_json(
            {
                "config": str(path),
                "changed": after != before,
                "written": after != before and not is_dry,
                "bridges": told,
            }
        )
        return
    if after == before:
        print_text(f"nothing to change in {path}")
        return
    print_text(f"{'would change' if is_dry else 'changed'} {path}: {done}")
    if is_dry:
        print_text(difference(before, after, path.name))
    for one in told:
        told_wrong = cast("Mapping[str, object]", one.get("config_error") or {})
        pid, wrong = one.get("pid"), one.get("error") or told_wrong.get("message")
        print_text(visible(f"process {pid}: {wrong}" if wrong else f"process {pid} has taken it in"))


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
    raise CommandFailed(USAGE, f"{path} has no server or tool {name[:100]!r}", advice)
