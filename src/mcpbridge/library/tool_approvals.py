"""Whether a person must agree to a call, told by a function of its arguments.

It is asked where the policy decides: behind the stage that completes the arguments, so that it sees them as the tool
gets them. What it says goes the way of all approvals: whoever can be asked is asked, a yes is for these arguments, and
all of it is written down. A rule of `permissions` that allows the call is somebody's word and comes before it.
"""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcpbridge.errors import CallRefused, NotPermitted
from mcpbridge.logs import get_logger
from mcpbridge.model import Asks, Call

__all__ = ["ApprovalRule", "asking"]

log = get_logger("mcpbridge.library")

ApprovalRule = Callable[[Mapping[str, Any]], "bool | str | Awaitable[bool | str]"]
"""From the arguments of a call (JSON values by name) to whether a person must agree; a text is the reason that people
are told. It runs on the event loop, so one that is not `async` must be quick. If it raises, or takes longer than ten
seconds, the call is refused."""

SECONDS = 10.0
"""How long it may take."""
REASON = "the tool asks for it"
"""What people are told where it gives no reason."""


def asking(tool: str, rule: bool | ApprovalRule) -> Asks | None:
    """What tells of the calls of a tool whether a person must agree; None: nobody must."""
    if not callable(rule):
        return _always if rule else None

    def asks(call: Call) -> str | Awaitable[str]:
        try:
            found = rule(_arguments_of(tool, call))
        except CallRefused:
            raise
        except Exception as error:
            raise _refused(tool, error) from error
        return _awaited(tool, found) if inspect.isawaitable(found) else _reason(tool, found)

    return asks


def _always(_: Call) -> str:
    return REASON


def _arguments_of(tool: str, call: Call) -> dict[str, Any]:
    from mcpbridge.arguments.doubles import refuse_doubles
    from mcpbridge.backends.signatures import decoded

    raw = call.params.get("arguments")
    refuse_doubles(tool, raw)  # the function would see one of the two
    return decoded(bytes(raw)) if raw is not None else {}


async def _awaited(tool: str, found: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(SECONDS):
            return _reason(tool, await found)
    except CallRefused:
        raise
    except Exception as error:
        raise _refused(tool, error) from error


def _reason(tool: str, found: object) -> str:
    if isinstance(found, bool):
        return REASON if found else ""
    if isinstance(found, str):
        return found
    raise _refused(tool, TypeError(f"expected a bool or a text, not {type(found).__name__}"))


def _refused(tool: str, error: Exception) -> NotPermitted:
    """What an error says may hold arguments, so neither clients nor the log are told it; the log tells where it was."""
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("whether a call needs approval cannot be told", tool=tool, error=type(error).__name__, trace=where)
    return NotPermitted(
        f"Whether a person has to approve this call of {tool} cannot be told: its `requires_approval` failed "
        f"({type(error).__name__})"
    )
