"""Which operations of an OpenAPI document are tools, their names and definitions. Pure.

An operation that cannot be a tool is left out with the reason; the others stay.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast
from urllib.parse import quote

from msgspec import Struct

from mcpbridge.base.units import show_bytes
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.http.settings import ApiKey
from mcpbridge.tools.openapi.arguments import Arguments, BodyShape, arguments_of
from mcpbridge.tools.openapi.document import Broken, Document, base_of, resolve, server_address
from mcpbridge.tools.openapi.parameter_styles import Parameter
from mcpbridge.tools.openapi.schema import Schemas
from mcpbridge.tools.openapi.settings import OpenApiSettings, OperationFilter

MOST_OPERATIONS = 5000
LONGEST_NAME, LONGEST_DESCRIPTION = 128, 4000
LARGEST_IN_ALL = 16 << 20
"""Bytes of all definitions together, each of which has the schemas in it that it refers to."""
LARGEST_OUTPUT = 32 << 10
"""Bytes of a schema of results; larger ones are left out, as nobody reads them."""

_METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
_SAFE, _IDEMPOTENT = frozenset({"get", "head", "options"}), frozenset({"put", "delete"})
_PLACE = re.compile(r"\{([^{}/]+)\}")


class Operation(Struct, frozen=True):
    """How one tool is called."""

    name: str
    """Of the tool."""
    method: str
    base: str
    """The address below which it is, without a slash at its end."""
    path_parts: tuple[tuple[bool, str], ...]
    """Pieces of the path: encoded text, or (True) the name of a parameter."""
    slashes: int
    """How many the path of its address has."""
    parameters: tuple[Parameter, ...]
    body: BodyShape | None
    definition: Mapping[str, Any]
    """The tool as `tools/list` shows it."""
    encoded: bytes
    """The same, as JSON."""


class Dropped(Struct, frozen=True):
    """An operation that is no tool, and why."""

    operation: str
    """Method and path."""
    reason: str


class DocumentTools(Struct, frozen=True):
    """What a document offers."""

    base: str
    operations: Mapping[str, Operation]
    """By the name of the tool."""
    dropped: Sequence[Dropped]
    """Those that could not be tools; not those that were not wanted."""


def operations_of(document: Document, settings: OpenApiSettings) -> DocumentTools:
    """The operations that are wanted.

    Raises:
        Broken: nothing of the document can be used.
    """
    base = base_of(settings, document)
    schemas = Schemas(document, is_old=str(document["openapi"]).startswith("3.0"))
    known = _known(settings)
    found: dict[str, Operation] = {}
    numbers: dict[str, int] = {}
    dropped: list[Dropped] = []
    size, most = 0, f"the tools would have more than {show_bytes(LARGEST_IN_ALL)} together: choose with `include`"
    for method, path, item, operation in _listed(document, dropped):
        if not _is_wanted(settings, method, path, operation):
            continue
        shown = f"{method.upper()} {path}"[:200]
        if len(found) >= MOST_OPERATIONS:
            dropped.append(Dropped(shown, f"there are more than {MOST_OPERATIONS:,} operations: choose with `include`"))
            continue
        if size > LARGEST_IN_ALL:
            dropped.append(Dropped(shown, most))
            continue
        try:
            name = _name(method, path, operation, found, numbers)
            own_base = _own_base(settings, base, item, operation)
            arguments = arguments_of(document, schemas, operation, item.get("parameters"), known)
            output = _output(document, schemas, operation) if settings.output_schemas else None
            definition = _definition(settings, name, method, operation, arguments, output)
            encoded = encode(definition)
            parts = _path_parts(path, arguments.parameters)
        except (Broken, RecursionError, TypeError, ValueError, AttributeError, KeyError) as error:
            dropped.append(Dropped(shown, str(error) if isinstance(error, Broken) else "it is not as OpenAPI has it"))
            continue
        size += len(encoded)
        if size > LARGEST_IN_ALL:
            dropped.append(Dropped(shown, most))
            continue
        slashes = own_base.partition("://")[2].count("/") + path.count("/")
        found[name] = Operation(
            name, method.upper(), own_base, parts, slashes, arguments.parameters, arguments.body, definition, encoded
        )
    return DocumentTools(base, found, tuple(dropped))


def _listed(document: Document, dropped: list[Dropped]) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Method, path, path item and operation, in the order of the document."""
    for path, given in cast("dict[Any, Any]", document.get("paths") or {}).items():
        if str(path).startswith("x-"):
            continue
        try:
            item = resolve(document, given, "path")
        except Broken as error:
            dropped.append(Dropped(str(path)[:200], str(error)))
            continue
        for method in _METHODS:
            operation = item.get(method)
            if isinstance(operation, dict) and str(path).startswith("/"):
                yield method, str(path), item, cast("dict[str, Any]", operation)
            elif operation is not None:
                dropped.append(Dropped(f"{method.upper()} {path}"[:200], "it is not as OpenAPI has it"))


def _is_wanted(settings: OpenApiSettings, method: str, path: str, operation: Mapping[str, Any]) -> bool:
    if operation.get("deprecated") is True and not settings.deprecated:
        return False
    is_included = settings.include.is_empty or _matches(settings.include, method, path, operation)
    is_excluded = not settings.exclude.is_empty and _matches(settings.exclude, method, path, operation)
    return is_included and not is_excluded


def _matches(wanted: OperationFilter, method: str, path: str, operation: Mapping[str, Any]) -> bool:
    listed = operation.get("tags")
    tags = [str(tag) for tag in cast("list[Any]", listed)] if isinstance(listed, list) else []
    return (
        (not wanted.methods or method.upper() in wanted.methods)
        and (not wanted.paths or _any_matches([path], wanted.paths))
        and (not wanted.operations or _any_matches([str(operation.get("operationId", ""))], wanted.operations))
        and (not wanted.tags or _any_matches(tags, wanted.tags))
    )


def _any_matches(texts: Sequence[str], globs: Sequence[str]) -> bool:
    return any(fnmatchcase(text, glob) for text in texts for glob in globs)


def _known(settings: OpenApiSettings) -> frozenset[str]:
    """Parameters that every request has by the settings, which callers are not asked for."""
    found = {f"header {name.lower()}" for name in settings.headers}
    if isinstance(settings.auth, ApiKey):
        found |= {f"header {settings.auth.header.lower()}"} if settings.auth.header else set()
        found |= {f"query {settings.auth.query}"} if settings.auth.query else set()
        found |= {f"cookie {settings.auth.cookie}"} if settings.auth.cookie else set()
    return frozenset(found)


def _name(
    method: str, path: str, operation: Mapping[str, Any], used_names: Mapping[str, Any], numbers: dict[str, int]
) -> str:
    """A name that no other tool of the document has. `numbers`: how often each was wanted."""
    given = operation.get("operationId")
    wanted = given if isinstance(given, str) and given.strip() else re.sub(r"\W+", "_", f"{method}{path}")
    wanted = re.sub(r"[^A-Za-z0-9_.-]+", "_", wanted).strip("_.-")[: LONGEST_NAME - 6] or method
    name = wanted
    while name in used_names:
        numbers[wanted] = numbers.get(wanted, 1) + 1
        name = f"{wanted}_{numbers[wanted]}"
    return name


def _own_base(settings: OpenApiSettings, base: str, item: Mapping[str, Any], operation: Mapping[str, Any]) -> str:
    """Where requests of this operation go: it may name another server, on the same host."""
    servers = operation.get("servers") or item.get("servers")
    if not servers or settings.base_url is not None:
        return base
    return server_address(settings, servers, f"{base}/", "the API")


def _path_parts(path: str, parameters: Sequence[Parameter]) -> tuple[tuple[bool, str], ...]:
    names = {parameter.name for parameter in parameters if parameter.place == "path"}
    parts: list[tuple[bool, str]] = []
    end = 0
    for place in _PLACE.finditer(path):
        if place[1] not in names:
            raise Broken(f"its path has {{{place[1][:100]}}}, which is no parameter of it")
        parts += ((False, _encoded(path[end : place.start()])), (True, place[1]))
        end = place.end()
    parts.append((False, _encoded(path[end:])))
    return tuple(part for part in parts if part[1])


def _encoded(text: str) -> str:
    if any(part in (".", "..") for part in text.split("/")) or set(text) & set("?#{}\\"):
        raise Broken("its path has characters that a path cannot have")
    return quote(text, safe="!$&'()*+,;=:@/-._~%")


def _definition(
    settings: OpenApiSettings,
    name: str,
    method: str,
    operation: Mapping[str, Any],
    arguments: Arguments,
    output: dict[str, Any] | None,
) -> dict[str, Any]:
    hints: dict[str, Any] = {"readOnlyHint": method in _SAFE, "openWorldHint": True}
    if method in _IDEMPOTENT:
        hints["idempotentHint"] = True
    if method == "delete":
        hints["destructiveHint"] = True
    summary, said = (str(operation.get(key) or "").strip() for key in ("summary", "description"))
    texts = [summary, said] if not said.startswith(summary) else [said]
    description = "\n\n".join(filter(None, texts)) or f"{method.upper()} request to the API"
    definition: dict[str, Any] = {
        "name": name,
        "description": description[:LONGEST_DESCRIPTION],
        "inputSchema": arguments.schema,
        "annotations": hints | settings.annotations,
    }
    if summary:
        definition["title"] = summary[:200]
    if output is not None:
        definition["outputSchema"] = output
    return definition


def _output(document: Document, schemas: Schemas, operation: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema of results, where all good answers are JSON objects of one kind, and it can be used."""
    responses = operation.get("responses")
    good = {
        str(status): one
        for status, one in (cast("dict[Any, Any]", responses) if isinstance(responses, dict) else {}).items()
        if str(status).startswith("2")
    }
    if len(good) != 1:
        return None  # which of them comes, nobody can tell
    try:
        content = resolve(document, next(iter(good.values())), "response").get("content")
        media = next(
            one
            for kind, one in (cast("dict[str, Any]", content) if isinstance(content, dict) else {}).items()
            if kind.partition(";")[0].strip().lower() == "application/json"
        )
        schema = schemas.converted(media["schema"], "out")
        plain = schemas.followed(schema, "out")
        if plain.get("type") not in ("object", ["object", "null"]):
            return None
        whole = schemas.whole({**plain, "type": "object"}, "out")
        return whole if len(encode(whole)) <= LARGEST_OUTPUT else None
    except (Broken, StopIteration, KeyError, TypeError, AttributeError, RecursionError):
        return None
