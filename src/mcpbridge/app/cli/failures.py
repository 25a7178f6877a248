"""How an error ends a command: the message on standard error, and which of the `exit_codes` it means."""

import json
import sys
from collections.abc import Callable
from typing import NoReturn, cast

from mcpbridge.app.cli.server_states import State
from mcpbridge.app.exit_codes import INTERRUPTED, TIMED_OUT, TOOL_ERROR, UNREACHABLE, USAGE
from mcpbridge.base.errors import ERROR_NAME, BridgeError, ConfigError
from mcpbridge.base.masking.known_values import Redactor


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


_REDACT = Redactor()


def report(error: BaseException, *, as_json: bool, redact: Callable[[str], str] = _REDACT) -> int | None:
    """Say on standard error why the command ends, and return its exit code. None: not an error that people make."""
    error = only_error(error)
    page = ""
    if isinstance(error, CommandFailed):
        code, message, advice = error.code, str(error), error.advice
    elif isinstance(error, ConfigError):
        code, message, advice, page = USAGE, str(error), error.advice, error.docs_page
    elif isinstance(error, BridgeError):
        code, message, advice = (
            (TIMED_OUT if isinstance(error, TimeoutError) else UNREACHABLE),
            str(error),
            error.advice,
        )
        page = error.docs_page
    elif isinstance(error, KeyboardInterrupt):
        code, message, advice = INTERRUPTED, "interrupted", ""
    else:
        return None
    message, advice = redact(message), redact(advice)
    if as_json:
        line = json.dumps({"error": {"code": code, "message": message, "advice": advice}}, ensure_ascii=False)
    else:
        line = "\n  ".join(filter(None, (f"mcpbridge: {message}", advice, page and f"See {page}")))
    print(line, file=sys.stderr)
    return code


_CODES = {
    "UpstreamTimeout": TIMED_OUT,
    "UpstreamUnavailable": UNREACHABLE,
    "UpstreamResting": UNREACHABLE,
    "UpstreamGone": UNREACHABLE,
    "UpstreamHttpError": UNREACHABLE,
    "SignInNeeded": UNREACHABLE,
}


def failure_code(marked: object) -> int:
    """The exit code for a failure, from the object (`_meta` or `data`) that may name it."""
    named = cast("State", marked).get(ERROR_NAME) if isinstance(marked, dict) else None
    return _CODES.get(str(named), TOOL_ERROR)
