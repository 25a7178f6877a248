"""The `audit` section of the configuration, and where its files are."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.directories import config_directory, state_directory
from mcpbridge.base.units import Bytes, Seconds

SYSLOG_KINDS = ("udp", "tcp", "tls", "unix")
"""How a syslog server can be reached."""


class AuditSettings(BaseModel):
    """The `audit` section: a record of calls and decisions that nobody can change unseen."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    enabled: bool = False
    """Whether calls and decisions are written to the audit log. `mcpbridge audit show` shows it, and `mcpbridge audit
    verify` finds what was changed."""

    path: str | None = None
    """The folder of the log. A relative path starts at the directory of the configuration file. Default: `audit` in the
    user's state directory (`~/.local/state/mcpbridge` on Linux). All bridges that share it write one chain."""

    arguments: Literal["digest", "masked"] = "digest"
    """What is kept of the arguments of calls. `digest`: their size and SHA-256. `masked`: also themselves, with secrets
    masked."""

    max_arguments: Bytes = Field(default=4096, ge=64)
    """Bytes of the arguments that are kept of one call with `arguments = "masked"`."""

    segment_size: Bytes = Field(default=16 * 1024**2, ge=4096)
    """Bytes after which a new file begins. Each day begins a new one too."""

    keep: Seconds = Field(default=365 * 86400, gt=0)
    """Seconds after which a file is deleted, such as `"365d"`, counted from its last line."""

    max_size: Bytes = Field(default=1024**3, ge=8192)
    """Bytes of all files. Above that the oldest are deleted."""

    sync: bool = True
    """Whether lines are on the disk before they count as written, so that a loss of power takes none of them. Calls do
    not wait for it."""

    checkpoint_every: int = Field(default=1000, ge=1)
    """Lines after which a signed checkpoint is kept. One is also kept after ten minutes, with each new file, and when
    the bridge stops."""

    anchor: str | None = None
    """The folder of the signed checkpoints and of the key. A relative path starts at the directory of the configuration
    file. Default: `audit` in the user's configuration directory. Whoever can write to the log should not be able to
    write here."""

    anchor_command: list[str] = []
    """A program that gets each kept checkpoint as one line of JSON on standard input, to keep it on another machine."""

    syslog: str | None = None
    """A syslog server (RFC 5424) that gets every line and checkpoint: `udp://HOST:514`, `tcp://HOST:601`,
    `tls://HOST:6514` or `unix:///dev/log`."""

    otlp: bool = False
    """Whether every line and checkpoint is sent as a log record by OpenTelemetry. The usual `OTEL_*` variables say
    where to. Needs the extra `otel`: `pip install 'mcpbridge[otel]'`."""

    @field_validator("syslog")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None:
            kind, mark, rest = value.partition("://")
            if kind not in SYSLOG_KINDS or not mark or not rest.strip("/"):
                raise ValueError("expected udp://HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH")
        return value


def audit_folder(settings: AuditSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the log, whether or not there is one."""
    return Path(settings.path).expanduser() if settings.path else state_directory(environ) / "audit"


def anchor_folder(settings: AuditSettings, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the checkpoints and the key, whether or not there is one."""
    return Path(settings.anchor).expanduser() if settings.anchor else config_directory(environ) / "audit"
