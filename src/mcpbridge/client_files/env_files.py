"""Variables that a client reads from a file for one server (`envFile` of Cursor and VS Code), put into its `env`."""

import re
from pathlib import Path
from typing import cast

from mcpbridge.client_files.dialects import Translated
from mcpbridge.client_files.reading import read_text
from mcpbridge.errors import ConfigError

__all__ = ["variables_of", "with_env_file"]

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*")
_MOST = 500
"""Variables of one file that are taken."""


def with_env_file(done: Translated, directory: Path, home: Path) -> Translated:
    """The server with the variables of its `envFile`, below those that it has itself.

    `directory`: where a relative path starts that belongs to no project.
    """
    named = done.left_out.get("envFile")
    if not isinstance(named, str) or not named or "command" not in done.server:
        return done
    base = done.server.get("cwd")
    path = Path(base if isinstance(base, str) else directory) / Path(named.replace("${HOME}", str(home)))
    if "${" in str(path):
        done.notes.append("its `envFile` depends on the project: set what stands in it some other way")
        return done
    try:
        given = variables_of(read_text(path))
    except FileNotFoundError:
        done.notes.append(f"its `envFile` {path} is not there")
    except ConfigError as error:
        done.notes.append(f"its `envFile` {path}: {error.what}")
    else:
        own = done.server.get("env")
        done.server["env"] = {**given, **(cast("dict[str, object]", own) if isinstance(own, dict) else {})}
        done.notes.append(f"what stands in its `envFile` {path} now stands in `env`")
        del done.left_out["envFile"]
    return done


def variables_of(text: str) -> dict[str, object]:
    """The variables of a `.env` file: `NAME=value` in lines, with or without quotes; `#` begins a comment."""
    found: dict[str, object] = {}
    for line in text.splitlines():
        if (match := _LINE.fullmatch(line)) and len(found) < _MOST:
            name, value = match.groups()
            if quoted := re.match(r"""(["'])(.*?)\1\s*(?:#.*)?$""", value):
                value = quoted[2]
            else:
                value = re.sub(r"(^|\s+)#.*$", "", value)
            found[name] = value.replace("${", "$${")
    return found
