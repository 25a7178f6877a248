"""A hook that is a function of the program: what it returns or raises, as a verdict."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, cast

import msgspec
from msgspec import Raw

from mcpbridge.errors import CallRefused, HookRefused
from mcpbridge.hooks.answers import PASS, HookFailedError, Verdict, result_of
from mcpbridge.hooks.calls import Answer, Happening, Hook
from mcpbridge.hooks.settings import HookEvent
from mcpbridge.logs import get_logger
from mcpbridge.wire.frame import encode

__all__ = ["asking"]

log = get_logger("mcpbridge.hooks")


def asking(hook: Hook) -> Callable[[Happening], Awaitable[Verdict]]:
    """How to ask the function of a hook. What it raises beside refusals is logged, and told as HookFailedError."""

    async def ask(happening: Happening) -> Verdict:
        try:
            given = hook.function(happening.value(hook.event))
            if isawaitable(given):
                given = await given
        except HookRefused as refused:
            return Verdict(refusal=str(refused))
        except CallRefused:
            raise
        except Exception as error:
            log.exception("hook failed", hook=hook.name, tool=happening.tool.id)
            raise HookFailedError(f"it raised {type(error).__name__}") from error
        return _from_value(given, hook.event)

    return ask


def _from_value(given: object, event: HookEvent) -> Verdict:
    """The verdict that a function returned."""
    if given is None:
        return PASS
    kind = type(given).__name__
    try:
        if isinstance(given, Answer):
            return Verdict(result=result_of(Raw(encode(given.result))))
        if isinstance(given, Mapping) and event == "tool_call.before":
            arguments = cast("Mapping[str, Any]", given)
            return Verdict(arguments=Raw(encode(dict(arguments))))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise HookFailedError("it returned what is no JSON") from error
    raise HookFailedError(f"it returned {kind}, which means nothing here")
