"""What a configuration needs from outside before its servers can start: variables and private files."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

_VARIABLE = re.compile(r"(?<!\$)\$\{(?:env:)?(?!PROJECT_ROOT[:}])([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_FILE = re.compile(r"(?<!\$)\$\{file:([^}]+)\}")


def variables_of(config: Path) -> tuple[str, ...]:
    """The names of the variables that servers of a configuration use; none if it cannot be read."""
    try:
        document: object = tomllib.loads(config.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return ()
    servers = cast("dict[str, object]", document).get("servers")
    tables = cast("dict[str, dict[str, object]]", servers) if isinstance(servers, dict) else {}
    on = [table for table in tables.values() if not ("disabled" in table and table["disabled"] is True)]
    return tuple(dict.fromkeys(name for name, _ in variables_in(on)))


def variables_in(value: object) -> Iterator[tuple[str, bool]]:
    """Each variable in a value as it is written, and whether there has to be one: it has no default."""
    for text in _texts(value):
        yield from ((found[1], found[2] is None) for found in _VARIABLE.finditer(text))


def missing_in(server: object, environ: Mapping[str, str], directory: Path) -> list[str]:
    """What a server, as it is written, waits for: `${NAME}` of unset variables and files that are not there.

    `directory`: where relative paths of files start.
    """
    unset = [f"${{{name}}}" for name, is_needed in variables_in(server) if is_needed and name not in environ]
    files = [
        found[0]
        for text in _texts(server)
        for found in _FILE.finditer(text)
        if not (directory / Path(found[1]).expanduser()).is_file()
    ]
    return list(dict.fromkeys([*unset, *files]))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in cast("dict[str, object]", value).values():
            yield from _texts(member)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item)
