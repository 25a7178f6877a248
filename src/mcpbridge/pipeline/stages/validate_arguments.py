"""Stage: check a tool's arguments against its own schema before anything runs, and mend harmless slips.

A right call costs one look and keeps its bytes. Absent arguments that have a default get it. What is wrong is mended
where the schema leaves no doubt (`validation/coercion.py`), and reported in the result; else the call is refused with
what is wrong and what would be right (`validation/error_messages.py`).

The schema is the one that the server sent. If nothing can be checked against it (a broken schema, an unknown draft,
a reference to elsewhere, references without end), its calls pass as they are: the server checks them anyway.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.base.log import get_logger
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import Call, CallHandler, Tool
from mcpbridge.pipeline.input_required import needs_driving
from mcpbridge.pipeline.stage import Stage
from mcpbridge.pipeline.validation.coercion import (
    Default,
    Defaults,
    Missing,
    Slip,
    absent,
    defaults_of,
    filled,
    left_over,
    mended,
    with_defaults,
)
from mcpbridge.pipeline.validation.error_messages import refusal, width_of
from mcpbridge.pipeline.validation.schema_check import (
    MAX_FAULTS,
    Check,
    Path,
    Uncheckable,
    compiled,
    decode_exact,
    is_checkable,
)
from mcpbridge.pipeline.validation.schema_paths import is_schema, levels_to_check, spelled
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, decode_array

log = get_logger("mcpbridge.arguments")

COERCED = "mcpbridge/coerced"
"""In `_meta` of a result: what was mended in the arguments, each as `path`, `what`, `from` and `to`."""

_MOST_WORK, _WORK_OF_FAULT = 512 << 10, 400
"""Bytes of arguments that are looked at in trying which defaults fit, and as how many a fault counts: 25 ms in all."""

_UNREADABLE = (ValueError, RecursionError)  # msgspec's errors are ValueErrors
_decode = msgspec.json.Decoder().decode


class ValidateArguments:
    """Makes the stages: the arguments of every tool that has a schema to check them against."""

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """None where nothing can be wrong or absent, or the configuration passes all arguments as they are."""
        if tool is None or (options.arguments == "pass" and not options.inject_defaults):
            return None
        try:
            raw = Body(tool.definition).get("inputSchema")
            schema = decode_exact(raw) if raw is not None else None
            if raw is None or not is_schema(schema):
                return None
            levels = levels_to_check(schema)
            defaults = defaults_of(raw, schema, levels) if options.inject_defaults else None
            if defaults is None and (options.arguments == "pass" or not is_checkable(schema)):
                return None
            check = compiled(schema, levels, width_of(schema))
        except (Uncheckable, *_UNREADABLE) as error:
            log.info("arguments not validated", tool=tool.id, reason=str(error)[:200])
            return None
        return _Arguments(tool.wire, check, defaults, options)


class _Arguments:
    """The stage of one tool."""

    __slots__ = ("_check", "_coerces", "_defaults", "_is_valid", "_name", "_passes")

    def __init__(self, name: str, check: Check, defaults: Defaults | None, options: CallOptions) -> None:
        self._name, self._check, self._defaults = name, check, defaults
        self._is_valid = check.is_valid
        self._coerces, self._passes = options.arguments == "coerce", options.arguments == "pass"

    def express_begin(self, call: Call, arguments: Raw) -> bool:
        """See `pipeline/stage.py`."""
        if self._defaults is not None:
            return False
        try:
            return self._is_valid(_decode(arguments))
        except _UNREADABLE:
            return False

    def __call__(self, call: Call, proceed: CallHandler) -> Awaitable[Body]:
        """The result of the call with the arguments that the tool gets."""
        raw = call.params.fields.get("arguments")
        if self._defaults is None and not call.continues:
            try:
                is_right = self._is_valid(_decode(raw) if raw is not None else {})
            except _UNREADABLE:  # a number out of range, or what nobody can look at
                is_right = False
            if is_right:
                return proceed(call)
        try:
            slips = self._settle(call, raw)
        except ArgumentsRefused as refused:
            return _fail(refused)
        except _UNREADABLE:
            log.debug("arguments cannot be read", tool=self._name)
            return proceed(call)
        told: Any = [slip.to_json() for slip in slips]
        if not slips and call.continues and call.facts:
            told = call.facts.get("coerced")  # the same call is sent once more; it was mended the first time
        return _with_corrections(proceed, call, told) if told else proceed(call)

    def _settle(self, call: Call, raw: Raw | None) -> Sequence[Slip]:
        """Make the arguments of the call what the tool gets; returns what was mended.

        Raises:
            ArgumentsRefused: they are wrong.
            ValueError: they cannot be looked at (or RecursionError).
        """
        text = raw if raw is not None and bytes(memoryview(raw)[:1]) == b"{" else Raw(EMPTY_OBJECT)
        if self._complete(call, text):
            return ()
        value = decode_exact(text)
        faults = self._check.faults(value, len(text))
        if self._passes or not faults:
            return ()
        found = mended(self._check, text, self._is_right, faults) if self._coerces else None
        if found is None:
            if self._coerces:
                faults, value = left_over(self._check, text, faults)  # what would be mended is nothing to correct
            supplied = {(*path, default.name) for path, _, default in self._missing(value)}
            left = [fault for fault in faults if (*fault.path, fault.facts.get("property", "")) not in supplied]
            raise refusal(self._name, self._check.schema, left or faults, value)
        call.params.put("arguments", found.raw)
        self._complete(call, found.raw)
        call.note("coerced", [slip.noted() for slip in found.slips])
        return found.slips

    def _complete(self, call: Call, text: Raw) -> bool:
        """Whether the arguments are right, with the defaults of what is absent; those are in the call then."""
        value = decode_exact(text)
        missing = self._missing(value)
        filled(missing)
        if not self._is_valid(value):
            if not missing:
                return False
            value = decode_exact(text)
            missing = self._fitting(value, len(text))
            if not self._is_valid(value):
                return False
        if missing:
            call.params.put("arguments", with_defaults(text, missing))
            call.note("defaults", [_place(path, default) for path, _, default in missing])
        return True

    def _fitting(self, value: Any, size: int) -> list[Missing]:
        """Those defaults that make nothing worse, put into the value one by one: together they were not right.

        None where so much is wrong, or there is so much to look at, that trying each would take long.
        """
        kept, missing = list[Missing](), self._missing(value)
        faults = len(self._check.faults(value, size))
        if faults >= MAX_FAULTS or len(missing) * (size + faults * _WORK_OF_FAULT) > _MOST_WORK:
            return kept
        for one in missing:
            filled([one])
            with_it = len(self._check.faults(value, size))
            if with_it <= faults:
                faults = with_it
                kept.append(one)
            else:
                del one[1][one[2].name]
        return kept

    def _is_right(self, value: Any) -> bool:
        if self._is_valid(value):
            return True
        filled(self._missing(value))
        return self._is_valid(value)

    def _missing(self, value: Any) -> list[Missing]:
        return list(absent(self._defaults, value)) if self._defaults is not None else []


def _place(path: Path, default: Default) -> str:
    return spelled((*path, default.name)) if path else default.name


async def _fail(error: ArgumentsRefused) -> Body:
    raise error


async def _with_corrections(proceed: CallHandler, call: Call, slips: Sequence[Mapping[str, str]]) -> Body:
    result = await proceed(call)
    call.original = call.original or result.data
    return mark_coerced(result, slips)


def mark_coerced(result: Body, slips: Sequence[Mapping[str, str]]) -> Body:
    """The result, saying what was mended in its arguments (`Slip.to_json`); a question before the result does not."""
    if needs_driving(result):
        return result
    told = result.copy()  # others may hold the same result, such as a cache
    meta = told.inner("_meta") or Body()
    before = meta.get(COERCED)
    earlier = decode_array(before) if before is not None and bytes(memoryview(before)[:1]) == b"[" else []
    meta.put(COERCED, [*earlier, *slips])
    told.put("_meta", meta)
    return told
