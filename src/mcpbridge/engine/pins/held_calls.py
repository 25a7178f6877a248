"""Refuse calls of tools that their server changed and nobody agreed to, unless they mean the same by both definitions.

Which calls those are is decided in `catalog/pins/held_calls.py`.
"""

from typing import Any, cast

import msgspec

from mcpbridge.base.errors import NotPermitted
from mcpbridge.catalog.pins.held_calls import HeldTool
from mcpbridge.core.model import Call, Tool
from mcpbridge.engine.pins.words import command_for
from mcpbridge.pipeline.stages.held_definition import Judge
from mcpbridge.pipeline.validation.error_messages import width_of
from mcpbridge.pipeline.validation.json_text import refuse_doubles
from mcpbridge.pipeline.validation.schema_check import Check, Uncheckable, compiled, decode_exact
from mcpbridge.pipeline.validation.schema_paths import is_schema, levels_to_check


def judge_of(tool: Tool, held: HeldTool) -> Judge:
    """What refuses calls of this tool."""
    check = _check(held) if held.effect == "checked" else None

    def judge(call: Call) -> None:
        if check is not None:
            raw = call.params.get("arguments")
            refuse_doubles(tool.id, raw)
            if _fits(check, held, raw):
                return
        call.note("permission", "deny")
        raise _refusal(tool, call_may_fit=check is not None)

    return judge


def _fits(check: Check, held: HeldTool, raw: Any) -> bool:
    try:
        arguments: object = decode_exact(raw) if raw is not None else {}
    except (ValueError, RecursionError):
        return False
    if not isinstance(arguments, dict):
        return False
    given = cast("dict[str, object]", arguments)
    return {*given} <= held.parameters and check.is_valid(given)


def _check(held: HeldTool) -> Check | None:
    try:
        schema = decode_exact(msgspec.Raw(held.schema))
        return compiled(schema, levels_to_check(schema), width_of(schema)) if is_schema(schema) else None
    except (Uncheckable, ValueError, RecursionError):
        return None


def _refusal(tool: Tool, *, call_may_fit: bool) -> NotPermitted:
    what = "its server changed it, and nobody agreed to that"
    if call_may_fit:
        what += "; calls pass whose arguments are right by both definitions, with parameters that both have"
    error = NotPermitted(f"{tool.id} is held: {what}")
    error.advice = (
        f"Nothing was sent. Ask the user to look at the change (`mcpbridge lock diff {tool.server}`) and, if it is "
        f"fine, to agree to it: `{command_for(tool.server, tool.name)}`."
    )
    return error
