"""An HTTP service as a tool: one request for each call, made of templates (`[tools.NAME] endpoint = …`)."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

from mcpbridge.base.errors import ArgumentsRefused, UnknownName, UpstreamUnavailable
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.backend import BackendContext, Condition, Health
from mcpbridge.tools.http.client import HttpCaller, look_at
from mcpbridge.tools.http.request import (
    LEFT_OUT,
    Outgoing,
    check_url,
    fill,
    fill_text,
    fill_url,
    header_text,
    places_in,
    query_text,
    text_of,
    without_query,
)
from mcpbridge.tools.http.response import Output, aside, result_of
from mcpbridge.tools.http.settings import HttpToolSettings
from mcpbridge.tools.json_mapping import MISSING, MappingFailed, mapped
from mcpbridge.tools.python.output import wrapped

_IN_QUERY = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
"""Methods whose arguments are in the query where nothing is said of them."""
_SAFE, _IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS"}), frozenset({"PUT", "DELETE"})


class HttpBackend:
    """One tool that is an HTTP request."""

    kind = "http"

    def __init__(self, name: str, settings: HttpToolSettings, context: BackendContext) -> None:
        self._settings = settings
        fixed = {header: value for header, value in settings.headers.items() if not places_in(value)}
        self._caller = HttpCaller(settings, fixed, context.directory)
        self._redact = self._caller.masking(context.redact)
        self._output = Output(settings.output_schema) if settings.output_schema is not None else None
        self.tools: Sequence[Mapping[str, Any]] = (definition_of(name, settings),)

    @property
    def condition(self) -> Condition:
        """Ready: nothing is asked before the first call."""
        reason = self._settings.unavailable
        return Condition("failed", reason) if reason else Condition("ready")

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """See `Backend`."""
        async with self._caller.running():
            yield

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        if self._settings.unavailable:
            raise UpstreamUnavailable(call.upstream, self._settings.unavailable)
        given = call.params.inner("arguments")
        outgoing = outgoing_of(self._settings, given.value() if given is not None else {})
        answer = await self._caller.send(call.upstream, outgoing)
        mapping, output, redact = self._settings.output_mapping, self._output, self._redact
        return await aside(len(answer.body), lambda: result_of(call.upstream, answer, mapping, output, redact))

    async def check(self) -> Health:
        """Ask the `health` endpoint; without one, whether the host answers at all."""
        endpoint = urlsplit(self._settings.endpoint)
        origin = f"{endpoint.scheme}://{endpoint.netloc}"
        return await look_at(self._caller, origin, self._settings.health, self._redact)

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """It has no commands."""
        raise UnknownName("command", name)


def definition_of(name: str, settings: HttpToolSettings) -> dict[str, Any]:
    """The tool as `tools/list` shows it."""
    method = settings.method
    hints: dict[str, Any] = {"readOnlyHint": method in _SAFE, "openWorldHint": True}
    if method in _IDEMPOTENT:
        hints["idempotentHint"] = True
    if method == "DELETE":
        hints["destructiveHint"] = True
    host = urlsplit(settings.endpoint).netloc
    definition: dict[str, Any] = {
        "name": name,
        "description": settings.description or f"{method} request to {host}",
        "inputSchema": settings.input_schema or _schema(settings),
        "annotations": hints | settings.annotations,
    }
    if settings.output_schema is not None:
        definition["outputSchema"] = wrapped(settings.output_schema)
    return definition


def outgoing_of(settings: HttpToolSettings, arguments: Mapping[str, Any]) -> Outgoing:
    """The request that a call stands for. Pure.

    Raises:
        ArgumentsRefused: an argument is missing, or would lead elsewhere.
    """
    values = _values(settings, arguments)
    address, query = fill_url(settings.endpoint, values)
    named = places_in(settings.template)
    rest = {name: value for name, value in values.items() if name not in named and value is not None}
    params: dict[str, Any] = fill(settings.params, values) if settings.params is not None else {}
    if settings.params is None and settings.method in _IN_QUERY and settings.body is None:
        params = rest
    for name, value in params.items():
        query += [
            f"{query_text(name)}={query_text(text_of(one, name))}"
            for one in (cast("list[Any]", value) if isinstance(value, list) else [value])
        ]
    filled = {name.lower(): fill_text(value, values, header_text) for name, value in settings.headers.items()}
    headers: dict[str, str] = {name: value.strip(" \t") for name, value in filled.items() if value is not LEFT_OUT}
    content = b""
    if settings.body is not None or (settings.method not in _IN_QUERY and rest):
        body = fill(settings.body, values) if settings.body is not None else rest
        content, media_type = _encoded(body, headers.get("content-type", ""))
        headers.setdefault("content-type", media_type)
    url = f"{address}{'?' if query else ''}{'&'.join(query)}"
    endpoint = urlsplit(without_query(settings.endpoint)[0])
    check_url(url, f"{endpoint.scheme}://{endpoint.netloc}", endpoint.path.count("/"))
    return Outgoing(settings.method, url, tuple(headers.items()), content)


def _values(settings: HttpToolSettings, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the templates are filled with."""
    if settings.input_mapping is None:
        return arguments
    try:
        values = mapped(settings.input_mapping, dict(arguments))
    except MappingFailed as error:
        raise ArgumentsRefused(f"The arguments are not as this tool needs them: {error}") from error
    if values is MISSING or not isinstance(values, dict):
        raise ArgumentsRefused(f"The arguments are not as this tool needs them: no object at {settings.input_mapping}")
    return cast("dict[str, Any]", values)


def _encoded(body: Any, media_type: str) -> tuple[bytes, str]:
    if media_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        return encode(body if body is not LEFT_OUT else None), "application/json"
    fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    pairs = [
        f"{query_text(name)}={query_text(text_of(one, name))}"
        for name, value in fields.items()
        for one in (cast("list[Any]", value) if isinstance(value, list) else [value])
    ]
    return "&".join(pairs).encode(), media_type


def _schema(settings: HttpToolSettings) -> dict[str, Any]:
    """The schema of the arguments, where none is given: what the templates name, and what they do not say."""
    if settings.input_mapping is not None:
        return {"type": "object"}
    named = places_in(settings.template)
    texts = places_in((settings.endpoint, dict(settings.headers)))
    is_open = settings.method not in _IN_QUERY and settings.body is None
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _text_or_any(settings, name, texts) for name in named},
        "required": [name for name, required in named.items() if required],
    }
    return schema if is_open else schema | {"additionalProperties": False}


def _text_or_any(settings: HttpToolSettings, name: str, texts: Mapping[str, bool]) -> dict[str, Any]:
    """A place that makes up the whole of a member of the body takes any value; all others take text."""
    places = (f"{{{name}}}", f"{{{name}?}}")
    in_params = places_in(settings.params)
    if name in texts or name in in_params or not _is_whole_member(settings.body, places):
        return {"type": "string"}
    return {}


def _is_whole_member(template: Any, places: tuple[str, str]) -> bool:
    if isinstance(template, dict):
        return any(_is_whole_member(value, places) for value in cast("dict[str, Any]", template).values())
    if isinstance(template, list):
        return any(_is_whole_member(value, places) for value in cast("list[Any]", template))
    return template in places
