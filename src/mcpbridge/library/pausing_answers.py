"""What somebody answers to a paused call, made into what its tool gets."""

from typing import cast

import msgspec
from msgspec.structs import replace

from mcpbridge.backends.outputs import Misshapen, check_of, json_of
from mcpbridge.backends.paused_record import PausedRecord
from mcpbridge.errors import ArgumentsRefused
from mcpbridge.toolcalls import ToolResult
from mcpbridge.wire.python_values import decoded

__all__ = ["STAYS", "plain"]

STAYS = "The call stays paused."


def plain(answer: object, record: PausedRecord) -> object:
    """The answer as a JSON value, or a `ToolResult` with one.

    Raises:
        ArgumentsRefused: it is none, or does not fit the schema.
    """
    given = cast("ToolResult[object]", answer) if isinstance(answer, ToolResult) else None
    if given is not None and record.kind != "manual":
        raise ArgumentsRefused(f"The answer for {record.tool} is a value; its result is what the tool makes of that")
    content = cast("object", answer) if given is None else given.content
    try:
        value: object = decoded(json_of(content))
    except (Misshapen, msgspec.DecodeError) as error:
        raise ArgumentsRefused(f"The answer is no JSON: {error}") from error
    if record.schema is not None and (given is None or not given.is_error):
        fault = check_of(record.schema)(value)
        if fault:
            refused = ArgumentsRefused(f"The answer does not fit what {record.tool} asks for: {fault}")
            refused.advice = STAYS
            raise refused
    return value if given is None else replace(given, content=value)
