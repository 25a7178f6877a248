"""The token of the HTTP front where no other is configured: in a file that only this user can read.

Any user of a machine can open its loopback ports, and so can pages in a browser. The file system keeps this file to
its user, so whoever has the token is that user. It is made at the first start that needs it and stays the same, since
clients have it in their own files.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from mcpbridge.base.directories import state_directory
from mcpbridge.base.errors import ConfigError
from mcpbridge.storage.token_encryption_key import check_private, create_once

_SHORTEST = 32
"""Characters of a token that cannot be guessed."""
_ANEW = "Remove it; a new one is made at the next start, and `mcpbridge install` hands it to clients again."
_OTHERWISE = "Give a token with --token-env VAR, configure `http.tokens`, or let everybody in with --no-auth."


def http_token_path(environ: Mapping[str, str]) -> Path:
    """Where the token is. The file may not exist yet."""
    return state_directory(environ) / "http-token"


def http_token(environ: Mapping[str, str]) -> str:
    """The token of this user, made if there is none yet. Of several processes that make one, one wins.

    Raises:
        ConfigError: it cannot be written or read, or others could have it too.
    """
    path = http_token_path(environ)
    try:
        if not os.path.lexists(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_once(path, f"mcpb_{secrets.token_urlsafe(32)}\n".encode())
        check_private(path)
        token = path.read_text("ascii").strip()
    except ConfigError as error:
        raise ConfigError("others than its user can get at this token", file=str(path), hint=_ANEW) from error
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"the token for HTTP cannot be kept there: {why}", file=str(path), hint=_OTHERWISE) from error
    if len(token) < _SHORTEST or not token.isprintable() or " " in token:
        raise ConfigError("this is no token", file=str(path), hint=_ANEW)
    return token
