"""Log output, set up once by the command. Everything else logs through `structlog.get_logger()`.

Lines go to standard error and never to standard output, which on stdio belongs to the protocol. Writing a line never
waits: a client that starts the bridge may never read its standard error, and a full pipe would stop everything.
"""

import logging
import os
import select
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

from mcpbridge.config.schema import LogSettings
from mcpbridge.redaction import Redactor

__all__ = ["StderrLogger", "set_up_logs"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_PIECE = 4096
"""Bytes that a pipe takes without waiting once it is writable (PIPE_BUF on Linux)."""


def set_up_logs(settings: LogSettings, redact: Redactor, *, descriptor: int = 2) -> None:
    """Send all logs, also those of libraries, to `descriptor`, with secrets masked in the finished line."""
    for_people = settings.format == "console" or (settings.format == "auto" and os.isatty(descriptor))
    renderer: Any
    if for_people:
        renderer = structlog.dev.ConsoleRenderer(colors=_wants_colour(os.environ, descriptor))
    else:
        renderer = structlog.processors.JSONRenderer()

    def mask(_logger: object, _method: str, line: MutableMapping[str, Any]) -> Any:
        return redact(str(line))  # after the renderer, the event is the line

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if for_people else "iso", utc=not for_people),
            structlog.processors.format_exc_info,
            renderer,
            mask,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.level]),
        logger_factory=lambda *_: StderrLogger(descriptor),
        cache_logger_on_first_use=False,  # a logger made at import time must see this set-up
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=max(_LEVELS[settings.level], logging.WARNING), force=True)
    logging.captureWarnings(True)  # noqa: FBT003 - its only parameter


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


class _ToStructlog(logging.Handler):
    """Takes what libraries log with the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
