"""A remote agent as a tool, over A2A: it is found by its card, gets messages, and is followed until it is done.

The agent knows the bridge only, by one credential. So the bridge remembers who began each task and each conversation,
and lets nobody else continue it.
"""

import asyncio
import re
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcpbridge.base.errors import ArgumentsRefused, ConfigError, UnknownName, UpstreamError, UpstreamUnavailable
from mcpbridge.base.masking.known_values import known_only
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.agent.a2a_card import Card, CardUnusableError, Skill, places_of_card, read_card
from mcpbridge.tools.agent.a2a_client import AgentAnsweredError, AgentCaller, Exchange
from mcpbridge.tools.agent.a2a_messages import Record, params_of_message, result_of
from mcpbridge.tools.agent.settings import AgentSettings
from mcpbridge.tools.backend import BackendContext, Condition, Health
from mcpbridge.tools.http.client import is_elsewhere
from mcpbridge.tools.http.request import Outgoing
from mcpbridge.tools.http.response import failed
from mcpbridge.tools.serving import Discovery, masked

MOST = 10_000
"""Tasks and conversations that are remembered; those that nobody used for the longest time are forgotten."""

_Key = tuple[str, str]
"""`task` or `context`, and its id."""


class Owners:
    """Remembers who began what. A principal is a name, empty for the local user; an empty id means none."""

    def __init__(self) -> None:
        self._owners: OrderedDict[_Key, str] = OrderedDict()
        self._has_principals = False

    def allows(self, principal: str, *, task_id: str, context_id: str) -> bool:
        """Whether the principal may continue with these; asked before every exchange.

        What is not known, such as what was begun before the bridge started, is open as long as there is the local user
        alone; else it could be anybody's.
        """
        self._has_principals |= bool(principal)
        return all(self._is_open(key, principal) for key in _keys(task_id, context_id))

    def note(self, principal: str, *, task_id: str, context_id: str) -> None:
        """The agent named these in an exchange of the principal. What is somebody's already stays so."""
        for key in _keys(task_id, context_id):
            self._owners.setdefault(key, principal)
            self._owners.move_to_end(key)
        while len(self._owners) > MOST:
            self._owners.popitem(last=False)

    def _is_open(self, key: _Key, principal: str) -> bool:
        owner = self._owners.get(key)
        return owner == principal if owner is not None else not self._has_principals


def _keys(task_id: str, context_id: str) -> Iterator[_Key]:
    if task_id:
        yield "task", task_id
    if context_id:
        yield "context", context_id


CHECK_SECONDS = 5.0
"""Seconds that a look at the card may take."""
_LONGEST = 2000
"""Characters of an error of the agent that are passed on."""
_IMPOSSIBLE = re.compile(r"[^A-Za-z0-9_.-]+")

_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What the agent is to do, or the answer to what it asked."},
        "data": {"type": "object", "description": "Structured input beside or instead of the message."},
        "context_id": {"type": "string", "description": "Continues an earlier conversation with the agent."},
        "task_id": {
            "type": "string",
            "description": "The task that the message is about, such as one that waits for an answer. "
            "Without a message: waits for that task and returns what became of it.",
        },
    },
    "additionalProperties": False,
}
_NOT_YOURS = "You have no such task or conversation here (any more): begin a new one, without task_id and context_id."
_ADVICE = {
    -32001: "The agent does not know the task (any more): begin a new one, without task_id.",
    -32602: "Correct the arguments, then call again.",
    -32005: "The agent does not take this kind of content.",
    -32603: "The fault is at the agent.",
}


class RemoteAgent:
    """See `Backend`."""

    kind = "agent"

    def __init__(self, name: str, settings: AgentSettings, backend_context: BackendContext) -> None:
        self._name, self._settings = name, settings
        self._caller = AgentCaller(settings, settings.headers, backend_context.directory)
        self._redact = self._caller.masking(backend_context.redact)
        self._discovery = Discovery(name, self._find, self._redact, unavailable=settings.unavailable)
        self._owners = Owners()
        self._card: Card | None = None
        self._skills: Mapping[str, str] = {}
        """Ids of skills by the names of their tools."""
        self.tools: Sequence[Mapping[str, Any]] = ()
        """See `Backend`."""

    @property
    def condition(self) -> Condition:
        """See `Backend`."""
        return self._discovery.condition

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """See `Backend`."""
        async with self._caller.running(), self._discovery.running(changed):
            yield

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        card = self._card
        if card is None:
            raise UpstreamUnavailable(call.upstream, self.condition.reason or "its card has not arrived yet")
        given = call.params.inner("arguments")
        arguments: Mapping[str, Any] = given.value() if given is not None else {}
        task_id, context_id = arguments.get("task_id", ""), arguments.get("context_id", "")
        if not self._owners.allows(call.caller.principal, task_id=task_id, context_id=context_id):
            return failed(_NOT_YOURS)
        exchange = Exchange(self._caller, card.interface, call, self._redact)
        try:
            record = await self._exchanged(exchange, card, call.target, arguments)
        except AgentAnsweredError as error:
            if error.code in (-32601, -32009):  # no such method, no such version: the card may have changed
                self._discovery.again()
            return _failure(self._redact(error.message), error.code)
        except UpstreamError:
            self._discovery.again()
            raise
        finally:
            record = exchange.record
            if record.state:  # else the id is what the caller says
                self._owners.note(call.caller.principal, task_id=record.task_id, context_id=record.context_id)
        # In a thread, as it may be large.
        return Body(await asyncio.to_thread(lambda: _result(record, self._redact)))

    async def _exchanged(self, exchange: Exchange, card: Card, tool: str, arguments: Mapping[str, Any]) -> Record:
        message, data, task_id = arguments.get("message"), arguments.get("data"), arguments.get("task_id", "")
        if message is None and data is None:
            if not task_id:
                raise ArgumentsRefused("There is nothing to send: give a `message`, or `data`")
            return await exchange.look(task_id)
        params = params_of_message(
            card.interface,
            str(uuid.uuid4()),
            text=message,
            data=data,
            context_id=arguments.get("context_id", ""),
            task_id=task_id,
            skill=self._skills.get(tool, ""),
        )
        return await exchange.send(params, streams=self._settings.stream and card.streams)

    async def check(self) -> Health:
        """Whether its card is there."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                card, place = await self._read_card()
            is_ok, detail = True, f"the card of {card.name} is at {place}"
        except TimeoutError:
            is_ok, detail = False, f"no answer within {CHECK_SECONDS:g} s"
        except (ConfigError, UpstreamError) as error:
            is_ok, detail = False, error.what
        if is_ok and self.condition.state == "failed":
            self._discovery.again()
        return Health(is_ok, self._redact(detail), clock() - began)

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. `refresh` reads the card anew.

        Raises:
            UpstreamUnavailable: that fails; the tools stay as they are.
        """
        if name != "refresh":
            raise UnknownName("command", name, candidates=["refresh"])
        condition = await self._discovery.look()
        if condition.state == "failed":
            raise UpstreamUnavailable(self._name, condition.reason)
        return {"state": condition.state, "reason": condition.reason, "tools": [tool["name"] for tool in self.tools]}

    async def _find(self) -> bool:
        """Read the card; whether the tools are others than before."""
        card, _ = await self._read_card()
        skills: dict[str, Skill] = {}
        if self._settings.skills:
            if not card.skills:
                raise ConfigError("its card names no skills: take out `skills`", key="skills")
            skills = _named(card.skills)
            tools = [
                _definition(name, self._redact(_skill_text(skill)), self._settings) for name, skill in skills.items()
            ]
        else:
            tools = [
                _definition(self._name, self._settings.description or self._redact(_introduced(card)), self._settings)
            ]
        is_other = tools != self.tools
        self._card, self._skills = card, {name: skill.id for name, skill in skills.items()}
        if is_other:
            self.tools = tools
        return is_other

    async def _read_card(self) -> tuple[Card, str]:
        """The card, and where it is.

        Raises:
            ConfigError: it is nowhere, or cannot be used.
            UpstreamError: nobody answers.
        """
        settings = self._settings
        places = places_of_card(settings.agent, settings.card)
        for place in places:
            is_ours = not is_elsewhere(place, settings.agent)
            answer = await self._caller.send(self._name, Outgoing("GET", place), shows_credentials=is_ours)
            if answer.status == 200 and not answer.is_cut:
                try:
                    allowed = [settings.agent, *settings.allow_origins]
                    return read_card(answer.body, place, url=settings.url, allowed=allowed), place
                except CardUnusableError as error:
                    raise ConfigError(str(error), key="agent") from error
            if answer.status not in (404, 405, 410):
                raise UpstreamUnavailable(self._name, f"{place} answers with HTTP status {answer.status}")
        raise ConfigError(
            f"there is no agent card at {' nor at '.join(places)}", key="agent", hint="`card` says where."
        )


def _named(skills: Sequence[Skill]) -> dict[str, Skill]:
    """Skills by the names of their tools; of two that would have the same name the second gets a number."""
    named: dict[str, Skill] = {}
    for skill in skills:
        base = _IMPOSSIBLE.sub("_", skill.id).strip("_") or "skill"
        name, number = base, 2
        while name in named:
            name, number = f"{base}_{number}", number + 1
        named[name] = skill
    return named


def _skill_text(skill: Skill) -> str:
    lines = [skill.description or skill.name or skill.id]
    if skill.examples:
        lines.append("For example: " + "; ".join(skill.examples))
    return "\n".join(lines)


def _introduced(card: Card) -> str:
    """What the agent says of itself, and what it can do."""
    lines = [f"{card.name}: {card.description}" if card.description else f"The agent {card.name}."]
    lines += [f"- {skill.name or skill.id}: {skill.description}" for skill in card.skills[:20]]
    return "\n".join(lines)


def _definition(name: str, description: str, settings: AgentSettings) -> dict[str, Any]:
    annotations = {"openWorldHint": True, **settings.annotations}
    return {"name": name, "description": description, "inputSchema": _INPUT, "annotations": annotations}


def _failure(message: str, code: int) -> Body:
    reason = " ".join(message.split())[:_LONGEST] or "no reason given"
    text = f"The agent answered with an error ({code}): {reason}."
    return Body(
        encode({"content": [{"type": "text", "text": f"{text} {_ADVICE.get(code, '')}".strip()}], "isError": True})
    )


def _result(record: Record, redact: Callable[[str], str]) -> bytes:
    """The result as JSON: data, of which only the known secrets are masked."""
    known = known_only(redact)
    return masked(result_of(record, known), known)
