"""Where the lines of the bridge go in a program that says nothing about them: to the standard library's `logging`.

No line tells a secret of the configurations that the program's bridges have, as long as those are there.
"""

import logging
import sys
import traceback
from typing import Any
from weakref import ref

from mcpbridge.logs import LEVELS, Level, Logger
from mcpbridge.redaction import Redactor

__all__ = ["use_logging"]

_LOG = logging.getLogger("mcpbridge")

_redactors: tuple[ref[Redactor], ...] = ()
"""Of all bridges: a line does not say whose it is. Lines come from any thread, so this is never changed in place."""


def use_logging(redact: Redactor) -> None:
    """Send lines to the logger `mcpbridge`, unless somebody has said where they go: a command, or structlog's set-up.

    What nobody has set up shows warnings and errors on standard error, as of every library. `redact` masks the secrets
    of one more bridge in all lines.
    """
    global _redactors
    _redactors = (*(known for known in _redactors if known() not in (None, redact)), ref(redact))
    structlog = sys.modules.get("structlog")
    if Logger.sink is None and not (structlog is not None and structlog.is_configured()):
        Logger.sink = _log


def _log(level: Level, event: str, fields: dict[str, Any], /) -> None:
    number = LEVELS[level]
    if not _LOG.isEnabledFor(number):
        return
    error, trace = _error_of(fields.pop("exc_info", None)), str(fields.pop("trace", "")).rstrip("\n")
    said = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
    if error is not None and not trace:
        told = "".join(traceback.format_exception(error)).rstrip("\n")
        if _masked(told) != told:  # whoever formats the error itself would tell it
            error, trace = None, told
    _LOG.log(number, "%s", _masked(f"{event}{said}\n{trace}" if trace else f"{event}{said}"), exc_info=error)


def _error_of(said: object) -> BaseException | None:
    """The error that a line is about; see `Sink`."""
    if isinstance(said, BaseException):
        return said
    if isinstance(said, tuple):
        return next((one for one in said if isinstance(one, BaseException)), None)  # pyright: ignore[reportUnknownVariableType] - of any
    return sys.exc_info()[1] if said else None


def _shown(value: object) -> str:
    return repr(_masked(value) if isinstance(value, str) else value)


def _masked(text: str) -> str:
    for known in _redactors:
        if (redact := known()) is not None:
            text = redact(text)
    return text
