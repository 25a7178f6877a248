"""Which configuration file is read: the search order, and which files somebody else could have written.

The stdio proxy waits for this module: standard library only, and no `pathlib`.
"""

# for that reason:
# ruff: noqa: PTH111, PTH113, PTH116, PTH118

import os
import sys
from collections.abc import Mapping

from mcpbridge.base.directories import users_config_path

FILE_NAME = "servers.toml"


def named_config(explicit: str | None, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The file that somebody named and where: `--config`, or else `$MCPBRIDGE_CONFIG`. It may not be there."""
    for named, source in ((explicit, "--config"), (environ.get("MCPBRIDGE_CONFIG"), "$MCPBRIDGE_CONFIG")):
        if named:
            return os.path.expanduser(named), source
    return None


def find_config(explicit: str | None, environ: Mapping[str, str], *, here: bool = True) -> str | None:
    """Which file to read: `explicit`, `$MCPBRIDGE_CONFIG`, `./servers.toml`, the user's configuration directory.

    `here` False leaves `./servers.toml` out: clients start the bridge in whatever directory is opened, and a cloned
    repository must not have its commands run unasked. One that others could have put there is left out in any case.
    None: a named one is not there, or none is named and there is none.
    """
    if (named := named_config(explicit, environ)) is not None:
        return named[0] if os.path.isfile(named[0]) else None
    if here and os.path.isfile(FILE_NAME) and is_ours(FILE_NAME):
        return FILE_NAME
    users = os.path.join(users_config_path(environ), FILE_NAME)
    return users if os.path.isfile(users) else None


def is_ours(file: str) -> bool:
    """Only this user, or root, can have written what stands in it, as far as its owner and mode tell."""
    if sys.platform == "win32":
        return True
    found = os.stat(file)
    return found.st_uid in (0, os.getuid()) and not found.st_mode & 0o002
