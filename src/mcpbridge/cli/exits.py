"""Exit codes, and how an error ends a command."""

import json
import sys
from collections.abc import Callable
from typing import NoReturn

from mcpbridge.cli.signals import INTERRUPTED
from mcpbridge.errors import BridgeError, ConfigError

__all__ = [
    "DECIDED",
    "INTERRUPTED",
    "OK",
    "TIMED_OUT",
    "TOOL_ERROR",
    "UNREACHABLE",
    "USAGE",
    "CommandFailed",
    "fail",
    "only_error",
    "report",
]

OK = 0
USAGE = 2
"""Wrong arguments or a wrong configuration."""
UNREACHABLE = 4
"""No upstream, or not the one that was meant, could be reached."""
TOOL_ERROR = 5
"""The tool answered with an error, or there is no such tool, prompt or resource."""
DECIDED = 6
"""Somebody answered it before."""
TIMED_OUT = 7


class CommandFailed(Exception):
    """Ends a command with an exit code. What went wrong is in the message, what to do about it in `advice`."""

    def __init__(self, code: int, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.code, self.advice = code, advice


def fail(code: int, message: str, advice: str = "") -> NoReturn:
    """End the command that is running."""
    raise CommandFailed(code, message, advice)


def only_error(error: BaseException) -> BaseException:
    """What a task group failed with, when that is one thing; else the error as it is."""
    while len(inner := getattr(error, "exceptions", ())) == 1:  # of an exception group
        error = inner[0]
    return error


def report(error: BaseException, *, as_json: bool, redact: Callable[[str], str] = str) -> int | None:
    """Say on standard error why the command ends, and return its exit code. None: not an error that people make."""
    error = only_error(error)
    if isinstance(error, CommandFailed):
        code, message, advice = error.code, str(error), error.advice
    elif isinstance(error, ConfigError):
        code, message, advice = USAGE, str(error), error.advice
    elif isinstance(error, BridgeError):
        code, message, advice = (
            (TIMED_OUT if isinstance(error, TimeoutError) else UNREACHABLE),
            str(error),
            error.advice,
        )
    elif isinstance(error, KeyboardInterrupt):
        code, message, advice = INTERRUPTED, "interrupted", ""
    else:
        return None
    if as_json:
        line = json.dumps({"error": {"code": code, "message": message, "advice": advice}}, ensure_ascii=False)
    else:
        line = f"mcpbridge: {message}" + (f"\n  {advice}" if advice else "")
    print(redact(line), file=sys.stderr)
    return code
