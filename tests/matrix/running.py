"""Run the matrix: all servers behind one bridge, as people have them, and a client of each revision on each front.

Each client goes through the operations with all servers side by side. Two lanes run beside each other, with servers of
their own: the clients of the HTTP fronts, which share one bridge, and those on stdio, each of which starts its own.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from matrix.cells import REACHED, REVISIONS, Cell, Transport, impossible
from matrix.client import Client
from matrix.operations import HEAVY_OPERATIONS, LAST_OPERATIONS, OPERATIONS, Operations, Stage, fresh_stamp
from matrix.wires import HttpWire, SseWire, StdioWire, WebSocketWire, Wire
from support.harness import Place

__all__ = ["LANES", "Outcome", "Outcomes", "clients_on", "run_matrix"]

TESTS = Path(__file__).resolve().parent.parent

# Results larger than SDK clients take, and all servers up before the first list.
_SECTIONS: Mapping[str, Mapping[str, Any]] = {"http": {"max_event": 0}, "bridge": {"startup_wait": 30}}
_DEADLINE = 100
"""Seconds for one client, and for the last operations of all, less than pytest gives a test (`faulthandler_timeout`).
Each takes a few, with other tests beside it. A client that does not come to its end must not hold these up: with it
ends its lane."""
_UNFINISHED = f"not finished, or behind a client that was not finished after {_DEADLINE} s"
STDIO: Sequence[Transport] = ("stdio",)
LANES: Sequence[Sequence[Transport]] = (("http", "sse", "ws"), STDIO)
"""The fronts of the clients that go one after the other."""
_TRANSPORTS = {"http": "streamable-http", "sse": "sse", "ws": "websocket"}


@dataclass
class Outcome:
    """What came of one cell."""

    failed: dict[str, str] = field(default_factory=dict)
    """Why, by operation."""
    passed: list[str] = field(default_factory=list)


Outcomes = dict[Cell, Outcome]


Through = Callable[[str, Transport], None]
"""Is told of each client, by its revision and its front, that is through with all but the last operations."""


def clients_on(fronts: Iterable[Transport]) -> list[tuple[str, Transport]]:
    """The clients of one lane, in their order."""
    return [(revision, front) for revision, front in product(REVISIONS, fronts) if _exists(revision, front)]


async def run_matrix(folder: Path, through: Through) -> Outcomes:
    """Every cell that can exist."""
    lanes = [_lane(folder / "-".join(fronts), fronts, through) for fronts in LANES]
    found: Outcomes = {}
    for outcomes in await asyncio.gather(*lanes):
        found |= outcomes
    return found


async def _lane(folder: Path, fronts: Sequence[Transport], through: Through) -> Outcomes:
    state = folder / "state"
    state.mkdir(parents=True)
    place = Place(folder)
    staged: list[Stage] = []
    outcomes: Outcomes = {}
    async with _upstreams(state) as urls, AsyncExitStack() as stack:
        stack.callback(place.clean)
        config = place.config(_servers(state, urls), **_SECTIONS)
        address = "" if fronts == STDIO else await stack.enter_async_context(_bridge(place, config))
        clients = clients_on(fronts)
        outcomes |= {Cell(*client, *server): Outcome({"all": _UNFINISHED}) for client in clients for server in REACHED}
        with contextlib.suppress(TimeoutError):
            for revision, front in clients:
                wire = _stdio(place, config) if front == "stdio" else _http(front, address)
                opening = stack.enter_async_context(_client(wire, revision))
                async with asyncio.timeout(_DEADLINE):
                    staged += await _one_client(opening, revision, front, state, outcomes)
                through(revision, front)
            async with asyncio.timeout(_DEADLINE):
                await asyncio.gather(*(_go_through(stage, LAST_OPERATIONS, outcomes[stage.cell]) for stage in staged))
                for stage in staged:
                    del outcomes[stage.cell].failed["all"]
    return outcomes


def _exists(revision: str, front: Transport) -> bool:
    return impossible(Cell(revision, front, "legacy", "stdio")) is None


async def _one_client(
    opening: Awaitable[Client], revision: str, front: Transport, state: Path, outcomes: Outcomes
) -> list[Stage]:
    """All but the last operations of one client with every server; the client stays."""
    cells = [Cell(revision, front, *server) for server in REACHED]
    try:
        client = await opening
    except Exception as error:  # noqa: BLE001 - the other clients may do better; the test tells of all
        for cell in cells:
            outcomes[cell].failed = {"connecting": _said(error)}
        return []
    stages = [Stage(cell, client, state / cell.server, fresh_stamp()) for cell in cells]
    await asyncio.gather(*(_go_through(stage, OPERATIONS, outcomes[stage.cell]) for stage in stages))
    for stage in stages:
        await _go_through(stage, HEAVY_OPERATIONS, outcomes[stage.cell])
    return stages


async def _go_through(stage: Stage, operations: Operations, outcome: Outcome) -> None:
    for name, operation in operations.items():
        try:
            await operation(stage)
        except Exception as error:  # noqa: BLE001 - the next operation may go well; the test tells of all
            outcome.failed[name] = _said(error)
        else:
            outcome.passed.append(name)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:600]


# -- what runs


@asynccontextmanager
async def _client(wire: contextlib.AbstractAsyncContextManager[Wire], revision: str) -> AsyncIterator[Client]:
    async with wire as opened, Client(opened, revision).open() as client:
        yield client


@asynccontextmanager
async def _stdio(place: Place, config: Path) -> AsyncIterator[Wire]:
    async with place.started("serve", "--config", str(config)) as command:
        yield StdioWire(command.process)


@asynccontextmanager
async def _http(front: Transport, address: str) -> AsyncIterator[Wire]:
    if front == "http":
        yield HttpWire(f"http://{address}/mcp")
    elif front == "sse":
        yield SseWire(f"http://{address}/sse")
    else:
        yield WebSocketWire(f"ws://{address}/ws")


@asynccontextmanager
async def _bridge(place: Place, config: Path) -> AsyncIterator[str]:
    """A bridge with all HTTP fronts; its address, without the scheme."""
    async with place.started("serve", "--config", str(config), "--http", "127.0.0.1:0", "--no-auth") as command:
        found = await command.logged(r"http://(127\.0\.0\.1:[1-9]\d*)")
        yield found[1]


def _servers(state: Path, urls: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The `servers` section: each one told how it is reached, and its era left to be found out."""
    section: dict[str, dict[str, Any]] = {}
    for era, reached in REACHED:
        name = f"{era}-{reached}"
        if reached == "stdio":
            args = ["-m", "matrix.upstream", str(state), era]
            section[name] = {"command": sys.executable, "args": args, "env": {"PYTHONPATH": str(TESTS)}}
        else:
            section[name] = {"url": urls[name], "transport": _TRANSPORTS[reached]}
    return section


@asynccontextmanager
async def _upstreams(state: Path) -> AsyncIterator[dict[str, str]]:
    """The servers that the bridge does not start; their URLs by name."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "matrix.upstream", str(state)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=TESTS,
    )
    assert process.stdout
    try:
        async with asyncio.timeout(60):
            urls = json.loads(await process.stdout.readline())
        yield urls
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
