"""The tests that `docs/reference/authorization-demands.md` names are there, and each demand has one."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "authorization-demands.md"
ROW = re.compile(r"^\| (?P<demand>[^|]+) \| (?P<since>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
SINCE = {"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "extension"}


def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    found = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in found if name.startswith("test_")}


def rows() -> list[re.Match[str]]:
    return [row for row in ROW.finditer(PAGE.read_text("utf-8")) if row["since"] != "Since"]


def test_each_demand_has_tests_that_are_there() -> None:
    problems: list[str] = []
    for row in rows():
        named = NAMED.findall(row["tests"])
        problems += [f"{row['demand']}: no test"] * (not named)
        problems += [f"{file}::{name}" for file, name in named if name not in names_in(file)]
    assert problems == []


def test_demands_of_all_revisions_are_there() -> None:
    assert {row["since"] for row in rows()} == SINCE
    demands = [row["demand"] for row in rows()]
    assert len(demands) == len(set(demands)) > 30
