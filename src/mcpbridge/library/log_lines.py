"""Where the lines of the bridge go in a program that says nothing about them: to the standard library's `logging`."""

import logging
import sys
from typing import Any

from mcpbridge.logs import LEVELS, Level, Logger

__all__ = ["use_logging"]

_LOG = logging.getLogger("mcpbridge")


def use_logging() -> None:
    """Send lines to the logger `mcpbridge`, unless somebody has said where they go: a command, or structlog's set-up.

    What nobody has set up shows warnings and errors on standard error, as of every library.
    """
    structlog = sys.modules.get("structlog")
    if Logger.sink is None and not (structlog is not None and structlog.is_configured()):
        Logger.sink = _log


def _log(level: Level, event: str, fields: dict[str, Any], /) -> None:
    number = LEVELS[level]
    if _LOG.isEnabledFor(number):
        trouble = fields.pop("exc_info", None)
        said = " ".join(f"{name}={value!r}" for name, value in fields.items())
        _LOG.log(number, "%s %s" if said else "%s%s", event, said, exc_info=trouble)
