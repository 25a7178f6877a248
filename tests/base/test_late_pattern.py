"""Patterns that are compiled at their first use: as good as others, and right."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import mcpbridge
from mcpbridge.base.late_pattern import late


def late_patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    kind = type(late(""))
    for module in pkgutil.walk_packages(mcpbridge.__path__, "mcpbridge."):
        if not module.name.endswith("__main__"):
            found = vars(importlib.import_module(module.name)).items()
            yield from ((f"{module.name}.{name}", one) for name, one in found if isinstance(one, kind))


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


def test_one_that_is_wrong_fails_when_it_is_used() -> None:
    wrong = late("(")
    with pytest.raises(re.error, match="missing"):
        wrong.search("")
