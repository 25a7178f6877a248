"""JSONPath (RFC 9535) for `input_mapping` and `output_mapping`: from one JSON value to another. Pure.

A path that can lead to one place only (`$.a.b[0]`) stands for the value there, or for nothing; any other one (`$..b`,
`$.a[*]`, filters) for the list of all that it finds. Patterns of `match()` and `search()` run in linear time.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

Paths = str | Mapping[str, str]
"""One path for the whole value, or names with the path of each."""

MISSING: Any = object()
"""What a path stands for that leads nowhere."""

LONGEST_PATTERN = 1000
"""Characters of a pattern of `match()` or `search()`."""
_PATTERN_MEMORY = 1 << 20
"""Bytes that one compiled pattern may take."""
_ANY_CHARACTER = r"[^\n\r]"
"""What a dot means in I-Regexp (RFC 9485)."""
_MATCHING = re.compile(r"(?:match|search)\s*\(")
_PARTS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\.", re.DOTALL)


class MappingFailed(ValueError):
    """A path that is none, or a value that it cannot be looked for in."""


def check_paths(paths: Paths) -> None:
    """Make sure that these are paths.

    Raises:
        MappingFailed: one is none; says which, and why.
    """
    for path in [paths] if isinstance(paths, str) else paths.values():
        _compiled(path)


def mapped(paths: Paths, value: Any) -> Any:
    """What the paths find: one value, or an object of those that are there. `MISSING` when one path finds nothing.

    Raises:
        MappingFailed: the value is nested too deeply for the path.
    """
    if isinstance(paths, str):
        return _select(paths, value)
    found = {name: _select(path, value) for name, path in paths.items()}
    return {name: one for name, one in found.items() if one is not MISSING}


def _select(path: str, value: Any) -> Any:
    compiled = _compiled(path)
    try:
        results = cast("list[Any]", compiled.findall(value))
    except RecursionError as error:
        raise MappingFailed(f"{path}: the value is nested too deeply") from error
    if not compiled.singular_query():
        return results
    return results[0] if results else MISSING


@cache
def _compiled(path: str) -> Any:
    from jsonpath.exceptions import JSONPathError

    if _engine() is None and _MATCHING.search(path):
        raise MappingFailed(f"{path!r}: patterns need the package `google-re2`, which is not installed")
    try:
        return _environment().compile(path)
    except (JSONPathError, RecursionError) as error:
        why = str(next(iter(error.args), "")).partition("\n")[0]  # its own text fails where the path is empty
        raise MappingFailed(f"not a JSONPath (RFC 9535): {path!r}: {why}") from error


@cache
def _environment() -> Any:
    """Paths as the RFC has them, with patterns that cannot take exponential time."""
    from jsonpath import JSONPathEnvironment
    from jsonpath.function_extensions import ExpressionType, FilterFunction

    class Matching(FilterFunction):
        def __init__(self, *, whole: bool) -> None:
            self._is_whole = whole

        @property
        def arg_types(self) -> list[ExpressionType]:
            return [ExpressionType.VALUE, ExpressionType.VALUE]

        @property
        def return_type(self) -> ExpressionType:
            return ExpressionType.LOGICAL

        def __call__(self, text: object, pattern: object) -> bool:
            if not isinstance(text, str) or not isinstance(pattern, str):
                return False
            compiled = _pattern(pattern)
            try:
                return bool(compiled and (compiled.fullmatch(text) if self._is_whole else compiled.search(text)))
            except UnicodeError:  # half of a surrogate pair
                return False

    environment = JSONPathEnvironment(strict=True)
    environment.function_extensions["match"] = Matching(whole=True)
    environment.function_extensions["search"] = Matching(whole=False)
    return environment


@cache
def _engine() -> Any:
    try:
        import re2
    except ImportError:
        return None
    return re2


def _pattern(pattern: str) -> Any:
    """A pattern for RE2; None when it is no I-Regexp that it can run, which then matches nothing (RFC 9535, 2.4.6)."""
    engine = _engine()
    if engine is None or len(pattern) > LONGEST_PATTERN:
        return None
    options = engine.Options()
    options.max_mem, options.log_errors = _PATTERN_MEMORY, False
    try:
        return engine.compile(_PARTS.sub(lambda part: _ANY_CHARACTER if part[0] == "." else part[0], pattern), options)
    except (engine.error, UnicodeError):
        return None
