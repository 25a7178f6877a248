"""Any client before any server (spec 7 of the project's notes): every cell that can exist, over every operation.

The matrix runs once, when its first cell is asked for; what it takes is in `running.py`, what a cell must do in
`operations.py`.
"""

import asyncio

import pytest

from closing_words import WORDS
from matrix.cells import CELLS, Cell, impossible
from matrix.report import README, shown, table
from matrix.running import Outcome, run_matrix


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[Cell, Outcome]:
    """What came of every cell; shown as a table at the end."""
    # On an event loop of its own: one that lasts as long as a session would be that of all later tests, and what one
    # of them left running would end in another.
    found: dict[Cell, Outcome] = asyncio.run(run_matrix(tmp_path_factory.mktemp("matrix")))
    request.config.stash[WORDS]["matrix: operations that passed, by client and server"] = table(found)
    return found


@pytest.mark.parametrize("cell", [cell for cell in CELLS if not impossible(cell)], ids=str)
def test_everything_works_in_this_cell(cell: Cell, outcomes: dict[Cell, Outcome]) -> None:
    outcome = outcomes[cell]
    assert not outcome.failed, "\n".join(f"{name}: {why}" for name, why in outcome.failed.items())


@pytest.mark.parametrize("cell", [cell for cell in CELLS if impossible(cell)], ids=str)
def test_a_cell_is_left_out_for_a_reason(cell: Cell) -> None:
    """Only HTTP+SSE with the modern era: there is nothing to be bridged."""
    assert (cell.front == "sse" and cell.revision == "2026-07-28") or (cell.reached, cell.era) == ("sse", "modern")


def test_the_readme_shows_the_matrix() -> None:
    page = README.read_text("utf-8")
    assert "<!-- matrix:begin -->" in page
    assert shown(page) == page, "run `make matrix`"
