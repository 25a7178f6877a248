"""Clients that call without end, and nothing else: what they offer the fleet is paced (issue 24)."""

import asyncio
import random
from typing import TYPE_CHECKING, Any

import httpx2

from support.fleet_checker.answers import read
from support.fleet_checker.history import Outcome, Request
from support.fleet_checker.talkers import PATIENCE
from support.fleet_clients import HEADERS, INITIALIZE, PREFIX, REVISION, message

if TYPE_CHECKING:
    from support.fleet_checker.run import Run

TOOL = "s__once"
_LONGEST = 0.01
"""Seconds that the server takes for a call at most: it does one at a time."""
_MOST_LATE = 1.0
"""Seconds after which a call that was due, while all clients waited for answers, is left out."""


class Pace:
    """When the calls of all clients together are due."""

    def __init__(self, rate: float) -> None:
        """`rate`: calls a second; 0: each client calls as soon as it was answered."""
        self.rate = rate
        self._next = 0.0
        self.left_out = 0
        """Calls that were due when nobody was free to make them."""

    async def turn(self) -> None:
        """Return when the next call is due."""
        if not self.rate:
            return
        now = asyncio.get_running_loop().time()
        self._next = self._next or now
        if (late := int((now - self._next - _MOST_LATE) * self.rate)) > 0:
            self.left_out += late
            self._next += late / self.rate
        at, self._next = self._next, self._next + 1 / self.rate
        await asyncio.sleep(at - now)


class Caller:
    """A client that calls without end, one call after the other."""

    def __init__(self, run: "Run", number: int, *, has_session: bool) -> None:
        self._run, self._number, self._has_session = run, number, has_session
        self.name = f"c{number}"
        self._random = random.Random(f"{run.random.random()}")
        self._session = ""
        self.answered = 0

    async def calls(self) -> None:
        """Call until the run is over."""
        limits = httpx2.Limits(max_keepalive_connections=2)
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE, limits=limits) as http:
            count = 0
            while not self._run.is_over:
                if self._has_session and not self._session and not await self._begin(http):
                    await asyncio.sleep(0.1)
                    continue
                await self._run.pace.turn()
                count += 1
                outcome = await self._call(http, f"c{self._number}-{count}")
                if outcome != "answered":
                    await asyncio.sleep(self._random.uniform(0.05, 0.3))  # as a client that heeds Retry-After

    async def _begin(self, http: httpx2.AsyncClient) -> bool:
        try:
            answer = await http.post(self._run.found.url, json=INITIALIZE, headers=HEADERS)
            if answer.status_code != 200:
                return False
            self._session = answer.headers["mcp-session-id"]
            ready = message("notifications/initialized", None)
            headers = {**HEADERS, "mcp-session-id": self._session}
            await http.post(self._run.found.url, json=ready, headers=headers)
        except httpx2.HTTPError:
            pass
        return bool(self._session)

    async def _call(self, http: httpx2.AsyncClient, id_: str) -> Outcome:
        run, began = self._run, self._run.now()
        outcome, detail, owner = await self._outcome(http, id_)
        run.requests.append(Request(id_, self._session, outcome, began, run.now(), detail, owner))
        if outcome == "answered":
            self.answered += 1
        if "initialize a new one" in detail:
            self._session = ""
        run.changed.set()
        return outcome

    async def _outcome(self, http: httpx2.AsyncClient, id_: str) -> tuple[Outcome, str, int]:
        arguments = {"id": id_, "seconds": round(self._random.uniform(0, _LONGEST), 4)}
        params: dict[str, Any] = {"name": TOOL, "arguments": arguments}
        headers = {**HEADERS, "mcp-session-id": self._session}
        if not self._has_session:
            params["_meta"] = {PREFIX + "protocolVersion": REVISION, PREFIX + "clientCapabilities": {}}
            more = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": TOOL}
            headers = {**HEADERS, **more}
        number = int(id_.rpartition("-")[2])  # one whose outcome is unknown may still be under way
        body = message("tools/call", number, **params)
        try:
            answer = await http.post(self._run.found.url, json=body, headers=headers)
        except httpx2.ReadTimeout as error:
            return "hung", str(error), 0
        except httpx2.HTTPError as error:
            return "unknown", repr(error), 0
        return read(answer.status_code, answer.text, id_)
