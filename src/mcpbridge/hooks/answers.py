"""What a hook answers, as JSON: nothing, other arguments, a result, or a refusal. Pure."""

import msgspec
from msgspec import Raw, Struct

from mcpbridge.hooks.settings import HookEvent
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

__all__ = ["LARGEST_ANSWER", "PASS", "HookFailedError", "Verdict", "read_answer", "result_of"]

LARGEST_ANSWER = 1024**2
"""Bytes."""


class HookFailedError(Exception):
    """A hook could not do its work; the message says why, and nothing that the hook itself said."""


class Verdict(Struct, frozen=True):
    """What is to become of the call; at most one is set."""

    arguments: Raw | None = None
    """Those to go on with."""
    result: Body | None = None
    """The result to give."""
    refusal: str | None = None
    """Why it does not pass."""


PASS = Verdict()
"""It goes on as it is."""


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    arguments: Raw = Raw()
    result: Raw = Raw()
    refuse: str | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def read_answer(answer: bytes, event: HookEvent) -> Verdict:
    """The verdict that an answer is; blank lets the call pass.

    Raises:
        HookFailedError: it is none, or not one for this event.
    """
    if not answer.strip():
        return PASS
    try:
        read = _decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HookFailedError(_why(error)) from error
    given = [name for name in ("arguments", "result") if bytes(getattr(read, name))]
    given += ["refuse"] if read.refuse is not None else []
    if len(given) > 1:
        raise HookFailedError(f"it answered with `{given[0]}` and `{given[1]}`, of which only one can be")
    if read.refuse is not None:
        return Verdict(refusal=read.refuse.strip() or "it gives no reason")
    if bytes(read.result):
        return Verdict(result=result_of(read.result))
    if bytes(read.arguments):
        if event != "tool_call.before":
            raise HookFailedError("it answered with `arguments`, when the call is over")
        if not Body(read.arguments).is_object:
            raise HookFailedError("the `arguments` of its answer are no object")
        return Verdict(arguments=read.arguments)
    return PASS


def result_of(value: Raw) -> Body:
    """The tool result that a hook gives: a whole one, or a text.

    Raises:
        HookFailedError: it is neither.
    """
    data = bytes(value)
    if data[:1] == b'"':
        return Body(encode({"content": [{"type": "text", "text": Raw(data)}]}))
    result = Body(data)
    if not result.is_object or bytes(result.get("content") or b"")[:1] != b"[":
        raise HookFailedError("the `result` of its answer is no tool result: it has no list `content`")
    return result


def _why(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"its answer is not as it must be: {str(error)[:200]}"
    return "its answer is no JSON"
