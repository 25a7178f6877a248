"""Loggers of our modules: `log = get_logger("mcpbridge.peer")`, then `log.info("what happened", key=value)`.

Lines go to structlog, and the program that uses the library decides where they end. structlog is imported with the
first line, because that takes a sixth of the time in which `mcpbridge serve` gives its first answer. A command that
writes lines by itself sets a sink instead (`app/logging_setup.py`).
"""

from typing import Any, ClassVar, Literal, Protocol

from mcpbridge.base.masking.known_values import Redactor, masked_fields

Level = Literal["debug", "info", "warning", "error", "critical"]

LEVELS: dict[Level, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
"""Levels with the numbers that the standard library gives them, the least severe first."""


class Sink(Protocol):
    """What takes the lines of all loggers."""

    def __call__(self, level: Level, event: str, fields: dict[str, Any], /) -> None:
        """Take one line, or leave it if its level is too low.

        `fields["exc_info"]`: an error, or True for the one that is being handled.
        """
        ...


_REDACT = Redactor()
"""Where the program decides what becomes of the lines: what looks like a secret does not get there."""


class Logger:
    """What one module logs through."""

    __slots__ = ("_name",)

    sink: ClassVar[Sink | None] = None
    """Where the lines of all loggers go; None: to structlog."""

    def __init__(self, name: str) -> None:
        self._name = name

    def log(self, level: Level, event: str, /, **fields: Any) -> None:
        """Log what happened."""
        if (sink := Logger.sink) is not None:
            sink(level, event, fields)
            return
        import structlog

        error = {"exc_info": fields.pop("exc_info")} if "exc_info" in fields else {}
        getattr(structlog.get_logger(self._name), level)(event, **masked_fields(fields, _REDACT), **error)

    def debug(self, event: str, /, **fields: Any) -> None:
        """For who looks for a mistake of ours."""
        self.log("debug", event, **fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """What happens in the ordinary course of things."""
        self.log("info", event, **fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """What people may want to change."""
        self.log("warning", event, **fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """What failed."""
        self.log("error", event, **fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """What failed by the error that is being handled."""
        self.log("error", event, **{"exc_info": True, **fields})


def get_logger(name: str = "mcpbridge") -> Logger:
    """The logger of a module."""
    return Logger(name)
