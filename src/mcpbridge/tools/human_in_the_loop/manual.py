"""A tool without a handler: each call is handed to the program, which gives its result by `Bridge.resume`.

Until then the call is paused (`paused_calls.py`). Where the tool says so, the user of the client that calls is asked
first, with a form, and what they accept is the result at once.

The listed definition has no `outputSchema`: clients refuse results that do not match it, and "paused" does not. The
results themselves are checked against it all the same.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, cast

from mcpbridge.base.errors import ArgumentsRefused, ConfigError, UnknownName, UpstreamUnavailable
from mcpbridge.core.model import Call
from mcpbridge.core.tool_calls_and_results import ToolResult
from mcpbridge.protocol.body import Body
from mcpbridge.tools.backend import Condition, Health
from mcpbridge.tools.human_in_the_loop.human import ask, asked_about, form_of
from mcpbridge.tools.human_in_the_loop.paused_calls import pause, resuming_of
from mcpbridge.tools.human_in_the_loop.settings import PausingSettings
from mcpbridge.tools.python.output import Check, Misshapen, check_of, failure, is_wrapped, to_result, wrapped

_DECLINED = "The user was asked for the result of {}, and declined to give it."


class ManualBackend:
    """One tool that somebody does by hand. Meets `Backend`."""

    kind = "manual"

    def __init__(self, name: str, settings: PausingSettings) -> None:
        """All that it is comes from the settings: description, schemas, what people are asked.

        Raises:
            ConfigError: a schema is none.
        """
        self._name, self._settings = name, settings
        self.output_schema = settings.output_schema
        """JSON Schema of what somebody gives as the result; None: any."""
        self._published = wrapped(self.output_schema) if self.output_schema is not None else None
        self._check = _check_of(name, "output_schema", self._published)
        self._is_wrapped = is_wrapped(self.output_schema, self._published)
        self._asked = settings.response_schema or self.output_schema
        self._answer_check = _check_of(name, "response_schema", self._asked)
        form = self._published if settings.response_schema is None else None
        self._form = form_of(form) if form is not None and settings.ask_client else None
        self._condition = Condition("ready")

    @classmethod
    def of(
        cls,
        name: str,
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        *,
        settings: PausingSettings | None = None,
    ) -> Self:
        """A tool of the program. What is given here takes precedence over `settings`.

        `input_schema`: of the arguments, else any object. `output_schema`: of the result, else any JSON value.

        Raises:
            ConfigError: a schema is none.
        """
        said: dict[str, Any] = {"description": description or None}
        said |= {"input_schema": dict(input_schema)} if input_schema is not None else {}
        said |= {"output_schema": dict(output_schema)} if output_schema is not None else {}
        given = {key: value for key, value in said.items() if value is not None}
        return cls(name, (settings or PausingSettings()).model_copy(update=given))

    @property
    def condition(self) -> Condition:
        """See `Backend`."""
        return self._condition

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """See `Backend`."""
        settings = self._settings
        definition: dict[str, Any] = {"name": self._name}
        if settings.description:
            definition["description"] = settings.description
        definition["inputSchema"] = {"type": "object", **(settings.input_schema or {})}
        if settings.annotations:
            definition["annotations"] = dict(settings.annotations)
        return [definition]

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """See `Backend`. There is nothing to run."""
        self._condition = Condition("ready")
        try:
            yield
        finally:
            self._condition = Condition("failed", "it was stopped")

    async def run(self, call: Call) -> Body:
        """See `Backend`: what somebody answered, or that the call is paused.

        Raises:
            ArgumentsRefused: the answer is none that the tool can give.
        """
        if self._condition.state != "ready":
            raise UpstreamUnavailable(call.upstream, self._condition.reason or "it is starting")
        resuming = resuming_of(call)
        if resuming is not None:
            try:
                result = await self._result(call, resuming.answer)
            except ArgumentsRefused as refused:
                resuming.fail(refused)
                raise
            resuming.finish(None)
            return result
        if self._form is not None:
            answered = await self._asked_client(call, self._form)
            if answered is not None:
                return answered
        return await pause(
            call,
            kind="manual",
            reason=self._settings.reason,
            schema=self._asked,
            expires_in=self._settings.expires_in,
        )

    async def check(self) -> Health:
        """See `Backend`. That it runs is all that can be known."""
        if self._condition.state != "ready":
            return Health(ok=False, detail=self._condition.reason or "it is starting")
        return Health(ok=True, detail="its calls wait for a person to answer")

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. It has none."""
        raise UnknownName("command", name)

    async def _asked_client(self, call: Call, form: Mapping[str, Any]) -> Body | None:
        """What the user of the client gave; None: nobody was asked, or nobody answered."""
        named = call.tool.id if call.tool is not None else self._name
        about = self._settings.reason or self._settings.description or f"What is the result of {self._name}?"
        answer = await ask(call, named, asked_about(about, call.params.get("arguments")), form)
        if answer.action == "decline":
            return failure(_DECLINED.format(named))
        if answer.action == "none":
            return None
        given: object = answer.content.get("result") if self._is_wrapped else dict(answer.content)
        try:
            return await self._result(call, given)
        except ArgumentsRefused:  # a client that does not keep to the form
            return None

    async def _result(self, call: Call, answer: object) -> Body:
        """The result that an answer is: a JSON value, or a `ToolResult` with one."""
        content, is_error = answer, False
        if isinstance(answer, ToolResult):
            given = cast("ToolResult[object]", answer)
            content, is_error = given.content, given.is_error
        fault = self._answer_check(content) if self._answer_check is not None and not is_error else ""
        if fault:
            raise ArgumentsRefused(f"The answer does not fit: {fault}")
        try:
            return await to_result(cast("object", answer), call, self._name, self._check, is_wrapped=self._is_wrapped)
        except Misshapen as error:
            raise ArgumentsRefused(f"The answer cannot be the result of {self._name}: {error}") from error


def _check_of(name: str, key: str, schema: Mapping[str, Any] | None) -> Check | None:
    if schema is None:
        return None
    try:
        return check_of(schema)
    except ValueError as error:
        raise ConfigError(f"'{name}' cannot be a tool: its `{key}` is none: {error}", key=name) from error
