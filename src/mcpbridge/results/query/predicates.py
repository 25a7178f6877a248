"""Tests of one row: what `where` is made of, whichever way it was written."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from mcpbridge.results.errors import Meter, QueryRefused
from mcpbridge.results.json_path import Place
from mcpbridge.results.query.find_text import Regex
from mcpbridge.results.query.terms import Term, compare, contains, equal, written

Test = Callable[[Place, Meter], bool]

Operand = Term | tuple[Any]
"""A field, or a value in a tuple."""


class Where(Struct, frozen=True):
    """A condition on rows."""

    text: str
    test: Test
    terms: tuple[Term, ...]
    """The fields that it asks for, but for those that it asks whether they exist."""


def all_of(tests: Sequence[Test]) -> Test:
    """Every one holds."""
    return tests[0] if len(tests) == 1 else lambda row, meter: all(test(row, meter) for test in tests)


def any_of(tests: Sequence[Test]) -> Test:
    """One holds."""
    return tests[0] if len(tests) == 1 else lambda row, meter: any(test(row, meter) for test in tests)


def none_of(test: Test) -> Test:
    """It does not hold."""
    return lambda row, meter: not test(row, meter)


def _ordered(accepts: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    def test(one: Any, other: Any) -> bool:
        order = compare(one, other)
        return order is not None and accepts(order)

    return test


def _starts(one: Any, other: Any) -> bool:
    return one is not None and other is not None and _text(one).startswith(_text(other))


def _ends(one: Any, other: Any) -> bool:
    return one is not None and other is not None and _text(one).endswith(_text(other))


def _is_in(one: Any, other: Any) -> bool:
    return contains(other, one) if isinstance(other, str | list | dict) else equal(one, other)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else written(value)


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": equal,
    "<": _ordered(lambda order: order < 0),
    "<=": _ordered(lambda order: order <= 0),
    ">": _ordered(lambda order: order > 0),
    ">=": _ordered(lambda order: order >= 0),
    "in": _is_in,
    "contains": contains,
    "startswith": _starts,
    "endswith": _ends,
}
"""What holds between a row's value and what it is compared with; `matches` and `exists` are made apart."""

_NAMES = {
    **dict.fromkeys(("==", "=", "===", "eq", "$eq", "equals", "is"), "=="),
    **dict.fromkeys(("!=", "!==", "<>", "ne", "$ne", "neq"), "!="),
    **dict.fromkeys(("<", "lt", "$lt"), "<"),
    **dict.fromkeys(("<=", "lte", "$lte", "le"), "<="),
    **dict.fromkeys((">", "gt", "$gt"), ">"),
    **dict.fromkeys((">=", "gte", "$gte", "ge"), ">="),
    **dict.fromkeys(("in", "$in"), "in"),
    **dict.fromkeys(("not in", "nin", "$nin", "not_in"), "not in"),
    **dict.fromkeys(("contains", "$contains", "includes", "has"), "contains"),
    **dict.fromkeys(("startswith", "starts_with", "$startswith"), "startswith"),
    **dict.fromkeys(("endswith", "ends_with", "$endswith"), "endswith"),
    **dict.fromkeys(("matches", "regex", "$regex", "=~", "match", "~"), "matches"),
    **dict.fromkeys(("exists", "$exists"), "exists"),
}


def operator_named(name: str, where: str = "") -> str:
    """The operator that a name or a sign stands for: a key of `OPERATORS`, or `!=`, `not in`, `matches`, `exists`.

    Raises:
        QueryRefused: it is none.
    """
    found = _NAMES.get(name.lower())
    if found is None:
        known = "== != < <= > >= in, not in, contains, startswith, endswith, matches, exists"
        raise QueryRefused(f"{where}no operator '{name}'; there are: {known}")
    return found


def comparison(left: Operand, operator: str, right: Operand) -> Test:
    """The test that `left operator right` holds for one of the values on the left (and of those on the right).

    `!=` and `not in` hold if the opposite does not. A missing field is null.

    Raises:
        QueryRefused: a pattern is wrong, or no text.
    """
    if operator == "!=":
        return none_of(comparison(left, "==", right))
    if operator == "not in":
        return none_of(comparison(left, "in", right))
    if operator == "exists":
        wanted = isinstance(right, Term) or right[0] is not False
        return lambda row, meter: bool(_present(left, row, meter)) == wanted
    if operator == "matches":
        return _matches(left, right)
    holds = OPERATORS[operator]
    if isinstance(right, Term):
        return lambda row, meter: any(
            holds(one, other) for one in _values(left, row, meter) for other in _values(right, row, meter)
        )
    value = right[0]
    if isinstance(left, Term) and operator == "contains" and left.is_many:
        return lambda row, meter: (
            contains(left.values(row, meter), value) or any(contains(one, value) for one in left.values(row, meter))
        )
    return lambda row, meter: any(holds(one, value) for one in _values(left, row, meter))


def _matches(left: Operand, right: Operand) -> Test:
    if isinstance(right, Term) or not isinstance(right[0], str):
        raise QueryRefused("matches needs a quoted pattern")
    regex = Regex(right[0])
    return lambda row, meter: any(
        one is not None and regex.first(_text(one)) is not None for one in _values(left, row, meter)
    )


def _values(operand: Operand, row: Place, meter: Meter) -> Sequence[Any]:
    if isinstance(operand, tuple):
        return operand
    values = operand.values(row, meter)
    return values or (() if operand.is_many else (None,))


def _present(operand: Operand, row: Place, meter: Meter) -> bool:
    values = operand if isinstance(operand, tuple) else operand.values(row, meter)
    return any(value is not None for value in values)
