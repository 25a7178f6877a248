"""Why a program did not come to its end, said so that the next one does. Pure."""

from mcpbridge.sandbox.program_frames import Failed
from mcpbridge.sandbox.program_watch import Watch

__all__ = ["complaint", "time_is_over"]

_LONGEST = 5000
_ABOUT_LANGUAGE = frozenset({"NotImplementedError", "ModuleNotFoundError"})
_MISSING = (
    "Not there: generators (yield), inheritance and exceptions of your own, del, async with, property and "
    "staticmethod, asyncio beside gather and sleep, and modules beside json, re, math, datetime, collections, "
    "itertools, functools and the like. Tools need no import."
)
_OF_LIMITS = {
    "TimeoutError": ("time limit", "The program computed for more than {seconds:g} s; it was stopped"),
    "MemoryError": ("memory limit", "The program needs more than {memory} MiB of memory; it was stopped"),
}


def complaint(failed: Failed, seconds: float, memory: int) -> str:
    """What whoever wrote the program is told; it may have `seconds` to compute, and `memory` bytes."""
    sign, said = _OF_LIMITS.get(failed.what, ("", ""))
    if sign and sign in failed.message:
        return said.format(seconds=seconds, memory=memory >> 20)
    if failed.what == "Crashed":
        return f"The program was ended with its process: {failed.message[:300]}"
    text = failed.trace.strip() or f"{failed.what}: {failed.message}"
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n…\n{text[-_LONGEST // 2 :]}"
    return f"{text}\n{_MISSING}" if failed.what in _ABOUT_LANGUAGE else text


def time_is_over(watch: Watch) -> str:
    """What a program is told that was stopped by the clock; empty if it was not."""
    if watch.over == "computing":
        return f"The program computed for more than {watch.computing:g} s; it was stopped"
    if watch.over == "altogether":
        return f"The program took more than {watch.altogether:g} s, waiting for tools included; it was stopped"
    return ""
