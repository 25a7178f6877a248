"""The matrix as text: after a run of the tests, and in docs/reference/matrix.md."""

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from matrix.cells import CELLS, ERAS, REVISIONS, TRANSPORTS, Cell, impossible
from matrix.operations import HEAVY_OPERATIONS, LAST_OPERATIONS, OPERATIONS
from matrix.running import Outcome

__all__ = ["PAGE", "in_markdown", "shown", "table"]

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/matrix.md"

_BLOCK = re.compile(r"(<!-- matrix:begin -->\n).*?(<!-- matrix:end -->)", re.DOTALL)
_FRONTS = {"stdio": "stdio", "http": "HTTP", "sse": "SSE", "ws": "WebSocket"}


_LEGEND = """\
✓ stands for all of this: {operations}. What a client's revision does not know (elicitation before 2025-06-18,
by URL before 2025-11-25) is never sent to it, and the server is notified. The 20 MB cross where client and
server speak the newest revision of the same era. – is where there is nothing to bridge: HTTP+SSE is a
transport of 2024-11-05 and carries sessions, which 2026-07-28 does not have."""


def table(outcomes: Mapping[Cell, Outcome]) -> str:
    """A row for each client, a column for each server: how many operations passed, of how many."""
    lines = [f"{'client':24}" + "".join(f"{f'{era} {reached}':14}" for era in ERAS for reached in TRANSPORTS)]
    for revision in REVISIONS:
        for front in TRANSPORTS:
            cells = [cell for cell in CELLS if (cell.revision, cell.front) == (revision, front)]
            row = "".join(f"{_count(outcomes.get(cell), cell):14}" for cell in cells)
            lines.append(f"{revision + ' ' + front:24}{row}".rstrip())
    reasons = defaultdict[str, int](int)
    for cell in CELLS:
        if reason := impossible(cell):
            reasons[reason] += 1
    lines += [f"-: {count} cells, {reason}" for reason, count in reasons.items()]
    return "\n".join(lines)


def _count(outcome: Outcome | None, cell: Cell) -> str:
    if impossible(cell):
        return "-"
    if outcome is None:
        return "not run"
    return f"{len(outcome.passed)}/{len(outcome.passed) + len(outcome.failed)}"


def in_markdown() -> str:
    """The table of the page. It is no record of a run: the tests hold every ✓ of it."""
    servers = [(era, reached) for era in ERAS for reached in TRANSPORTS]
    heads = [f"{_FRONTS[reached]}, {era}" for era, reached in servers]
    lines = [f"| client \\ server | {' | '.join(heads)} |", f"|---|{':-:|' * len(heads)}"]
    for revision in REVISIONS:
        for front in TRANSPORTS:
            marks = ["–" if impossible(Cell(revision, front, *server)) else "✓" for server in servers]
            lines.append(f"| {revision}, {_FRONTS[front]} | {' | '.join(marks)} |")
    operations = ", ".join([*OPERATIONS, *LAST_OPERATIONS, *HEAVY_OPERATIONS])
    return "\n".join([*lines, "", _LEGEND.format(operations=operations), ""])


def shown(page: str) -> str:
    """The page with the table between its marks as it must be."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{in_markdown()}\n{block[2]}", page)
