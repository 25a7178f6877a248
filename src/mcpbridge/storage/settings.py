"""The `[store]` section: where the bridge keeps what outlives a call; and this user's directory for it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.units import Bytes

__all__ = ["StoreSettings", "state_directory", "store_path"]


class StoreSettings(BaseModel):
    """The `store` section: what outlives a call, such as kept results and approvals."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["sqlite", "memory"] = "sqlite"
    """`sqlite`: a file, which all bridges of this user share and which is made when there is something to keep;
    `memory`: nothing outlives the process."""

    path: str | None = None
    """The file; a relative path starts where the configuration is. Left out: `store.db` in the user's state directory
    (`~/.local/state/mcpbridge` on Linux). It belongs on a local disk: SQLite's locks do not work over a network."""

    max_bytes: Bytes | None = Field(default=None, ge=1024**2)
    """Bytes of all values together, compressed. Beyond that those go that were not used for longest, first of the kind
    that takes the most room. Left out: 1 GiB in a file, 64 MiB in memory."""

    key: str | None = Field(default=None, min_length=16, repr=False)
    """A secret, such as `${MCPBRIDGE_STORE_KEY}` or `${file:/run/secrets/store}`: with one, values are encrypted before
    they are written (AES-256-GCM). 32 bytes as hex or base64 are best (`openssl rand -base64 32`); anything else is a
    passphrase. All bridges that share the file need the same one. What was kept without a key stays readable; what was
    kept with another one counts as missing."""


def state_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's bridges keep their state: `mcpbridge` of the state directory. It may not exist yet."""
    asked = environ.get("XDG_STATE_HOME")
    if asked:
        return Path(asked) / "mcpbridge"
    if sys.platform.startswith("linux"):  # as it says there, without the 10 ms that asking takes
        return Path.home() / ".local" / "state" / "mcpbridge"
    from platformdirs import user_state_path

    return user_state_path("mcpbridge", appauthor=False)


def store_path(settings: StoreSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of the store, whether or not there is one."""
    return Path(settings.path).expanduser() if settings.path else state_directory(environ) / "store.db"
