"""The whole set-up of the matrix, started once: the servers, a bridge for all HTTP fronts, one for each stdio client.

All seven servers stand behind one bridge, as people have them. A client of each revision connects on each front once
and goes through the operations with all servers side by side.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import Place
from matrix.cells import REACHED, Cell, Transport
from matrix.client import Client
from matrix.operations import HEAVY_OPERATIONS, OPERATIONS, Operations, Stage, fresh_stamp
from matrix.wires import HttpWire, SseWire, StdioWire, WebSocketWire, Wire

__all__ = ["Matrix", "Outcome", "matrix"]

TESTS = Path(__file__).resolve().parent.parent

# Results larger than SDK clients take, and all servers up before the first list.
_SECTIONS: dict[str, dict[str, Any]] = {"http": {"max_event": 0}, "bridge": {"startup_wait": 30}}


@dataclass
class Outcome:
    """What came of one cell."""

    failed: dict[str, str] = field(default_factory=dict)
    """Why, by operation."""
    passed: list[str] = field(default_factory=list)


@dataclass
class Matrix:
    """The running set-up."""

    place: Place
    state: Path
    urls: dict[str, str]
    """Of the servers that are not started by the bridge."""
    address: str
    """Of the bridge's HTTP fronts, without the scheme."""

    async def run(self, revision: str, front: Transport) -> dict[Cell, Outcome]:
        """Connect one client, and go through the operations with every server."""
        cells = [Cell(revision, front, era, reached) for era, reached in REACHED]
        async with self._wire(revision, front) as wire, Client(wire, revision).open() as client:
            stages = [Stage(cell, client, self.state / cell.server, fresh_stamp()) for cell in cells]
            outcomes = await asyncio.gather(*(_go_through(stage, OPERATIONS) for stage in stages))
            for stage, outcome in zip(stages, outcomes, strict=True):  # one after the other, not to hold each other up
                await _go_through(stage, HEAVY_OPERATIONS, outcome)
        return dict(zip(cells, outcomes, strict=True))

    @asynccontextmanager
    async def _wire(self, revision: str, front: Transport) -> AsyncIterator[Wire]:
        if front == "http":
            yield HttpWire(f"http://{self.address}/mcp")
        elif front == "sse":
            yield SseWire(f"http://{self.address}/sse")
        elif front == "ws":
            yield WebSocketWire(f"ws://{self.address}/ws")
        else:
            config = self.place.config(servers(self.state, self.urls), **_SECTIONS)
            async with self.place.started("serve", "--config", str(config)) as command:
                yield StdioWire(command.process)


async def _go_through(stage: Stage, operations: Operations, outcome: Outcome | None = None) -> Outcome:
    outcome = outcome or Outcome()
    for name, operation in operations.items():
        try:
            await operation(stage)
        except Exception as error:  # noqa: BLE001 - the next operation may go well; the test tells of all
            outcome.failed[name] = f"{type(error).__name__}: {error}"[:600]
        else:
            outcome.passed.append(name)
    return outcome


def servers(state: Path, urls: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The `servers` section: each one told how it is reached, and left to find out its era."""
    kinds = {"http": "streamable-http", "sse": "sse", "ws": "websocket"}
    started: dict[str, dict[str, Any]] = {}
    for era, reached in REACHED:
        name = f"{era}-{reached}"
        if reached == "stdio":
            args = ["-m", "matrix.upstream", str(state), era]
            started[name] = {"command": sys.executable, "args": args, "env": {"PYTHONPATH": str(TESTS)}}
        else:
            started[name] = {"url": urls[name], "transport": kinds[reached]}
    return started


@asynccontextmanager
async def matrix(folder: Path) -> AsyncIterator[Matrix]:
    """Everything running."""
    place = Place(folder)
    state = folder / "state"
    state.mkdir()
    try:
        async with _upstreams(state) as urls:
            config = place.config(servers(state, urls), **_SECTIONS)
            async with place.started("serve", "--config", str(config), "--http", "127.0.0.1:0") as command:
                found = await command.logged(r"http://(127\.0\.0\.1:[1-9]\d*)")
                yield Matrix(place, state, urls, found[1])
    finally:
        place.clean()


@asynccontextmanager
async def _upstreams(state: Path) -> AsyncIterator[dict[str, str]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "matrix.upstream", str(state)),
        stdout=asyncio.subprocess.PIPE,
        cwd=TESTS,
        start_new_session=True,
    )
    assert process.stdout
    try:
        async with asyncio.timeout(30):
            urls = json.loads(await process.stdout.readline())
        yield urls
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
