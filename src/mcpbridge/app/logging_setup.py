"""Log output, set up once by the command. Everything else logs through `base/log.py`.

Lines go to standard error and never to standard output, which on stdio belongs to the protocol. Writing a line never
waits (`base/log_output.py`).

Lines for people are structlog's. Lines for programs, which clients are, do without: its import takes long.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, cast

from mcpbridge.base.log import LEVELS, Level, Logger, get_logger
from mcpbridge.base.log_output import LineWriter
from mcpbridge.base.masking.known_values import Redactor, masked_fields
from mcpbridge.base.settings import LogSettings


def set_up_logs(settings: LogSettings, redact: Redactor, *, level: Level | None = None, descriptor: int = 2) -> None:
    """Send all logs, also those of libraries, to `descriptor`, with secrets masked in the finished line.

    `level`: the least severe that is logged, instead of that of the settings.
    """
    least = LEVELS[level or settings.level]
    if settings.format == "console" or (settings.format == "auto" and os.isatty(descriptor)):
        _set_up_console(least, redact, descriptor)
        Logger.sink = None
    else:
        Logger.sink = _JsonLines(least, redact, descriptor)
    logging.basicConfig(handlers=[_FromLibraries()], level=max(least, logging.WARNING), force=True)
    logging.captureWarnings(True)  # noqa: FBT003 - its only parameter


def _set_up_console(least: int, redact: Redactor, descriptor: int) -> None:
    import structlog

    def mask(_logger: object, _method: str, line: MutableMapping[str, Any]) -> Any:
        return redact(str(line))  # after the renderer, the event is the line

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=_wants_colour(os.environ, descriptor)),
            mask,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=lambda *_: LineWriter(descriptor),
        cache_logger_on_first_use=False,  # another set-up must be seen
    )


def _wants_colour(environ: Mapping[str, str], descriptor: int) -> bool:
    return os.isatty(descriptor) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class _JsonLines:
    """Writes one JSON object a line: the fields, then `event`, `level`, `timestamp`, `exception`."""

    def __init__(self, least: int, redact: Redactor, descriptor: int) -> None:
        self._least = least
        self._redact = redact
        self._out = LineWriter(descriptor)

    def __call__(self, level: Level, event: str, fields: dict[str, Any], /) -> None:
        if LEVELS[level] < self._least:
            return
        error = fields.pop("exc_info", None)
        now = datetime.now(UTC).isoformat().removesuffix("+00:00")
        members = {**fields, "event": event}
        if trace := _trace(error):
            members["exception"] = trace
        # Member by member, so that it stays JSON; then what the configuration brought in, wherever it stands.
        masked = masked_fields(_plain(members), self._redact)
        line = {**masked, "level": level, "timestamp": f"{now}Z"}
        self._out.msg(self._redact.known(json.dumps(line)))


def _plain(fields: dict[str, Any]) -> Any:
    """The fields as JSON values: what is none is shown as Python shows it."""
    return json.loads(json.dumps(fields, default=repr))


def _trace(error: object) -> str:
    """The traceback of an error, given as the standard library's `exc_info`, as the error, or as True."""
    if error is True:
        error = sys.exc_info()[1]
    elif isinstance(error, tuple):
        _, error, _ = cast("tuple[object, object, object]", error)
    return "".join(traceback.format_exception(error)).rstrip("\n") if isinstance(error, BaseException) else ""


class _FromLibraries(logging.Handler):
    """Takes what libraries log with the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        reached: list[Level] = [level for level, number in LEVELS.items() if number <= record.levelno]
        level = reached[-1] if reached else "debug"
        get_logger().log(level, record.getMessage(), logger=record.name, exc_info=record.exc_info)
