"""How long the machine keeps the processes of a run waiting, measured all along (issue 24).

Bridges are asked whether they live, which needs nothing but their turn, and this process sets itself timers. So a
claim about time has a bound that follows the machine.
"""

import asyncio
from typing import TYPE_CHECKING

import httpx2

from support.fleet_checker.talkers import PATIENCE
from support.replicas import Replica

if TYPE_CHECKING:
    from support.fleet_checker.run import Run

_BETWEEN = 0.2
"""Seconds between two questions."""
_TICK = 0.05
"""Seconds of a timer."""


async def measure(run: "Run") -> None:
    """Measure until the run is over."""
    await asyncio.gather(_own(run), *(_of(run, replica) for replica in run.found.replicas))


async def _own(run: "Run") -> None:
    while not run.is_over:
        due = run.now() + _TICK
        await asyncio.sleep(_TICK)
        run.delays.measured.append((due, run.now()))


async def _of(run: "Run", replica: Replica) -> None:
    """Not of one that something is done to: its silence is no fault of the machine."""
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
        while not run.is_over:
            await asyncio.sleep(_BETWEEN)
            count, began = len(run.disruptions), run.now()
            if replica.name in run.disrupted:
                continue
            try:
                await http.get(f"{replica.root}/healthz")
            except httpx2.HTTPError:
                continue
            if replica.name not in run.disrupted and len(run.disruptions) == count:
                run.delays.measured.append((began, run.now()))
