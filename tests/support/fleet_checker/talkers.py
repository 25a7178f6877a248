"""Clients of the checker that do more than call: they are asked, hear progress, subscribe, and approve (issue 24).

Each uses the tools of `servers/witness.py`, by way of the balancer, so that few answers come to the bridge that asks.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import httpx2

from support.fleet_checker.answers import read
from support.fleet_checker.exchanges import APPROVAL_SECONDS, Decision, Exchange, Heard, Touch
from support.fleet_checker.history import FAILED_CLOSED, Outcome, Request
from support.fleet_clients import HEADERS, INITIALIZE, PREFIX, REVISION, message

if TYPE_CHECKING:
    from support.fleet_checker.run import Run
    from support.replicas import Replica

CHIEF = "the-token-of-whoever-approves-in-the-checker"
MOST_CALLS = 8
"""Calls of one conversation of a spender."""
BURST, RATE_SECONDS = 30, 2.0
"""Calls of `rated` at a time, and seconds until there is one more."""
RULES = (
    f'[[http.tokens]]\nname = "chief"\nadmin = true\nsha256 = "{sha256(CHIEF.encode()).hexdigest()}"\n'
    f"[approval]\ntimeout = {APPROVAL_SECONDS}\n"
    '[[permissions]]\ntools = ["w/approved"]\npermission = "require_approval"\n'
    '[[roles]]\nname = "all"\nprincipals = ["*"]\nservers = ["*"]\n'
    f'[[roles]]\nname = "spenders"\nprincipals = ["other"]\nservers = ["*"]\nmax_calls = {MOST_CALLS}\n'
)
RATE = f"{BURST}/min"
PATIENCE = 90.0
"""Seconds after which an answer counts as never coming."""
_SILENCE = 30.0
"""Seconds after which the news of a change counts as lost, while the stream is open."""
PAUSE = 0.2
"""Seconds after a failure: as a client that heeds Retry-After."""
_THINKING = 0.1
"""Seconds between two things that a client does."""
_CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}}


@dataclass
class Talks:
    """What all of these clients saw."""

    requests: list[Request] = field(default_factory=list[Request])
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    heard: list[Heard] = field(default_factory=list[Heard])
    touches: list[Touch] = field(default_factory=list[Touch])
    decisions: list[Decision] = field(default_factory=list[Decision])


class Talker:
    """A client with a session, whose calls are streams that it reads as they come."""

    def __init__(self, run: "Run", name: str, token: str = "") -> None:
        self.run, self.name, self.session = run, name, ""
        self.url = run.found.url
        """Where it sends its requests."""
        self.random = random.Random(f"{run.random.random()}")
        self.headers = {**HEADERS, "authorization": f"Bearer {token}"} if token else HEADERS
        self.count: int = 0
        self.answered: int = 0

    async def talks(self) -> None:
        """Talk until the run is over."""
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
            self.http = http
            while not self.run.is_over:
                with suppress(httpx2.HTTPError):
                    if self.session or await self.begin():
                        await self.turn()
                        await asyncio.sleep(_THINKING)
                        continue
                await asyncio.sleep(PAUSE)

    async def turn(self) -> None:
        """One thing that it does over and over."""
        raise NotImplementedError

    async def begin(self) -> bool:
        """Open a session."""
        params: dict[str, Any] = {
            **INITIALIZE["params"],
            "capabilities": _CAPABILITIES if self.name.startswith("q") else {},
        }
        answer = await self.http.post(self.url, json=message("initialize", 1, **params), headers=self.headers)
        if answer.status_code != 200:
            return False
        self.session = answer.headers["mcp-session-id"]
        await self.post(message("notifications/initialized", None))
        return True

    async def post(self, body: dict[str, Any]) -> httpx2.Response:
        """Send a message of the session."""
        return await self.http.post(self.url, json=body, headers=self.of_session())

    def of_session(self) -> dict[str, str]:
        return {**self.headers, "mcp-session-id": self.session}

    async def call(self, tool: str, **arguments: Any) -> tuple[Outcome, "SoFar"]:
        """Call a tool of the witness, and write down what came of it."""
        self.count += 1
        id_ = f"{self.name}-{self.count}"
        meta = {"progressToken": id_}
        body = message(
            "tools/call",
            self.count,
            name=tool if "__" in tool else f"w__{tool}",
            arguments={"id": id_, **arguments},
            _meta=meta,
        )
        heard, began = SoFar(id_, began=self.run.now()), self.run.now()
        session = self.session
        outcome, detail = await self._outcome(body, heard)
        self.run.talks.requests.append(Request(id_, session, outcome, began, self.run.now(), detail))
        self.answered += outcome == "answered"
        if "initialize a new one" in detail:
            self.session = ""
        if outcome not in ("answered", "refused"):
            await asyncio.sleep(PAUSE)
        self.run.changed.set()
        return outcome, heard

    async def _outcome(self, body: dict[str, Any], heard: "SoFar") -> tuple[Outcome, str]:
        words, status = "", 0
        try:
            async with asyncio.timeout(PATIENCE):
                headers = self.of_session()
                async with self.http.stream("POST", self.url, json=body, headers=headers) as answer:
                    status = answer.status_code
                    if answer.headers.get("content-type", "").startswith("text/event-stream"):
                        async for one in events(answer):
                            if "method" not in one:
                                words = json.dumps(one)
                                break
                            await self.hear(one, heard)
                    else:
                        words = (await answer.aread()).decode()
        except (TimeoutError, httpx2.ReadTimeout) as error:
            return "hung", repr(error)
        except httpx2.HTTPError as error:
            return "unknown", repr(error)
        if not words:
            return "unknown", "the stream ended without an answer"
        heard.answer = words
        outcome, detail, _ = read(status, words, heard.id)
        if outcome == "wrong" and status == 200 and any(name in words for name in _REFUSALS):
            return "refused", detail
        return outcome, detail

    async def hear(self, one: dict[str, Any], heard: "SoFar") -> None:
        """Something came before the answer."""
        if one["method"] == "notifications/progress" and one["params"]["progress"] >= 0:
            of, _, step = one["params"].get("message", "").rpartition(" ")
            heard.progress.append((of, int(step)))
        elif one["method"] == "elicitation/create":
            heard.asked.append(_of_question(one["params"]["message"]))
            heard.said = f"word-{self.random.random()}"
            answer = {"action": "accept", "content": {"word": heard.said}}
            self.run.spawn(self._answer({"jsonrpc": "2.0", "id": one["id"], "result": answer}))

    async def _answer(self, body: dict[str, Any]) -> None:
        """Bring the answer to whichever bridge takes it: an answer that comes twice is good for once."""
        for _ in range(100):
            with suppress(httpx2.HTTPError):
                if (await self.post(body)).status_code not in (429, 502, 503, 504):
                    return
            await asyncio.sleep(PAUSE)


_BY_RATE = "RateLimited"
_REFUSALS = ("ApprovalRefused", "BudgetSpent", _BY_RATE, *FAILED_CLOSED)


@dataclass
class SoFar:
    """What came of a call so far."""

    id: str
    asked: list[str] = field(default_factory=list[str])
    said: str = ""
    progress: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    answer: str = ""
    began: float = 0

    def exchange(self, ended: float, *, is_lost: bool = False, is_repeated: bool = False) -> Exchange:
        got = word(self.answer)
        asked, progress = tuple(self.asked), tuple(self.progress)
        return Exchange(self.id, asked, self.said, got, progress, is_lost, is_repeated, self.began, ended)


def word(answer: str) -> str | None:
    """The third part of what the witness answers; None: it is no such answer."""
    with suppress(ValueError, KeyError, IndexError, TypeError):
        return json.loads(json.loads(answer)["result"]["content"][0]["text"])[2]
    return None


def _of_question(words: str) -> str:
    return words.split()[-1]


async def events(answer: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    """The messages of a stream, as they come."""
    async for line in answer.aiter_lines():
        if line.startswith("data:") and line[5:].strip():
            yield json.loads(line[5:])


class Asked(Talker):
    """Is asked during its calls."""

    async def turn(self) -> None:
        _, heard = await self.call("q__ask")
        self.run.talks.exchanges.append(heard.exchange(self.run.now()))


class Follower(Talker):
    """Hears progress."""

    async def turn(self) -> None:
        _, heard = await self.call("work")
        self.run.talks.exchanges.append(heard.exchange(self.run.now()))


class Caller(Talker):
    """Calls one tool over and over: `name` begins with `a` if it waits for approval."""

    def __init__(self, run: "Run", name: str, tool: str, token: str = "", pause: float = 0) -> None:
        super().__init__(run, name, token)
        self._tool, self._pause = tool, pause
        self.has_met_limit = False
        """A rate has refused one of its calls."""

    async def turn(self) -> None:
        outcome, heard = await self.call(self._tool)
        self.has_met_limit |= _BY_RATE in heard.answer
        if "BudgetSpent" in heard.answer:
            self.session = ""  # another conversation
        await asyncio.sleep(self._pause if outcome == "answered" else max(PAUSE, self._pause))


class RatedCaller(Caller):
    """Calls a tool with a rate, in a session that this bridge opens, until it is refused at last."""

    def __init__(self, run: "Run", name: str, first: "Replica") -> None:
        super().__init__(run, name, "rated__rated", pause=0.05)
        self._first = first

    async def begin(self) -> bool:
        everybody, self.url = self.url, self.run.found.url if self.count else self._first.url
        try:
            return await super().begin()
        finally:
            self.url = everybody

    async def turn(self) -> None:
        if self.run.is_ending and self.name != "r0":  # the others would take what it waits for
            await asyncio.sleep(PAUSE)
            return
        await super().turn()


class AskedInRounds(Talker):
    """Is asked by `input_required` results of revision 2026-07-28."""

    def __init__(self, run: "Run", name: str, tool: str) -> None:
        """`tool`: of a server that waits for the answer in its call, or of one that is called again with it."""
        super().__init__(run, name)
        self._tool = tool

    async def begin(self) -> bool:
        return True

    async def talks(self) -> None:
        self.session = "none"
        await super().talks()

    async def turn(self) -> None:
        self.session = "none"
        self.count += 1
        heard = SoFar(f"{self.name}-{self.count}", began=self.run.now())
        outcome, detail = await self._ask(heard, {})
        is_lost = is_repeated = False
        result = _result(heard.answer)
        if outcome == "answered" and result.get("resultType") == "input_required":
            [key] = result["inputRequests"]
            heard.asked.append(_of_question(result["inputRequests"][key]["params"]["message"]))
            heard.said = f"word-{self.random.random()}"
            said = {"action": "accept", "content": {"word": heard.said}}
            back = {"requestState": result["requestState"], "inputResponses": {key: said}}
            outcome, detail = await self._ask(heard, back)
            for _ in range(100):
                if outcome != "not sent" or self.run.is_over:
                    break
                await asyncio.sleep(PAUSE)
                outcome, detail = await self._ask(heard, back)
            is_lost = "-32602" in heard.answer
            if outcome != "hung":
                outcome = "answered" if outcome == "answered" and word(heard.answer) else "unknown"
            if outcome == "answered":
                again = SoFar(heard.id)
                await self._ask(again, back)
                is_repeated = "result" in again.answer and word(again.answer) is not None
                self.answered += 1
        request = Request(heard.id, "", outcome, heard.began, self.run.now(), detail)
        self.run.talks.requests.append(request)
        exchange = heard.exchange(self.run.now(), is_lost=is_lost, is_repeated=is_repeated)
        self.run.talks.exchanges.append(exchange)
        self.run.changed.set()
        if outcome != "answered":
            await asyncio.sleep(PAUSE)

    async def _ask(self, heard: SoFar, back: dict[str, Any]) -> tuple[Outcome, str]:
        meta: dict[str, Any] = {PREFIX + "protocolVersion": REVISION, PREFIX + "clientCapabilities": _CAPABILITIES}
        params: dict[str, Any] = {"name": self._tool, "arguments": {"id": heard.id}, "_meta": meta, **back}
        more = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": self._tool}
        self.headers = {**HEADERS, **more}
        heard.answer = ""
        outcome, detail = await self._outcome(message("tools/call", self.count, **params), heard)
        if outcome == "wrong" and (_result(heard.answer) or "-32602" in heard.answer):
            return ("answered" if _result(heard.answer) else "unknown"), detail
        return outcome, detail

    def of_session(self) -> dict[str, str]:
        return self.headers


def _result(answer: str) -> dict[str, Any]:
    with suppress(ValueError, KeyError):
        return json.loads(answer)["result"]
    return {}


class Subscriber(Talker):
    """Subscribed once in a session, whose stream it opens again whenever it ends."""

    def __init__(self, run: "Run", name: str) -> None:
        super().__init__(run, name)
        self._subscribed_in = ""

    async def turn(self) -> None:
        if self._subscribed_in != self.session:
            self._subscribed_in = self.session if await self._subscribe() else ""
            if not self._subscribed_in:
                await asyncio.sleep(PAUSE)
                return
        async with self.http.stream("GET", self.url, headers=self.of_session()) as answer:
            if answer.status_code != 200:
                if answer.status_code == 404:
                    self.session = ""
                await asyncio.sleep(PAUSE)
                return
            updates: asyncio.Queue[None] = asyncio.Queue()
            reading = asyncio.create_task(self._read(answer, updates))
            try:
                while not (self.run.is_over or reading.done() or not self.session):
                    await self._touch(reading, updates)
            finally:
                reading.cancel()
                await asyncio.wait({reading})

    async def _touch(self, reading: asyncio.Task[None], updates: "asyncio.Queue[None]") -> None:
        while not updates.empty():
            updates.get_nowait()
        session, began = self.session, self.run.now()
        outcome, _ = await self.call("touch", uri=_uri(self.name))
        if outcome != "answered" or self.session != session:
            return
        getting = asyncio.create_task(updates.get())
        await asyncio.wait({getting, reading}, timeout=_SILENCE, return_when=asyncio.FIRST_COMPLETED)
        if getting.done() or not reading.done():
            self.run.talks.touches.append(Touch(self.name, getting.done(), self.run.now(), began))
        getting.cancel()
        await asyncio.sleep(PAUSE)

    async def _subscribe(self) -> bool:
        self.count += 1
        answer = await self.post(message("resources/subscribe", 950_000 + self.count, uri=f"mcpb+w+{_uri(self.name)}"))
        if answer.status_code == 404:
            self.session = ""
        return "result" in json.loads(_last(answer.text) or "{}")

    async def _read(self, answer: httpx2.Response, updates: "asyncio.Queue[None]") -> None:
        with suppress(httpx2.HTTPError):
            async for one in events(answer):
                if one.get("method") == "notifications/resources/updated":
                    number = one["params"]["uri"].rpartition("/")[2]
                    self.run.talks.heard.append(Heard(self.name, "update", f"s{number}"))
                    updates.put_nowait(None)
                elif one.get("method") in ("notifications/progress", "elicitation/create"):
                    words = str(one["params"].get("message", ""))
                    self.run.talks.heard.append(Heard(self.name, one["method"], words.split()[0] if words else ""))


def _uri(subscriber: str) -> str:
    """What it subscribes to, as the server has it; the bridge puts the name of the server before it."""
    return f"memo://witness/{subscriber[1:]}"


def _last(text: str) -> str:
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]
    return lines[-1] if lines else text if text.startswith("{") else ""


class Approver:
    """Decides what waits: each call once, at two bridges at the same time."""

    def __init__(self, run: "Run") -> None:
        self._run, self._random = run, random.Random(f"{run.random.random()}")

    async def talks(self) -> None:
        """Decide until the run is over."""
        headers = {"authorization": f"Bearer {CHIEF}"}
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE, headers=headers) as http:
            while not self._run.is_over:
                await asyncio.sleep(PAUSE)
                with suppress(httpx2.HTTPError, ValueError, KeyError):
                    root = self._random.choice(self._run.found.replicas).root
                    for one in (await http.get(f"{root}/api/approvals")).json()["approvals"]:
                        if one["waiting"]:
                            await self._decide(http, one)

    async def _decide(self, http: httpx2.AsyncClient, one: dict[str, Any]) -> None:
        id_ = json.loads(one["arguments_line"])["id"]
        is_yes, at = int(id_.rpartition("-")[2]) % 3 != 0, self._run.now()
        taken = unknown = 0

        async def decide(root: str) -> int:
            try:
                document = {"decision": "approve" if is_yes else "deny"}
                return (await http.post(f"{root}/api/approvals/{one['id']}", json=document)).status_code
            except httpx2.HTTPError:
                return 0

        roots = [replica.root for replica in self._random.sample(self._run.found.replicas, 2)]
        for status in await asyncio.gather(*map(decide, roots)):
            taken += status == 200
            unknown += status == 0 or status >= 500
        self._run.talks.decisions.append(Decision(id_, one["id"], is_yes, taken, unknown, at))
