"""The `store` and `call_log` sections of the configuration, and the paths of both files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from mcpbridge.base.directories import state_directory
from mcpbridge.base.units import Bytes, Seconds


class StoreSettings(BaseModel):
    """The `store` section: where the bridge keeps what must survive a call, such as kept results and approvals."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["sqlite", "memory"] = "sqlite"
    """`sqlite`: one file, shared by all bridges of this user and created when first needed. `memory`: nothing survives
    the process."""

    path: str | None = None
    """The file. A relative path starts at the directory of the configuration file. Default: `store.db` in the user's
    state directory (`~/.local/state/mcpbridge` on Linux). It must be on a local disk: SQLite's locks do not work over a
    network."""

    max_bytes: Bytes | None = Field(default=None, ge=1024**2)
    """Bytes of all values together, compressed. Above that the least recently used are deleted, first of the kind that
    takes the most room. Default: 1 GiB in a file, 64 MiB in memory."""

    key: str | None = Field(default=None, min_length=16, repr=False)
    """A secret, such as `${MCPBRIDGE_STORE_KEY}` or `${file:/run/secrets/store}`. With it, values are encrypted before
    they are written (AES-256-GCM). 32 bytes as hex or base64 are best (`openssl rand -base64 32`); any other text is
    used as a passphrase. All bridges that share the file need the same key. Values written without a key stay readable;
    values written with another key count as missing."""


def store_path(settings: StoreSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of the store, whether or not there is one."""
    return Path(settings.path).expanduser() if settings.path else state_directory(environ) / "store.db"


class CallLogSettings(BaseModel):
    """The `call_log` section: a record of every call, which `mcpbridge log` shows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool | None = None
    """`false`: no calls are recorded. `true`: every call is, and is written down before it is sent. Default: a history
    that takes at most some hundredths of a processor, so that calls beyond some hundred a second are only counted;
    where people sign in or have roles, it has every call. A bridge within a program (`Bridge`) has none by default, nor
    has one with `store.kind` `memory`. Decisions on approvals are always recorded."""

    path: str | None = None
    """The file. A relative path starts at the directory of the configuration file. Default: `calls.db` beside the file
    of `store`."""

    keep: Seconds = Field(default=30 * 86400, gt=0)
    """Seconds after which a record is deleted, such as `"30d"`."""

    max_rows: int = Field(default=1_000_000, ge=1)
    """The most records of calls, and the most of approvals, that are kept. The oldest are deleted first."""

    max_size: Bytes = Field(default=200 * 1024**2, ge=1024**2)
    """Bytes of the file. Above that the oldest records are deleted."""

    max_content: Bytes = 64 * 1024
    """Bytes of the arguments, and of the result, that are kept of one call with `log_content`."""


RunMode = Literal["own", "served", "embedded"]
"""How a bridge runs: for its user alone (the daemon, `serve` on stdio), for whoever comes over HTTP (`serve --http`),
or within a program."""

Grade = Literal["all", "history", "off"]
"""Which calls are recorded: each, as many as cost little, or none."""


class Recorded(Struct, frozen=True):
    """What the call log keeps, as the settings say or else how the bridge runs."""

    grade: Grade
    content: bool
    """With arguments and results, unless `log_content` of a tool, its server or all calls says otherwise."""
    is_whole: bool = False
    """Of a history: every call is in it, whatever that costs."""


def recorded(settings: CallLogSettings, store: StoreSettings, mode: RunMode, *, is_shared: bool = False) -> Recorded:
    """What the call log keeps. `is_shared`: several people use the bridge, and each call of theirs is on record.

    Who has values encrypted, or kept nowhere, does not get them into this file unasked; nor who asked for a call log,
    which has content only where `log_content` says so.
    """
    is_unasked = settings.enabled is None and (mode == "embedded" or store.kind == "memory")
    grade: Grade = "off" if settings.enabled is False or is_unasked else "all" if settings.enabled else "history"
    content = grade == "history" and mode == "own" and store.key is None and not is_shared
    return Recorded(grade, content, is_whole=grade == "history" and is_shared)


def call_log_path(settings: CallLogSettings, store: StoreSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of the call log, whether or not there is one.

    It is a file of its own: many small writes must not hold up who waits for the store, its rows follow other rules of
    keeping, and it can be handed on, or removed, by itself.
    """
    if settings.path:
        return Path(settings.path).expanduser()
    return store_path(store, environ).with_name("calls.db")


def quotas_path(store: StoreSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The file with what was used of quotas, whether or not there is one: beside that of the store."""
    return store_path(store, environ).with_name("quotas.db")
