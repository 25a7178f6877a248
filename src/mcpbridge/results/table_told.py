"""Columns that need no cells: the same in all rows, counted, or told by whether a row has others below it."""

from collections.abc import Sequence
from typing import Any

from mcpbridge.results.table_notation import BELOW, KEY, MISSING, Path, cell_text
from mcpbridge.results.table_specs import Spec

__all__ = ["told"]


def told(path: Path, values: list[Any], places: Sequence[int], below: Path | None, there: list[bool]) -> Spec | None:
    """How a column is told without cells; None if it needs them, or other columns.

    `places`: of each row, how many records of its list come before it. `below`: the member whose lists are rows of
    their own, and `there`: whether a row has such.
    """
    if path in ((KEY,), below):
        return None
    if _constant(values):
        return Spec(path, "constant", value=values[0], has_cell=False)
    if steps := _steps(values, places):
        return Spec(path, "steps", steps=steps, has_cell=False)
    if below is not None and (branches := _branches(values, there)):
        return Spec(path, "branch", source=below, branches=branches, has_cell=False)
    return None


def _constant(values: list[Any]) -> bool:
    first: Any = values[0]
    if first is MISSING or type(first) is dict or values[-1] != first:
        return False
    if not all(type(value) is type(first) and value == first for value in values):
        return False
    # Equal Decimals may be written differently, and lists hold anything.
    return isinstance(first, str | int | None) or len({cell_text(value) for value in values}) == 1


def _steps(values: list[Any], places: Sequence[int]) -> tuple[int, int] | None:
    """The first number and the distance, of numbers that are equally far from each other."""
    if len(values) < 4 or not all(type(value) is int for value in values):
        return None
    step: int = next((values[row] - values[row - 1] for row, place in enumerate(places) if place == 1), 0)
    start: int = values[0]
    if step and all(value == start + place * step for value, place in zip(values, places, strict=True)):
        return start, step
    return None


def _branches(values: list[Any], there: list[bool]) -> tuple[Any, Any] | None:
    """The one value of rows that have rows below, and the one of the others."""
    if not all(isinstance(value, str | int | None) for value in values) or any(value is BELOW for value in values):
        return None
    yes = [value for value, is_there in zip(values, there, strict=True) if is_there]
    no = [value for value, is_there in zip(values, there, strict=True) if not is_there]
    return (yes[0], no[0]) if yes and no and _constant(yes) and _constant(no) else None
