"""Python objects by their names: what brings them in stands what other threads import at the same moment."""

import gc
import inspect
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.tools.python.import_object import beside, import_object

DISTURBANCES = 30


@pytest.fixture
def disturbed() -> Generator[list[str]]:
    """Python's cache of places changes while it is gone through, as other threads do it. The list tells of them."""
    added: list[str] = []

    def disturb(_phase: str, _info: dict[str, int]) -> None:
        at = inspect.currentframe()
        where = at.f_back if at else None
        if where and where.f_code.co_name == "invalidate_caches" and len(added) < DISTURBANCES:
            added.append(f"/nowhere/{len(added)}")
            sys.path_importer_cache[added[-1]] = None

    before = gc.get_threshold()
    was_on = gc.isenabled()
    gc.enable()
    gc.callbacks.append(disturb)
    gc.set_threshold(1, 1, 1)  # a collection at nearly every object that is made
    try:
        yield added
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(disturb)
        if not was_on:
            gc.disable()
        for place in added:
            sys.path_importer_cache.pop(place, None)


def test_a_module_is_found_while_other_threads_import(tmp_path: Path, disturbed: list[str]) -> None:
    (tmp_path / "found_beside_others.py").write_text("answer = 42\n")
    with beside(tmp_path):
        found: Any = import_object("found_beside_others:answer", tmp_path)
    assert found == 42
    assert disturbed, "it was disturbed"
