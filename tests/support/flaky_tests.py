"""A failed test is run once more, alone: `--flaky-report FILE`, as `make test` and CI use it.

A test that fails twice fails. One that passes then depends on what else the machine did: it is called flaky, listed at
the end of the run and in the file with what it failed with at first, and does not fail the run. It is still a defect of
the test or of the code, to be mended.

Alone means: after all others, in a process of its own, with nothing beside it; also when they ran in several processes.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

MOST = 20
"""Failed tests that are run again: more of them are no accident."""

LONGEST = 900.0
"""Seconds that a test may take alone."""

_NOT_AGAIN = "MCPBRIDGE_TESTS_ALONE"
"""Set in the process of a test that is run again."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--flaky-report FILE`."""
    parser.addoption(
        "--flaky-report",
        metavar="FILE",
        default=None,
        help="run each failed test once more, alone, and list those that pass then in FILE instead of failing",
    )


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Half a character in what a test failed with cannot be sent by its process, which would end the whole run."""
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_sendable(name): _sendable(one) for name, one in value.items()}
    return type(value)(map(_sendable, value)) if isinstance(value, list | tuple) else value


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Only in the process that reports, which runs the tests itself or has others run them."""
    file = config.getoption("--flaky-report")
    if file and not hasattr(config, "workerinput") and _NOT_AGAIN not in os.environ:
        config.pluginmanager.register(FlakyTests(config, config.invocation_params.dir / file))


class FlakyTests:
    """Runs what failed again, and changes what the run comes to."""

    def __init__(self, config: pytest.Config, file: Path) -> None:
        self._config, self._file = config, file
        self.found: dict[str, str] = {}
        """The flaky tests, and what each failed with at first."""

    @pytest.hookimpl(trylast=True)  # when the processes that ran the tests have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Decide which failures count."""
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        failures = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
        names = sorted({one.nodeid for one in failures if isinstance(one, pytest.TestReport)})
        # One that was stopped early says nothing of the tests that did not run.
        is_whole = session.exitstatus == pytest.ExitCode.TESTS_FAILED and not (session.shouldstop or session.shouldfail)
        if is_whole and 0 < len(names) <= MOST:
            reporter.write_line("")
            reporter.section("failed tests, once more, alone", sep="-")
            for name in names:
                passes = passes_alone(self._config, name)
                reporter.write_line(f"{'passed' if passes else 'failed'} {name}")
                if passes:
                    self.found[name] = _reasons(failures, name)
            self._excuse(session, reporter, failures)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("".join(f"{name}\n{_indented(why)}" for name, why in self.found.items()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name them."""
        if self.found:
            terminalreporter.section(f"flaky tests, which failed and passed alone; see {self._file}", yellow=True)
            for name in self.found:
                terminalreporter.write_line(name)

    def _excuse(self, session: pytest.Session, reporter: Any, failures: Sequence[Any]) -> None:
        excused = [one for one in failures if one.nodeid in self.found]
        for outcome in ("failed", "error"):
            left = [one for one in reporter.stats.get(outcome, ()) if one not in excused]
            reporter.stats[outcome] = left
            if not left:
                reporter.stats.pop(outcome)
        if excused:
            reporter.stats["flaky"] = excused
        if len(excused) == len(failures):
            session.exitstatus = pytest.ExitCode.OK


def passes_alone(config: pytest.Config, name: str) -> bool:
    """Whether a test passes in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(config.rootpath)]
    if config.inipath is not None:
        command += ["-c", str(config.inipath)]
    environment = {**os.environ, _NOT_AGAIN: "1"}
    environment.pop("PYTEST_CURRENT_TEST", None)
    try:
        done = subprocess.run(
            [*command, name], cwd=config.rootpath, env=environment, timeout=LONGEST, check=False, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == pytest.ExitCode.OK


def _reasons(failures: Sequence[Any], name: str) -> str:
    return "\n".join(f"{one.when}: {one.longreprtext}" for one in failures if one.nodeid == name)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
