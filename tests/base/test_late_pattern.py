"""Patterns that are compiled at their first use: as good as others, and right."""

import copy
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mcpbridge
from mcpbridge.base.late_pattern import late


def late_patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    kind, source = type(late("")), Path(mcpbridge.__file__).parents[1]
    for file in source.rglob("*.py"):
        if "late(" in file.read_text("utf-8"):
            module = ".".join(file.relative_to(source).with_suffix("").parts)
            found = vars(importlib.import_module(module)).items()
            yield from ((f"{module}.{name}", one) for name, one in found if isinstance(one, kind))


def test_each_is_right() -> None:
    wrong: dict[str, str] = {}
    seen: set[str] = set()
    for name, pattern in late_patterns():
        seen.add(name)
        try:
            pattern.search("")
        except TypeError:
            pattern.search(b"")
        except re.error as error:
            wrong[name] = str(error)
    assert wrong == {}
    assert "mcpbridge.base.masking.text._USER_INFO" in seen


def test_it_is_used_as_any_other() -> None:
    for pattern in (late(r"(?P<word>[a-z]+)", re.IGNORECASE), re.compile(r"(?P<word>[a-z]+)", re.IGNORECASE)):
        assert pattern.sub("-", "1 Two 3") == "1 - 3"
        assert [match["word"] for match in pattern.finditer("One two")] == ["One", "two"]
        assert pattern.fullmatch("x1") is None
        assert (pattern.pattern, pattern.groups) == (r"(?P<word>[a-z]+)", 1)
    assert late(rb"\d").findall(b"a1b2") == [b"1", b"2"]


def test_one_that_is_copied_is_the_same() -> None:
    assert copy.deepcopy(late("a+")).findall("caab") == ["aa"]


def test_one_that_is_wrong_fails_when_it_is_used() -> None:
    wrong = late("(")
    with pytest.raises(re.error, match="missing"):
        wrong.search("")
