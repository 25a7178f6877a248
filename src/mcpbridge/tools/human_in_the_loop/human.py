"""A tool with a human in the loop: a function that may pause its call, and one that makes the result of the answer.

`on_tool_called(arguments…)` returns a value, which is the result, or None or a `Pause`: then the call waits in the
store until somebody resumes it by its id. `on_response_received(response)` turns the answer into what the model sees.
Both may be sync or async, and both results are checked against the output schema.

The user of the client that calls may be asked with a form. Forms have only fields that every client can show (spec,
elicitation): texts, numbers, yes or no, choices. What does not fit into one is not asked this way.

The listed definition has no `outputSchema`, for the reason that `manual.py` gives.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, cast

import msgspec
from msgspec import DecodeError, Raw, Struct
from msgspec.structs import replace

from mcpbridge.base.errors import ArgumentsRefused, ConfigError, UnknownName
from mcpbridge.base.json_values import decoded
from mcpbridge.core.context import CallContext, Cancellation
from mcpbridge.core.elicitation import ELICIT, Question, QuestionRefused
from mcpbridge.core.model import Call
from mcpbridge.core.tool_calls_and_results import PausedCall
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT, encode
from mcpbridge.tools.backend import Condition, Health
from mcpbridge.tools.human_in_the_loop.functions import HumanTool, Pause, checked, human_tool_of
from mcpbridge.tools.human_in_the_loop.paused_calls import Resuming, pause, resuming_of
from mcpbridge.tools.human_in_the_loop.settings import PausingSettings
from mcpbridge.tools.python.backend import PythonBackend
from mcpbridge.tools.python.invoke import Fold
from mcpbridge.tools.python.output import Misshapen, ProgressReporter, check_of, failure, to_result
from mcpbridge.tools.python.run_context.context import Init, Keeps
from mcpbridge.tools.python.run_context.store import open_run_context
from mcpbridge.tools.python.signature import Arguments, Unusable

ASK_SECONDS = 300.0
"""Seconds that the user has; then somebody else may answer."""
PROGRESS_SECONDS = 10.0
"""Seconds between two words that the call still waits."""
LONGEST_ARGUMENTS = 2000
"""Characters of arguments that the user is shown."""
MOST_FIELDS = 32

_ANY = {"type", "title", "description", "default"}
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "string": frozenset({*_ANY, "minLength", "maxLength", "format", "enum", "oneOf", "enumNames"}),
    "number": frozenset({*_ANY, "minimum", "maximum"}),
    "integer": frozenset({*_ANY, "minimum", "maximum"}),
    "boolean": frozenset(_ANY),
}
"""What a field of a form may say, by its type (MCP 2025-11-25, elicitation, requested schema)."""
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
_OF_OBJECT = frozenset({"type", "properties", "required", "title", "description", "additionalProperties", "$schema"})


class Answer(Struct, frozen=True):
    """What the user did."""

    action: Literal["accept", "decline", "none"]
    """`none`: nobody has seen the form, or it was closed without a word."""
    content: Mapping[str, Any] = {}
    """The fields; of `accept` only."""


def form_of(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The form that asks for a value of this schema; None: it does not fit into one. Pure."""
    fields = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(fields, dict) or not schema.keys() <= _OF_OBJECT:
        return None
    named = cast("dict[str, object]", fields)
    if not 0 < len(named) <= MOST_FIELDS or not all(map(_is_plain, named.values())):
        return None
    form: dict[str, Any] = {"type": "object", "properties": named}
    if schema.get("required"):
        form["required"] = schema["required"]
    return form


def _is_plain(field: object) -> bool:
    if not isinstance(field, dict):
        return False
    said = cast("dict[str, Any]", field)
    keywords = _KEYWORDS.get(str(said.get("type")))
    if keywords is None or not said.keys() <= keywords or said.get("format", "date") not in _FORMATS:
        return False
    choices: list[object] = said.get("enum", [])
    titled: list[object] = said.get("oneOf", [])
    return all(isinstance(one, str) for one in choices) and all(map(_is_choice, titled))


def _is_choice(option: object) -> bool:
    if not isinstance(option, dict):
        return False
    said = cast("dict[str, object]", option)
    return said.keys() <= {"const", "title"} and isinstance(said.get("const"), str)


def asked_about(text: str, arguments: bytes | Raw | None) -> str:
    """What the user reads: what it is about, and the call's arguments, of which no character hides anything. Pure."""
    raw = bytes(arguments or b"{}").decode("utf-8", "replace")
    shown = raw if len(raw) <= LONGEST_ARGUMENTS else f"{raw[: LONGEST_ARGUMENTS - 1]}…"
    plain = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in shown)
    return text if raw == "{}" else f"{text}\nArguments: {plain}"


async def ask(call: Call, asker: str, message: str, form: Mapping[str, Any]) -> Answer:
    """Show the form to the user of the client that calls, and wait. `asker`: who asks, as the client shows it."""
    if not call.client.capabilities.form:
        return Answer("none")
    params = {"mode": "form", "message": message, "requestedSchema": form}
    answer = asyncio.ensure_future(call.client.ask(Question(asker, ELICIT, Raw(encode(params)))))
    reporter = ProgressReporter(call)
    try:
        async with asyncio.timeout(ASK_SECONDS):
            while not (await asyncio.wait([answer], timeout=PROGRESS_SECONDS))[0]:
                reporter.report("Waiting for the user's answer")
        return msgspec.json.decode(answer.result(), type=_Reply).answer
    except (QuestionRefused, TimeoutError, msgspec.DecodeError):
        return Answer("none")
    finally:
        answer.cancel()


class _Reply(Struct):
    action: str
    content: dict[str, Any] | None = None

    @property
    def answer(self) -> Answer:
        if self.action == "accept":
            return Answer("accept", self.content or {})
        return Answer("decline" if self.action == "decline" else "none")


_DECLINED = "The user was asked, and declined to answer."


Bind = Callable[[CallContext], Arguments]
"""What a function is called with, given its context."""


class HumanBackend(PythonBackend[HumanTool]):
    """One tool. Meets `Backend`."""

    kind = "human"

    def __init__(self, name: str, settings: PausingSettings) -> None:
        """Use `of`."""
        super().__init__(name, settings, None, source=name)
        self._settings = settings

    @classmethod
    def of(
        cls,
        on_tool_called: Callable[..., Any],
        on_response_received: Callable[..., Any],
        *,
        name: str | None = None,
        settings: PausingSettings | None = None,
        context_init: Init | None = None,
    ) -> Self:
        """A tool of the program. `name`: left out, that of `on_tool_called`. `context_init`: see `Keeps.init`.

        Raises:
            ConfigError: no tool can be made of it; says why.
        """
        called = name or str(getattr(on_tool_called, "__name__", type(on_tool_called).__name__))
        backend = cls(called, settings or PausingSettings())
        try:
            to_result = human_tool_of(called, on_tool_called, on_response_received, backend._settings, context_init)
            backend._given = backend._loaded = to_result
            backend._condition = Condition("ready")  # there is nothing to bring in
        except Unusable as error:
            raise ConfigError(f"'{called}' cannot be a tool: {error}", key=called) from error
        return backend

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the structured result; None: any."""
        return self._given.output_schema if self._given is not None else None

    def _bring_in(self, directory: Path) -> HumanTool:
        raise Unusable("it is of a program alone")

    def _tools_of(self, loaded: HumanTool) -> Sequence[Mapping[str, Any]]:
        return [loaded.definition]

    async def run(self, call: Call) -> Body:
        """See `Backend`: a result, or that the call is paused."""
        tool, resuming = self._there(call.upstream), resuming_of(call)
        if resuming is not None:
            return await self._go_on(tool, call, resuming)
        raw = call.params.get("arguments")
        bind = partial(tool.signature.bind, EMPTY_OBJECT if raw is None else bytes(raw))
        asked = Pause()
        try:
            value = await self._value(tool, tool.called, tool.keeps, bind, call, _no_result)
            if value is not None and not isinstance(value, Pause):
                return await to_result(
                    value, call, self._name, tool.output_check, is_wrapped=tool.is_wrapped, promise=tool.promise
                )
            if value is not None:
                asked = value
                _check_schema(asked.schema)
                if asked.form is not None and form_of(asked.form) is None:
                    raise Misshapen("its `Pause`: the form is no object of texts, numbers, booleans and choices")
        except BaseException as error:  # noqa: BLE001 - `failed` raises again what is no failure of the function
            return self._invoker.failed(error, self._name)
        return await self._paused(tool, call, asked)

    async def check(self) -> Health:
        """See `Backend`. That the functions are there is all that can be known."""
        return await self._looked_at() or Health(ok=True, detail=f"{self._source} is there")

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. It has none."""
        raise UnknownName("command", name)

    async def _paused(self, tool: HumanTool, call: Call, asked: Pause) -> Body:
        """The call waits, unless the user of the client that calls answers at once."""
        schema = asked.schema if asked.schema is not None else tool.response_schema
        reason, expires_in = asked.reason or self._settings.reason, asked.expires_in or self._settings.expires_in
        form, is_inner = (
            _form_of(asked, schema) if self._settings.ask_client or asked.form is not None else (None, False)
        )
        if form is not None:
            about = asked_about(reason or f"{self._name} needs an answer", call.params.get("arguments"))
            answer = await ask(call, call.context.events.tool or self._name, about, form)
            if answer.action == "decline":
                return failure(_DECLINED)
            if answer.action == "accept":
                response = answer.content.get(_FIELD) if is_inner else dict(answer.content)
                now = PausedCall("", call.context.events.tool, _arguments_of(call), "human", run=call.context.run)
                with suppress(ArgumentsRefused):  # a client that does not keep to the form
                    if schema is not None and (fault := check_of(schema)(response)):
                        raise ArgumentsRefused(fault)
                    return await self._received(tool, call, response, now)
        return await pause(call, kind="human", reason=reason, schema=schema, expires_in=expires_in)

    async def _go_on(self, tool: HumanTool, call: Call, resuming: Resuming) -> Body:
        """What the model sees of the answer. What fails leaves the call paused."""
        try:
            return await self._received(tool, call, resuming.answer, resuming.record.call, resuming)
        except ArgumentsRefused as refused:
            resuming.fail(refused)
            raise

    async def _received(
        self, tool: HumanTool, call: Call, response: object, paused: PausedCall, resuming: Resuming | None = None
    ) -> Body:
        receiver = tool.receiver
        bind = partial(receiver.bind, response, paused)
        try:
            value = await self._value(tool, receiver.function, tool.receiver_keeps, bind, call, _latest)
            if isinstance(value, Pause):
                raise Misshapen("`on_response_received` gives a result, no further `Pause`")
            result = await to_result(
                value, call, self._name, tool.output_check, is_wrapped=tool.is_wrapped, promise=tool.promise
            )
        except BaseException as error:  # noqa: BLE001 - `failed` raises again what is no failure of the function
            return self._invoker.failed(error, self._name)
        if resuming is not None:
            resuming.finish(None)
        return result

    async def _value(
        self,
        tool: HumanTool,
        function: Callable[..., Any],
        keeps: Keeps | None,
        bind: Bind,
        call: Call,
        fold: Fold,
    ) -> object:
        """What one of the functions returns. `fold`: what comes of events that no result follows."""
        cancellation = Cancellation()
        context: CallContext = replace(call.context, cancellation=cancellation)
        held = open_run_context(call, context, keeps, self._invoker.value) if keeps is not None else None
        bound = bind(context if held is None else held.context)
        work = self._invoker.value(
            function,
            bound.positional,
            bound.named,
            call=call,
            cancellation=cancellation,
            event_check=tool.event_check,
            fold=fold,
        )
        return await (work if held is None else held.during(work))


def _latest(_: object, event: object) -> object:
    """The last event is the result, as of functions."""
    return event


def _no_result(_: object, event: object) -> None:
    """Events without a result: it waits."""


_FIELD = "response"
"""The one field of a form that asks for a value which is no object."""


def _form_of(asked: Pause, schema: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, bool]:
    """The form, and whether the response stands in a field of it."""
    if asked.form is not None:
        return form_of(asked.form), False
    if schema is None:
        return None, False
    form = form_of(schema)
    if form is not None:
        return form, False
    return form_of({"type": "object", "properties": {_FIELD: dict(schema)}, "required": [_FIELD]}), True


def _arguments_of(call: Call) -> dict[str, Any]:
    raw = call.params.get("arguments")
    try:
        return decoded(bytes(raw)) if raw is not None else {}
    except DecodeError as error:
        raise ArgumentsRefused(f"The arguments cannot be shown to anybody: {error}") from error


def _check_schema(schema: Mapping[str, Any] | None) -> None:
    try:
        checked("schema", schema)
    except Unusable as error:
        raise Misshapen(f"its `Pause`: {error}") from error
