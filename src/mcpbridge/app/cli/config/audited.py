"""Writes what a command decides into the audit log: the daemon need not run for it."""

import os
from collections.abc import Callable, Mapping
from getpass import getuser
from pathlib import Path

from mcpbridge.app.cli.output import note, visible
from mcpbridge.base.config_file import FILE_NAME
from mcpbridge.base.directories import config_directory
from mcpbridge.base.errors import BridgeError
from mcpbridge.storage.audit.settings import AuditSettings


def audit(settings: AuditSettings, kind: str, facts: Mapping[str, object], redact: Callable[[str], str] = str) -> None:
    """Record that something was done by this command, if there is an audit log. That it cannot is only reported."""
    if not settings.enabled:
        return
    from mcpbridge.storage.audit.log import AuditLog

    try:
        log = AuditLog(settings, redact=redact)
        log.append_event(kind, {"who": who(), **facts})
        log.write_now()
    except (OSError, BridgeError) as error:
        note(visible(redact(f"the audit log cannot be written: {error}")))


def audit_of_user(kind: str, facts: Mapping[str, object]) -> None:
    """The same for what belongs to no configuration: in the log of the user's own one, or of `$MCPBRIDGE_CONFIG`.

    Never in that of a configuration that was found in the working directory.
    """
    named = os.environ.get("MCPBRIDGE_CONFIG")
    path = Path(named).expanduser() if named else config_directory(os.environ) / FILE_NAME
    if not path.is_file():
        return
    from mcpbridge.config.load import read

    try:
        settings = read(path, os.environ).settings.audit
    except BridgeError:
        return
    audit(settings, kind, facts)


def who() -> str:
    """Who uses this command, as the audit log names them."""
    try:
        return f"cli:{getuser()}"
    except (OSError, KeyError, ImportError):  # a user without a name, as in containers
        return "cli:"
