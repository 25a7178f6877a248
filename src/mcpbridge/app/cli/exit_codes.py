"""Exit codes, and how an error ends a command.

What the bridge says of its servers, in words; and what its failures mean for an exit code.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

from mcpbridge.app.cli.signals import INTERRUPTED
from mcpbridge.base.errors import BridgeError, ConfigError
from mcpbridge.downstream.errors import ERROR_NAME

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


State = Mapping[str, Any]
"""What `Bridge.status` says of one server."""

_CODES = {
    "UpstreamTimeout": TIMED_OUT,
    "UpstreamUnavailable": UNREACHABLE,
    "UpstreamResting": UNREACHABLE,
    "UpstreamGone": UNREACHABLE,
    "UpstreamHttpError": UNREACHABLE,
    "SignInNeeded": UNREACHABLE,
}


def is_ready(server: State) -> bool:
    """It can be called."""
    return server["state"] == "ready"


def describe(server: State) -> str:
    """A state with its reason, on one line; and whether calls pass, if they do not."""
    reason = str(server.get("reason") or "")
    told = " ".join(reason.split()) or str(server["state"])
    breaker = server.get("breaker") or "closed"
    return told if breaker == "closed" else f"{told}, breaker {breaker}"


def fault(server: State) -> str:
    """What is wrong with a server that is not ready, without what the bridge will do about it, on one line."""
    return " ".join(str(server.get("cause") or "").split()) or describe(server)


def offers(server: State) -> str:
    """How much of what a server offers: "13 tools, 2 prompts"."""
    counts = [(int(server.get(kind) or 0), kind) for kind in ("tools", "resources", "prompts")]
    told = [f"{count} {kind if count != 1 else kind[:-1]}" for count, kind in counts if count or kind == "tools"]
    return ", ".join(told)


def failure_code(marked: object) -> int:
    """The exit code for a failure, from the object (`_meta` or `data`) that may name it."""
    named = cast("State", marked).get(ERROR_NAME) if isinstance(marked, dict) else None
    return _CODES.get(str(named), TOOL_ERROR)
