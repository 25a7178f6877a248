"""An API that describes itself as tools: one for each operation of its OpenAPI document (`[tools.NAME] openapi = …`).

The document is read in a task of its own, again and again until that works, and once more by the command `reload`.
"""

import asyncio
import base64
import binascii
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.base.errors import ArgumentsRefused, UnknownName, UpstreamError, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.base.units import show_bytes
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.backend import BackendContext, Condition, Health
from mcpbridge.tools.http.client import HttpCaller, describe_redirect, is_elsewhere, look_at
from mcpbridge.tools.http.request import Answer, Outgoing, Part, check_url, query_text, text_of
from mcpbridge.tools.http.response import Output, aside, failed, read, refusal_of, result_body
from mcpbridge.tools.openapi.arguments import BodyShape
from mcpbridge.tools.openapi.document import Broken, value_of
from mcpbridge.tools.openapi.operations import DocumentTools, Dropped, Operation, operations_of
from mcpbridge.tools.openapi.parameter_styles import in_cookie, in_header, in_path, in_query
from mcpbridge.tools.openapi.settings import OpenApiSettings


def outgoing_of(operation: Operation, arguments: Mapping[str, Any]) -> Outgoing:
    """The request.

    Raises:
        ArgumentsRefused: an argument is missing, or would lead elsewhere.
    """
    path: dict[str, str] = {}
    query: list[str] = []
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for parameter in operation.parameters:
        value = arguments.get(parameter.argument)
        if value is None:
            if parameter.place == "path":
                raise ArgumentsRefused(f"`{parameter.argument}` is missing")
        elif parameter.place == "path":
            path[parameter.name] = in_path(parameter, value)
        elif parameter.place == "query":
            query += in_query(parameter, value)
        elif parameter.place == "header":
            headers[parameter.name.lower()] = in_header(parameter, value)
        else:
            cookies.append(in_cookie(parameter, value))
    if cookies:
        headers["cookie"] = "; ".join(cookies)
    filled = "".join(path[text] if is_name else text for is_name, text in operation.path_parts)
    url = f"{operation.base}{filled}{'?' if query else ''}{'&'.join(query)}"
    check_url(url, operation.base, operation.slashes)
    content, parts = b"", None
    if operation.body is not None:
        content, parts, media_type = _body(operation.body, arguments)
        if media_type:
            headers["content-type"] = media_type
    return Outgoing(operation.method, url, tuple(headers.items()), content, parts)


def _body(shape: BodyShape, arguments: Mapping[str, Any]) -> tuple[bytes, tuple[Part, ...] | None, str]:
    """The body, or its parts, and its media type; empty: there is none."""
    if shape.argument:
        value = arguments.get(shape.argument)
        is_given = shape.argument in arguments and (value is not None or shape.format == "json")
    else:
        value = {name: arguments[argument] for argument, name in shape.members.items() if argument in arguments}
        is_given = bool(value)
    if not is_given and not shape.always:
        return b"", None, ""
    if shape.format == "json":
        media_type = "application/json" if "*" in shape.media_type else shape.media_type
        return encode(value), None, media_type
    if shape.format == "text":
        return text_of(value or "", shape.argument).encode(), None, f"{shape.media_type}; charset=utf-8"
    if shape.format == "bytes":
        return _bytes(value or "", shape.argument), None, shape.media_type
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if shape.format == "form":
        return _form(fields), None, shape.media_type
    parts = tuple(part for name, one in fields.items() if one is not None for part in _parts(shape, name, one))
    # A body without parts has no boundary that would tell so.
    return (b"", parts, "") if parts else (_empty_multipart(), None, "multipart/form-data; boundary=none")


def _form(fields: Mapping[str, Any]) -> bytes:
    pairs = [
        f"{query_text(name)}={query_text(text_of(one, name))}"
        for name, value in fields.items()
        if value is not None
        for one in (cast("list[Any]", value) if isinstance(value, list) else [value])
    ]
    return "&".join(pairs).encode()


def _parts(shape: BodyShape, name: str, value: Any) -> list[Part]:
    if name in shape.files:
        return [Part(name, _bytes(value, name), "application/octet-stream", is_file=True)]
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [
        Part(name, text_of(one, name).encode(), "application/json" if isinstance(one, dict | list) else "")
        for one in values
    ]


def _empty_multipart() -> bytes:
    return b"--none--\r\n"


def _bytes(value: Any, name: str) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ArgumentsRefused(f"`{name}` must be base64") from error


log = get_logger("mcpbridge.backends")

FETCH_SECONDS = 60.0
"""Seconds in which the document must be there."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 300.0
"""Seconds between tries to read it; they double."""


class OpenApiBackend:
    """The operations of one document."""

    kind = "openapi"

    def __init__(self, name: str, settings: OpenApiSettings, context: BackendContext) -> None:
        self._name, self._settings = name, settings
        self._file = context.directory / Path(settings.openapi).expanduser()
        self._caller = HttpCaller(settings, settings.headers, context.directory)
        self._redact = self._caller.masking(context.redact)
        base = settings.base_url
        is_of_api = settings.document_headers is None and (base is None or not is_elsewhere(settings.openapi, base))
        reach = {"max_response": settings.max_document} | ({} if is_of_api else {"auth": None})
        self._document = HttpCaller(
            settings.model_copy(update=reach),
            settings.headers if is_of_api else settings.document_headers or {},
            context.directory,
        )
        self._document_tools = DocumentTools("", {}, ())
        self._outputs: dict[str, Output] = {}
        self._changed: Callable[[], None] = lambda: None
        self._reading = asyncio.Lock()
        self.condition = Condition("starting")
        self.tools: Sequence[Mapping[str, Any]] = ()
        self.encoded_tools: tuple[bytes, ...] = ()
        """The same, as JSON: encoded where the document was read, as that takes its time."""
        if settings.unavailable:
            self.condition = Condition("failed", settings.unavailable)

    @property
    def dropped(self) -> Sequence[Dropped]:
        """Operations that could not be tools, with the reasons."""
        return self._document_tools.dropped

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """See `Backend`."""
        self._changed = changed
        tasks = OwnedTasks()
        try:
            async with (
                self._caller.running(),
                self._document.running(),
                tasks.running(),
            ):
                if not self._settings.unavailable:
                    tasks.spawn(self._retry_reading())
                yield
        finally:
            self._changed = lambda: None
            if self.condition.state == "ready":
                self.condition = Condition("starting")  # the document is read again when it runs again

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        operation = self._document_tools.operations.get(call.target)
        if operation is None:
            raise UpstreamUnavailable(call.upstream, self.condition.reason or "it has no such operation now")
        given = call.params.inner("arguments")
        outgoing = outgoing_of(operation, given.value() if given is not None else {})
        answer = await self._caller.send(call.upstream, outgoing)
        if answer.status >= 300:
            return refusal_of(call.upstream, answer, self._redact)
        if answer.is_cut:
            size = show_bytes(self._settings.max_response)
            return failed(
                f"The answer is larger than {size} (`max_response`). Ask for less: fewer items, a smaller page"
            )
        result, is_as_described = await aside(len(answer.body), lambda: self._read(operation, answer))
        if not is_as_described:
            self._take_back_output(operation)
        return result

    def _read(self, operation: Operation, answer: Answer) -> tuple[Body, bool]:
        """The result, and whether it is as the tool tells."""
        found = read(answer, self._redact)
        structured = found.value if found.is_object else None
        output = self._outputs.get(operation.name)
        if output is None:
            return result_body(found, structured), True
        is_as_described = structured is not None and not output.fault(structured)
        return result_body(found, structured), is_as_described

    async def check(self) -> Health:
        """Ask the `health` endpoint; without one, whether the host of the API answers at all."""
        if self.condition.state != "ready":
            return Health(ok=False, detail=self.condition.reason or "its document is being read")
        scheme, _, rest = self._document_tools.base.partition("://")
        health = await look_at(
            self._caller, f"{scheme}://{rest.partition('/')[0]}", self._settings.health, self._redact
        )
        said = f"{len(self.tools)} tools"
        if self.dropped:
            said += f", {len(self.dropped)} operations left out"
        return replace(health, detail=f"{health.detail}; {said}")

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """`reload`: read the document again. The tools stay as they are where that fails.

        Raises:
            UpstreamUnavailable: the document cannot be read.
        """
        if name != "reload":
            raise UnknownName("command", name, candidates=["reload"])
        try:
            await self._read_document()
        except (Broken, UpstreamError, OSError) as error:
            raise UpstreamUnavailable(self._name, self._failure_reason(error)) from error
        return {
            "tools": len(self.tools),
            "dropped": [{"operation": one.operation, "reason": one.reason} for one in self.dropped],
        }

    async def _retry_reading(self) -> None:
        """Read the document; try again for as long as that fails."""
        wait = FIRST_WAIT
        while True:
            try:
                await self._read_document()
            except (Broken, UpstreamError, OSError) as error:
                condition = Condition("failed", self._failure_reason(error))
                if condition != self.condition:
                    self.condition = condition
                    log.warning("a document cannot be read", tools=self._name, reason=condition.reason)
                    self._changed()
            else:
                return
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))
            wait = min(2 * wait, LONGEST_WAIT)

    async def _read_document(self) -> None:
        async with self._reading:
            data = await self._fetched() if self._settings.is_fetched else await asyncio.to_thread(self._from_file)
            self._take(await asyncio.to_thread(lambda: operations_of(value_of(data), self._settings)))

    def _take(self, document_tools: DocumentTools) -> None:
        encoded = tuple(operation.encoded for operation in document_tools.operations.values())
        is_new = encoded != self.encoded_tools or self.condition.state != "ready"
        self._offer(document_tools)
        self._outputs = {
            name: Output(operation.definition["outputSchema"])
            for name, operation in document_tools.operations.items()
            if "outputSchema" in operation.definition
        }
        self.condition = Condition("ready", "" if encoded else "the document has no operation that is wanted")
        if document_tools.dropped:
            first = document_tools.dropped[0]
            log.warning(
                "operations skipped",
                tools=self._name,
                count=len(document_tools.dropped),
                first=first.operation,
                reason=first.reason,
            )
        if is_new:
            self._changed()

    def _take_back_output(self, operation: Operation) -> None:
        """A service that answers in another way than it says: what it says is told no more."""
        if self._outputs.pop(operation.name, None) is None:
            return
        log.info("answers do not match the document", tools=self._name, tool=operation.name)
        definition = {key: value for key, value in operation.definition.items() if key != "outputSchema"}
        changed = replace(operation, definition=definition, encoded=encode(definition))
        self._offer(
            replace(self._document_tools, operations={**self._document_tools.operations, operation.name: changed})
        )
        self._changed()

    def _offer(self, document_tools: DocumentTools) -> None:
        self._document_tools = document_tools
        self.tools = tuple(operation.definition for operation in document_tools.operations.values())
        self.encoded_tools = tuple(operation.encoded for operation in document_tools.operations.values())

    def _from_file(self) -> bytes:
        most = self._settings.max_document
        with self._file.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise Broken(f"it is larger than {show_bytes(most)} (`max_document`)")
        return data

    async def _fetched(self) -> bytes:
        url = self._settings.openapi
        headers = (("accept", "application/json, application/yaml;q=0.9, */*;q=0.5"),)
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                answer = await self._document.send(self._name, Outgoing("GET", url, headers))
        except TimeoutError as error:
            raise Broken(f"no answer within {FETCH_SECONDS:g} s") from error
        if 300 <= answer.status < 400:
            raise Broken(f"HTTP {answer.status}: {describe_redirect(answer, self._redact)}")
        if answer.status != 200:
            raise Broken(f"HTTP {answer.status}")
        if answer.is_cut:
            raise Broken(f"it is larger than {show_bytes(self._settings.max_document)} (`max_document`)")
        return answer.body

    def _failure_reason(self, error: Exception) -> str:
        """Why the document cannot be read, for people."""
        what = error.what if isinstance(error, UpstreamError) else str(error)
        if isinstance(error, OSError):
            what = (error.strerror or type(error).__name__).lower()
        where = self._settings.openapi.partition("?")[0]
        return self._redact(f"the document {where} cannot be used: {what}")
