"""`where` as an object: `{"state": "open", "comments": {"gt": 3}}`; lists mean one of, `$gt` is `gt`."""

from typing import Any, cast

from mcpbridge.results.query_expression import DEEPEST, parse_where
from mcpbridge.results.query_predicates import Test, Where, all_of, any_of, comparison, none_of, operator_named
from mcpbridge.results.query_refused import QueryRefused, clipped
from mcpbridge.results.query_terms import Term, parse_term
from mcpbridge.results.query_values import written

__all__ = ["where_of"]

MOST = 500
"""Conditions of one object, all levels together."""


def where_of(value: Any) -> Where:
    """Read a condition: an expression, an object, or a list of either, all of which hold.

    Raises:
        QueryRefused: it is none; says what is wrong.
    """
    if isinstance(value, str):
        return parse_where(value)
    if isinstance(value, list):
        parts = [where_of(part) for part in cast("list[Any]", value)[: MOST + 1]]
        if not 0 < len(parts) <= MOST:
            raise QueryRefused("where: an empty list, or one without end")
        return Where("", all_of([part.test for part in parts]), tuple(term for part in parts for term in part.terms))
    if not isinstance(value, dict):
        raise QueryRefused('where: expected an expression such as state == "open", or an object {"state": "open"}')
    terms = list[Term]()
    test = _conditions(cast("dict[str, Any]", value), terms, 0)
    return Where("", test, tuple(terms))


def _conditions(members: dict[str, Any], terms: list[Term], depth: int) -> Test:
    if depth > DEEPEST or len(terms) > MOST or not members:
        raise QueryRefused("where: an empty object" if not members else "where: too many conditions")
    return all_of([_condition(name, value, terms, depth) for name, value in members.items()])


def _condition(name: str, value: Any, terms: list[Term], depth: int) -> Test:
    known = name.lower().removeprefix("$")
    if known in ("and", "or", "all", "any") and isinstance(value, list):
        parts = [_nested(part, terms, depth) for part in cast("list[Any]", value)]
        if not parts:
            raise QueryRefused(f"where.{name}: an empty list")
        return all_of(parts) if known in ("and", "all") else any_of(parts)
    if known == "not" and isinstance(value, dict):
        return none_of(_nested(value, terms, depth))
    term = parse_term(name)
    if isinstance(value, list):
        terms.append(term)
        return comparison(term, "in", (cast("list[Any]", value),))
    if not isinstance(value, dict):
        if value is not None:
            terms.append(term)
        return comparison(term, "==", (value,))
    operators = cast("dict[str, Any]", value)
    if not operators:
        raise QueryRefused(f"where.{clipped(name)}: an empty object")
    return all_of([_operator(term, operator, right, terms) for operator, right in operators.items()])


def _nested(value: Any, terms: list[Term], depth: int) -> Test:
    if isinstance(value, str):
        where = parse_where(value)
        terms.extend(where.terms)
        return where.test
    if not isinstance(value, dict):
        raise QueryRefused("where: expected an object or an expression")
    return _conditions(cast("dict[str, Any]", value), terms, depth + 1)


def _operator(term: Term, name: str, right: Any, terms: list[Term]) -> Test:
    if name.lower() in ("not", "$not") and isinstance(right, dict):
        return none_of(
            all_of([_operator(term, key, value, terms) for key, value in cast("dict[str, Any]", right).items()])
        )
    at = f"where.{clipped(term.text)}: "
    operator = operator_named(name, at)
    if operator in ("in", "not in") and not isinstance(right, list):
        raise QueryRefused(f"{at}{name} needs a list, not {clipped(written(right))}")
    if operator != "exists" and right is not None:
        terms.append(term)
    return comparison(term, operator, (cast("Any", right),))
