"""Log output, set up once by the command. Everything else logs through `logs.get_logger()`.

Lines go to standard error and never to standard output, which on stdio belongs to the protocol. Writing a line never
waits: a client that starts the bridge may never read its standard error, and a full pipe would stop everything.

Lines for people are structlog's. Lines for programs, which clients are, do without: its import takes long.
"""

import json
import logging
import os
import select
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, cast

from mcpbridge.base.log import LEVELS, Level, Logger, get_logger
from mcpbridge.base.masking.known_values import Redactor, masked_fields
from mcpbridge.base.settings import LogSettings

_PIECE = 4096
"""Bytes that a pipe takes without waiting once it is writable (PIPE_BUF on Linux)."""


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
        logger_factory=lambda *_: StderrLogger(descriptor),
        cache_logger_on_first_use=False,  # another set-up must be seen
    )


def _wants_colour(environ: Mapping[str, str], descriptor: int) -> bool:
    return os.isatty(descriptor) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


class StderrLogger:
    """Writes lines to a file descriptor without ever waiting or failing; what does not fit is dropped and counted."""

    lost = 0
    """Lines dropped since the last one that was written, by all loggers of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def msg(self, message: str) -> None:
        """Write one line."""
        if StderrLogger.lost:
            message = f"({StderrLogger.lost} log lines before this one were lost: nobody read them)\n{message}"
        if self._write(f"{message}\n".encode(errors="replace")):
            StderrLogger.lost = 0
        else:
            StderrLogger.lost += 1

    log = debug = info = warn = warning = error = critical = exception = fatal = msg

    def _write(self, data: bytes) -> bool:
        try:
            for start in range(0, len(data), _PIECE):
                if not _writable(self._descriptor):
                    return False
                os.write(self._descriptor, data[start : start + _PIECE])
        except OSError:  # nobody listens any more; that is no reason to stop working
            return False
        return True


def _writable(descriptor: int) -> bool:
    if sys.platform == "win32":
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


class _JsonLines:
    """Writes one JSON object a line: what the module told, then `event`, `level`, `timestamp`, `exception`."""

    def __init__(self, least: int, redact: Redactor, descriptor: int) -> None:
        self._least = least
        self._redact = redact
        self._out = StderrLogger(descriptor)

    def __call__(self, level: Level, event: str, fields: dict[str, Any], /) -> None:
        if LEVELS[level] < self._least:
            return
        error = fields.pop("exc_info", None)
        now = datetime.now(UTC).isoformat().removesuffix("+00:00")
        told = {**fields, "event": event}
        if trace := _trace(error):
            told["exception"] = trace
        # Member by member, so that it stays JSON; then what the configuration brought in, wherever it stands.
        masked = masked_fields(_plain(told), self._redact)
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
