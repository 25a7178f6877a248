"""The cells of the matrix: every client before every server, and which of them cannot exist."""

from dataclasses import dataclass
from itertools import product
from typing import Literal

__all__ = [
    "CELLS",
    "ERAS",
    "MODERN",
    "REACHED",
    "REVISIONS",
    "TRANSPORTS",
    "Cell",
    "CellEra",
    "Transport",
    "impossible",
]

CellEra = Literal["legacy", "modern"]
Transport = Literal["stdio", "http", "sse", "ws"]

MODERN = "2026-07-28"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN)
ERAS: tuple[CellEra, ...] = ("legacy", "modern")
TRANSPORTS: tuple[Transport, ...] = ("stdio", "http", "sse", "ws")

_NO_MODERN_SSE = "HTTP+SSE is a transport of 2024-11-05: it carries sessions, which 2026-07-28 has not"


@dataclass(frozen=True)
class Cell:
    """One client before one server."""

    revision: str
    """The client's revision."""
    front: Transport
    """How the client reaches the bridge."""
    era: CellEra
    """What the server speaks."""
    reached: Transport
    """How the bridge reaches the server."""

    @property
    def server(self) -> str:
        """The server's name in the configuration."""
        return f"{self.era}-{self.reached}"

    def __str__(self) -> str:
        return f"{self.revision}-{self.front}-{self.server}"


def impossible(cell: Cell) -> str | None:
    """Why a cell cannot exist; None: it does."""
    if cell.front == "sse" and cell.revision == MODERN:
        return f"for the client, {_NO_MODERN_SSE}"
    if cell.reached == "sse" and cell.era == "modern":
        return f"for the server, {_NO_MODERN_SSE}"
    return None


CELLS = [Cell(*parts) for parts in product(REVISIONS, TRANSPORTS, ERAS, TRANSPORTS)]
REACHED: list[tuple[CellEra, Transport]] = [
    (era, reached) for era, reached in product(ERAS, TRANSPORTS) if (era, reached) != ("modern", "sse")
]
"""The servers that there are."""
