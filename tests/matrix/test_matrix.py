"""Any client before any server: every cell that can exist, over every operation.

The matrix runs once, when the first of its clients is asked for; what it takes is in `running.py`, what a cell must do
in `operations.py`.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.cells import CELLS, Cell, Transport, impossible
from matrix.report import PAGE, shown, table
from matrix.running import LANES, Outcomes, clients_on, run_matrix
from support.run_summary import WORDS


class Matrix:
    """The matrix under way: it goes on while a test waits for a part of it, so that no test waits for all.

    On an event loop of its own: one that lasts as long as a session would be that of all later tests, and what one of
    them left running would end in another.
    """

    def __init__(self, runner: asyncio.Runner, folder: Path) -> None:
        self._runner = runner
        self._through: set[tuple[str, Transport]] = set()
        self._news = asyncio.Event()
        self._running = runner.get_loop().create_task(run_matrix(folder, self._take))

    def wait_for(self, client: tuple[str, Transport]) -> bool:
        """Wait until this client is through with all but the last operations; False when it never will be."""
        return self._runner.run(self._until(client))

    def outcomes(self) -> Outcomes:
        """What came of every cell."""
        return self._runner.run(self._end())

    def _take(self, revision: str, front: Transport) -> None:
        self._through.add((revision, front))
        self._news.set()

    async def _until(self, client: tuple[str, Transport]) -> bool:
        while client not in self._through and not self._running.done():
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            await asyncio.wait([news, self._running], return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
        return client in self._through

    async def _end(self) -> Outcomes:
        return await self._running


@pytest.fixture(scope="session")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        yield Matrix(runner, tmp_path_factory.mktemp("matrix"))


@pytest.fixture(scope="session")
def outcomes(matrix: Matrix, request: pytest.FixtureRequest) -> Outcomes:
    """What came of every cell; shown as a table at the end."""
    found = matrix.outcomes()
    request.config.stash[WORDS]["matrix: operations that passed, by client and server"] = table(found)
    return found


@pytest.mark.parametrize("client", [client for fronts in LANES for client in clients_on(fronts)], ids="-".join)
def test_a_client_comes_to_an_end_with_all_servers(client: tuple[str, Transport], matrix: Matrix) -> None:
    assert matrix.wait_for(client), "it is not through, and what became of it stands with its cells"


@pytest.mark.parametrize("cell", [cell for cell in CELLS if not impossible(cell)], ids=str)
def test_everything_works_in_this_cell(cell: Cell, outcomes: Outcomes) -> None:
    outcome = outcomes[cell]
    assert not outcome.failed, "\n".join(f"{name}: {why}" for name, why in outcome.failed.items())


@pytest.mark.parametrize("cell", [cell for cell in CELLS if impossible(cell)], ids=str)
def test_a_cell_is_left_out_for_a_reason(cell: Cell) -> None:
    """Only HTTP+SSE with the modern era: there is nothing to be bridged."""
    assert (cell.front == "sse" and cell.revision == "2026-07-28") or (cell.reached, cell.era) == ("sse", "modern")


def test_the_page_shows_the_matrix() -> None:
    page = PAGE.read_text("utf-8")
    assert "<!-- matrix:begin -->" in page
    assert shown(page) == page, "run `make matrix`"
