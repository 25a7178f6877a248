"""Show the matrix after a run of the tests."""

import pytest

from matrix.report import RUN, table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A table of all cells, with the reason for each that is left out."""
    if RUN in config.stash:
        terminalreporter.section("matrix: operations that passed, by client and server")
        terminalreporter.write_line(table(config.stash[RUN]))
