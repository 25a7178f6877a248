"""A plugin of pytest for `make mutants`: which test runs which line of a module, or a run of some tests only.

`MUTATION_PLAN` names a JSON file. With `watch` (the file of a module) and `report`, the lines that each test runs and
its time are written to the report. With `tests`, those are run in that order, and no others.
"""

import json
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

IMPORTED = ""
"""The name under which the lines are that run on import."""


class Watch:
    """Notes the lines of one file that run, for each test."""

    def __init__(self, file: str, report: str) -> None:
        self._file, self._report = file, report
        self._lines: dict[str, set[int]] = {IMPORTED: set()}
        self._now = self._lines[IMPORTED]
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._blind: set[str] = set()
        """Tests that took the watch away, as a recursion to the limit does: they may run any line."""
        self._known: dict[CodeType, bool] = {}

    def start(self) -> None:
        """Watch this thread and those that it starts."""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        mine = self._known.get(code)
        if mine is None:
            mine = self._known[code] = os.path.realpath(code.co_filename) == self._file
        if not mine:
            return None
        self._now.add(frame.f_lineno)
        return self._line

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        self._now.add(frame.f_lineno)
        return self._line

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Lines are this test's meanwhile."""
        self._now = self._lines.setdefault(item.nodeid, set())
        self.start()
        try:
            return (yield)
        finally:
            if sys.gettrace() != self._call:
                self._blind.add(item.nodeid)
            self._now = self._lines[IMPORTED]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long it took, and whether it passed."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:  # nor may one be skipped: it says nothing
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]  # what the library's stub leaves out
        tests = {
            name: {"lines": sorted(lines), "seconds": self._seconds.get(name, 0.0), "blind": name in self._blind}
            for name, lines in self._lines.items()
            if name not in self._failed
        }
        Path(self._report).write_text(json.dumps({"tests": tests, "failed": sorted(self._failed)}), encoding="utf-8")


class Selection:
    """Runs the named tests only, in that order."""

    def __init__(self, tests: list[str]) -> None:
        self._order = {name: number for number, name in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the others."""
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])


def pytest_configure(config: pytest.Config) -> None:
    """Do what the plan says."""
    plan = json.loads(Path(os.environ["MUTATION_PLAN"]).read_text(encoding="utf-8"))
    if "watch" in plan:
        watch = Watch(os.path.realpath(plan["watch"]), plan["report"])
        config.pluginmanager.register(watch)
        watch.start()
    else:
        config.pluginmanager.register(Selection(plan["tests"]))
