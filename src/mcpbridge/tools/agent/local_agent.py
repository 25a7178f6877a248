"""An agent of the user's own as a tool: a Python callable that takes a message and answers in words.

Its first parameter gets the message: a text, or, annotated as a dict, an object with `message` and `data`. What it
returns is the answer; what it yields is sent as progress, and the texts of it together are the answer where it returns
none. Of its other parameters these get what their names say, and no client sees them:

    history      what was said before in this conversation: a list of {"role": "user" | "agent", "text": ...}
    context_id   which conversation it is, for agents that remember by themselves
    (any name)   annotated as `CallContext` or `Context[...]`: the context of the call
"""

import inspect
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.base.errors import ArgumentsRefused, UnknownName
from mcpbridge.core.context import Cancellation
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT
from mcpbridge.tools.agent.a2a_messages import ABOUT
from mcpbridge.tools.agent.settings import AgentSettings
from mcpbridge.tools.backend import BackendContext, Health
from mcpbridge.tools.python.backend import PythonBackend
from mcpbridge.tools.python.import_object import import_object
from mcpbridge.tools.python.output import Check, check_of, to_result, wrapped
from mcpbridge.tools.python.run_context.context import Keeps
from mcpbridge.tools.python.run_context.store import open_run_context
from mcpbridge.tools.python.run_context.value_types import Misfit, Shape
from mcpbridge.tools.python.signature import Unusable, context_type, decoded, documented, hints_of, is_context

MOST_CONVERSATIONS, MOST_TURNS = 100, 40
"""Conversations of one agent that are remembered, the latest, and turns of each."""

_MESSAGE = {"type": "string", "description": "What the agent is to do, or the answer to what it asked."}
_DATA = {"type": "object", "description": "Data for the agent, beside the message."}
_CONTEXT = {"type": "string", "description": "Continues an earlier conversation with the agent."}


class Turn(Struct, frozen=True):
    """Something that was said in a conversation."""

    role: Literal["user", "agent"]
    text: str


class _Agent(Struct, frozen=True):
    """A callable that was looked at."""

    function: Callable[..., Any]
    message: str
    """The names of its parameters; empty: it has none for that."""
    history: str
    context_id: str
    context: str
    keeps: Keeps | None
    """What it keeps over the calls of a run; None: nothing."""
    takes_object: bool
    has_own_schema: bool
    """All arguments are the message: `input_schema` says what they are."""
    definition: Mapping[str, Any]
    output_check: Check | None
    is_wrapped: bool

    @property
    def converses(self) -> bool:
        """Conversations go on."""
        return bool(self.history or self.context_id)


class LocalAgent(PythonBackend[_Agent]):
    """One callable. Meets `Backend`."""

    kind = "agent"

    def __init__(self, name: str, settings: AgentSettings, backend_context: BackendContext) -> None:
        super().__init__(name, settings, backend_context, source=settings.agent)
        self._settings = settings
        self._conversations: OrderedDict[tuple[str, str], list[Turn]] = OrderedDict()
        """By who speaks and the id, the one that was used last at the end."""

    def _bring_in(self, directory: Path) -> _Agent:
        return _looked_at(self._name, import_object(self._source, directory), self._settings)

    def _tools_of(self, loaded: _Agent) -> Sequence[Mapping[str, Any]]:
        return [loaded.definition]

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        agent = self._there(call.upstream)
        raw = call.params.get("arguments")
        given = decoded(EMPTY_OBJECT if raw is None else bytes(raw))
        known = self._conversation(call, given.get("context_id")) if agent.converses else None
        message_arguments = (
            given if agent.has_own_schema else {key: given[key] for key in ("message", "data") if key in given}
        )
        cancellation = Cancellation()
        named: dict[str, Any] = {
            agent.message: message_arguments if agent.takes_object else message_arguments.get("message", "")
        }
        context = replace(call.context, cancellation=cancellation)
        held = open_run_context(call, context, agent.keeps, self._invoker.value) if agent.keeps is not None else None
        if agent.context:
            named[agent.context] = context if held is None else held.context
        if known is not None and agent.history:
            named[agent.history] = [msgspec.to_builtins(turn) for turn in known[1]]
        if known is not None and agent.context_id:
            named[agent.context_id] = known[0][1]
        try:
            work = self._invoker.value(agent.function, (), named, call=call, cancellation=cancellation, fold=_joined)
            answer = await (work if held is None else held.during(work))
            result = await to_result(answer, call, self._name, agent.output_check, is_wrapped=agent.is_wrapped)
        except BaseException as error:  # noqa: BLE001 - `failed` raises again what is no failure of the agent
            return self._invoker.failed(error, self._name)
        return result if known is None else self._with_conversation(known, _message_text(message_arguments), result)

    async def check(self) -> Health:
        """See `Backend`. That the callable is there is all that can be known."""
        return await self._looked_at() or Health(ok=True, detail=f"{self._source} is there")

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. An agent has none."""
        raise UnknownName("command", name)

    def _conversation(self, call: Call, named: object) -> tuple[tuple[str, str], list[Turn]]:
        if not named:
            return (call.caller.principal, secrets.token_hex(8)), []
        key = call.caller.principal, str(named)
        if key not in self._conversations:
            raise ArgumentsRefused(
                f"context_id: no conversation '{str(named)[:60]}' is known; leave it out to begin one"
            )
        return key, self._conversations[key]

    def _with_conversation(self, known: tuple[tuple[str, str], list[Turn]], message: str, result: Body) -> Body:
        """The result, with how to go on."""
        key, turns = known
        value = result.value()
        answer = "\n".join(block["text"] for block in value["content"] if block.get("type") == "text")
        self._conversations[key] = [*turns, Turn("user", message), Turn("agent", answer)][-MOST_TURNS:]
        self._conversations.move_to_end(key)
        while len(self._conversations) > MOST_CONVERSATIONS:
            self._conversations.popitem(last=False)
        note = {"type": "text", "text": f'To continue this conversation: context_id "{key[1]}".'}
        result.put("content", [*value["content"], note])
        result.put("_meta", {ABOUT: {"contextId": key[1]}})
        return result


def _joined(so_far: object, event: object) -> object:
    """The texts that an agent yields are one answer."""
    return f"{so_far or ''}{event}" if isinstance(event, str) else so_far


def _message_text(arguments: Mapping[str, Any]) -> str:
    message = arguments.get("message")
    return message if isinstance(message, str) and "data" not in arguments else msgspec.json.encode(arguments).decode()


def _looked_at(name: str, target: object, settings: AgentSettings) -> _Agent:
    if not callable(target):
        raise Unusable(f"it is no function but {type(target).__name__}")
    function = cast("Callable[..., Any]", target)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise Unusable(f"its parameters cannot be read: {error}") from error
    hints = hints_of(function)
    context = next((one for one in parameters if is_context(hints.get(one))), "")
    history, context_id = ("history" if "history" in parameters else ""), "context_id" * ("context_id" in parameters)
    rest = [one for key, one in parameters.items() if key not in (context, history, context_id)]
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if not rest or rest[0].kind not in by_name:
        raise Unusable("its first parameter must take the message: `def agent(message: str) -> str`")
    if stray := next((one.name for one in rest[1:] if one.default is one.empty and one.kind in by_name), None):
        raise Unusable(f"nothing is known for its parameter `{stray}`: give it a default")
    hint = hints.get(rest[0].name)
    takes_object = (get_origin(hint) or hint) in (dict, Mapping) or settings.input_schema is not None
    output = wrapped(settings.output_schema) if settings.output_schema is not None else None
    try:
        output_check = check_of(output) if output is not None else None
    except ValueError as error:
        raise Unusable(f"its output schema is none: {error}") from error
    definition: dict[str, Any] = {"name": name}
    if description := settings.description or documented(function)[0]:
        definition["description"] = description
    definition["inputSchema"] = _schema(settings, takes_object=takes_object, converses=bool(history or context_id))
    if output is not None:
        definition["outputSchema"] = output
    if settings.annotations:
        definition["annotations"] = dict(settings.annotations)
    return _Agent(
        function=function,
        message=rest[0].name,
        history=history,
        context_id=context_id,
        context=context,
        keeps=_with_conversation(hints.get(context)),
        takes_object=takes_object,
        has_own_schema=settings.input_schema is not None,
        definition=definition,
        output_check=output_check,
        is_wrapped=output is not None and output != settings.output_schema,
    )


def _with_conversation(hint: object) -> Keeps | None:
    try:
        kind = context_type(hint)
        return Keeps(Shape(kind), None) if kind is not None else None
    except Misfit as error:
        raise Unusable(f"its `Context[...]`: {error}") from error


def _schema(settings: AgentSettings, *, takes_object: bool, converses: bool) -> dict[str, Any]:
    if settings.input_schema is not None:
        return {"type": "object", **settings.input_schema}
    properties: dict[str, Any] = {"message": _MESSAGE}
    if takes_object:
        properties["data"] = _DATA
    if converses:
        properties["context_id"] = _CONTEXT
    return {"type": "object", "properties": properties, "required": ["message"], "additionalProperties": False}
