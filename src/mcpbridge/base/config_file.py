"""Which configuration file is read: the search order, and which files somebody else could have written.

The stdio proxy waits for this module: standard library only, and no `pathlib`.
"""

# for that reason:
# ruff: noqa: PTH111, PTH113, PTH114, PTH116, PTH118, PTH121

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

    `here` False leaves `./servers.toml` out. One that others could have put there is left out in any case. Of one that
    is a link the target is meant: relative paths in it start where its text was written. Whoever starts something of
    `./servers.toml` first makes sure that a person trusts it (`config/trust/`).
    None: a named one is not there, or none is named and there is none.
    """
    if (named := named_config(explicit, environ)) is not None:
        return named[0] if os.path.isfile(named[0]) else None
    if here and is_found_in_working_directory(explicit, environ):
        return os.path.realpath(FILE_NAME) if os.path.islink(FILE_NAME) else FILE_NAME
    users = os.path.join(users_config_path(environ), FILE_NAME)
    return users if os.path.isfile(users) else None


def is_found_in_working_directory(explicit: str | None, environ: Mapping[str, str]) -> bool:
    """Whether the file to read is one of the working directory that nobody named, and that is not the user's own."""
    if named_config(explicit, environ) is not None or not os.path.isfile(FILE_NAME) or not is_ours(FILE_NAME):
        return False
    users = os.path.join(users_config_path(environ), FILE_NAME)
    return not (os.path.isfile(users) and os.path.samefile(FILE_NAME, users))


def is_ours(file: str) -> bool:
    """Only this user, or root, can have written its content, as far as its owner and mode show."""
    if sys.platform == "win32":
        return True
    found = os.stat(file)
    return found.st_uid in (0, os.getuid()) and not found.st_mode & 0o002
