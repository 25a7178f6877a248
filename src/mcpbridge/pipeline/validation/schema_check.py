"""A tool's input schema, compiled: is a value right, and if not, what is wrong with it.

The only module that knows the validator. It is loaded at the first call of a tool that has something to check, fetches
nothing from anywhere, asserts no formats, and bounds the work that a `pattern` may cause.
"""

import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import islice
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Raw, Struct

from mcpbridge.base.log import get_logger

log = get_logger("mcpbridge.arguments")

Path = tuple[str | int, ...]
Schema = dict[str, Any]

MAX_FAULTS = 100
"""Faults of one value that are looked at; further ones are of the same kind in a long list."""
MAX_BRANCHES, MAX_DEPTH = 8, 3
"""Alternatives of one place whose faults are looked at, and alternatives within alternatives."""
MANY_BYTES, MANY_ERRORS = 16 << 10, 2000
"""What may have more faults than there is time for: the validator reports all at once, 20 µs each, or one."""
TOO_MANY_ERRORS = 3000
"""Errors within one, of which not even the first is reported."""
BACKTRACK_LIMIT = 10_000
"""Steps that one `pattern` may take beyond linear time (it has look-around or back references), about 1 ms."""
LARGEST_PATTERN = 256 << 10
"""Bytes of one compiled `pattern`: each character of a text may cost as many steps. `^\\w{1,1000}$` takes less."""

_ANNOTATIONS = frozenset({"$schema", "$id", "$comment", "title", "description", "examples", "deprecated", "format"})
_NOT_ASSERTED = frozenset({"format", "contentEncoding", "contentMediaType"})
_NOT_EVALUATED = frozenset({"BacktrackLimitExceeded", "RegexEngineFailure"})

_decode = msgspec.json.Decoder().decode


class Uncheckable(Exception):
    """The schema is none that values can be checked against; the message says why."""


class Fault(Struct, frozen=True):
    """One thing that is wrong with a value."""

    path: Path
    """Where, from the top of the value."""
    keyword: str
    """The keyword of the schema that it breaks."""
    facts: Schema
    """What the keyword wanted, by the validator's names: `types`, `options`, `limit`, `property`, `unexpected`, …

    `count`: of alternatives there are so many; 0: several fit where one must.
    """
    place: Path
    """How the check came to the keyword from the top of the schema, `$ref`s included."""
    branches: tuple[tuple["Fault", ...], ...] = ()
    """For `anyOf` and `oneOf`: what keeps the value from being each of them."""


class Width(Struct, frozen=True):
    """How many errors each member and item of a value can be, since schemas have alternatives."""

    errors: int = 1
    within: int = 0
    """As parts of the one error of a value that has it inside; 0: errors have no such parts."""


NARROW = Width()


class Check:
    """One compiled schema."""

    __slots__ = ("_errors", "_first", "_flat", "_levels", "_width", "is_valid", "schema")

    def __init__(self, schema: Schema, validator: Any, levels: int, width: Width) -> None:
        self.schema, self._levels, self._width = schema, levels, width
        self.is_valid: Callable[[object], bool] = validator.is_valid if not levels else self._is_valid
        """Whether a value is right. Raises ValueError or RecursionError for what cannot be looked at."""
        self._errors: Callable[[object], Iterable[Any]] = validator.iter_errors
        self._first: Callable[[object], None] = validator.validate
        self._flat: Callable[[object], bool] = validator.is_valid

    def _is_valid(self, value: object) -> bool:
        _refuse_deeper(value, self._levels)
        return self._flat(value)

    def faults(self, value: object, size: int) -> list[Fault]:
        """What is wrong, at most `MAX_FAULTS`; of a value that may have too many only the first, or that it is wrong.

        `size`: bytes of the value as JSON. Empty when all that is wrong is nothing that we assert.

        Raises:
            ValueError: it cannot be looked at.
        """
        if self._levels:
            _refuse_deeper(value, self._levels)
        width = self._width
        count = _count(value, TOO_MANY_ERRORS)
        if size <= MANY_BYTES and count * width.errors <= MANY_ERRORS:
            return list(_faults(islice(self._errors(value), MAX_FAULTS)))
        if count * width.within > TOO_MANY_ERRORS:
            return [] if self._flat(value) else [Fault((), "schema", {}, ())]
        from jsonschema_rs import ValidationError

        try:
            self._first(value)
        except ValidationError as error:
            return list(_faults([error]))
        return []


def _count(value: object, most: int) -> int:
    """Members and items, at any depth, and the value itself; counts no further than a bit beyond `most`."""
    count, rest = 0, [value]
    while rest and count + len(rest) <= most:
        one = rest.pop()
        count += 1
        if isinstance(one, dict):
            rest += cast("dict[str, object]", one).values()
        elif isinstance(one, list):
            rest += cast("list[object]", one)
    return count + len(rest)


def _refuse_deeper(value: object, levels: int) -> None:
    if isinstance(value, dict):
        inner = list(cast("dict[str, object]", value).values())
    elif isinstance(value, list):
        inner = cast("list[object]", value)
    else:
        return
    if levels < 0:
        raise ValueError("nested too deeply for a schema that leads back to itself")
    for one in inner:
        _refuse_deeper(one, levels - 1)


def compiled(schema: Schema, levels: int = 0, width: Width = NARROW) -> Check:
    """The check of a schema, of the draft that it names, else of 2020-12 (MCP 2025-11-25, JSON Schema usage).

    `levels`: how deep a value may be to be looked at; 0: as deep as it is. `width`: what faults cost.

    Raises:
        Uncheckable: it is no valid schema, of an unknown draft, or refers to what is not in it.
    """
    from jsonschema_rs import FancyRegexOptions, validator_for

    options = FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT, size_limit=LARGEST_PATTERN)

    def validator_of(schema: Schema) -> Any:
        return validator_for(schema, validate_formats=False, retriever=_refuse, pattern_options=options)

    def is_pattern(pattern: str) -> bool:
        try:
            validator_of({"pattern": pattern})
        except ValueError:
            return False
        return True

    def is_too_large(pattern: str) -> bool:
        """Counted less, it can be compiled. What cannot then is no pattern, and its schema is broken."""
        return not is_pattern(pattern) and is_pattern(_COUNTS.sub(_least, pattern))

    try:
        try:
            validator = validator_of(schema)
        except ValueError:
            from mcpbridge.pipeline.validation.large_patterns import without_large_patterns

            lighter, patterns = without_large_patterns(schema, is_too_large)
            if not patterns:
                raise
            validator = validator_of(lighter)
            for pattern in patterns:
                _name(pattern)
    except (ValueError, TypeError, RecursionError) as error:
        raise Uncheckable(str(error).partition("\n")[0][:200]) from error
    return Check(schema, validator, levels, width)


_COUNTS = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_SHOWN = 200
"""Characters of a pattern that are shown."""
_MOST_NAMED = 1000
_named = set[str]()


def _least(count: re.Match[str]) -> str:
    """The same repetition with the smallest numbers of its kind."""
    _, comma, most = count.groups()
    return "{1}" if not comma else "{0,1}" if most else "{0,}"


def _name(pattern: str) -> None:
    """Say once that nothing is compared with a pattern."""
    shown = pattern[:_SHOWN]
    if shown not in _named and len(_named) < _MOST_NAMED:
        _named.add(shown)
        log.info("a pattern is too large to be compared; the rest of its schema is checked", pattern=shown)


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"not within the schema: {what[:100]}")


def is_checkable(schema: Schema) -> bool:
    """Whether the schema says anything that an object could break, as far as a quick look shows."""
    if schema.keys() - _ANNOTATIONS - {"type", "properties", "additionalProperties", "required"}:
        return True
    if schema.get("type", "object") != "object" or schema.get("required"):
        return True
    if schema.get("additionalProperties", True) not in (True, {}):
        return True
    properties: object = schema.get("properties", {})
    if not isinstance(properties, dict):
        return True
    of_each = cast("dict[str, object]", properties).values()
    return any(not isinstance(one, dict) or cast("Schema", one).keys() - _ANNOTATIONS for one in of_each)


def decode_exact(raw: bytes | Raw) -> Any:
    """JSON as Python values; numbers that no float or short integer can hold become `Decimal`.

    Raises:
        msgspec.DecodeError: it is no JSON.
        ValueError: the same, of what has numbers out of range.
        RecursionError: it is nested too deeply.
    """
    try:
        return _decode(raw)
    except msgspec.ValidationError:  # a number out of range
        return json.loads(bytes(raw), parse_int=_integer, parse_float=_float, parse_constant=_refuse)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 1000 else Decimal(digits)  # Python reads no more than 4,300 digits


def _float(digits: str) -> float | Decimal:
    value = float(digits)
    return Decimal(digits) if value in (float("inf"), float("-inf")) else value


def _faults(errors: Iterable[Any], depth: int = 0) -> Iterable[Fault]:
    for error in errors:
        kind = error.kind
        if kind.name in _NOT_ASSERTED or type(kind).__name__ in _NOT_EVALUATED:
            continue
        facts: Schema = kind.as_dict()
        context = facts.pop("context", ())
        if context:
            facts["count"] = 0 if type(kind).__name__ == "OneOfMultipleValid" else len(context)
            context = context[:MAX_BRANCHES] if depth < MAX_DEPTH and facts["count"] else ()
        branches = tuple(tuple(_faults(islice(branch, MAX_FAULTS), depth + 1)) for branch in context)
        if not all(branches):
            continue  # one of them fits but for what we do not assert
        path, place = tuple(error.instance_path), tuple(error.evaluation_path)
        yield Fault(path, kind.name, facts, place, branches)
