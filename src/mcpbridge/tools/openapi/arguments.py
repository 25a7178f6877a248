"""The arguments of one operation: its parameters and the members of its body in one object. Decides only; no I/O.

Two of one name get their place behind it: `id` stays that of the path, the other one is `id_query` or `id_body`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import Struct

from mcpbridge.tools.openapi.document import Broken, Document, resolve
from mcpbridge.tools.openapi.parameter_styles import DEFAULT_STYLES, STYLES, Parameter, Place
from mcpbridge.tools.openapi.schema import Schemas

Format = Literal["json", "form", "multipart", "text", "bytes"]

_PLACES: Sequence[Place] = ("path", "query", "header", "cookie")
_PREFERRED: Sequence[Format] = ("json", "form", "multipart", "text", "bytes")
_NOT_OURS = frozenset({"accept", "content-type", "authorization"})
"""Headers that are said elsewhere in a document (OpenAPI 3.1, parameter object)."""
_NEVER = frozenset({"host", "content-length", "transfer-encoding", "connection", "te", "upgrade", "trailer", "cookie"})
"""Headers that say where a request goes or ends, or who it is from."""


class BodyShape(Struct, frozen=True):
    """The body of an operation."""

    media_type: str
    format: Format
    argument: str = ""
    """The argument that is the whole body; empty: it is put together from `members`."""
    members: Mapping[str, str] = {}
    """Arguments, and the member of the body that each is."""
    files: frozenset[str] = frozenset()
    """Members of a multipart body that are given as base64."""
    always: bool = False
    """It is sent when nothing is given for it as well."""


class Arguments(Struct, frozen=True):
    """What an operation takes."""

    schema: dict[str, Any]
    parameters: tuple[Parameter, ...]
    body: BodyShape | None


class _Gathered:
    """The schema of the arguments while it is made."""

    def __init__(self) -> None:
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []

    def add(self, name: str, place: str, schema: dict[str, Any], *, is_required: bool) -> str:
        """What the argument is called."""
        argument = name if name not in self.properties else f"{name}_{place}"
        number = 1
        while argument in self.properties:
            number += 1
            argument = f"{name}_{place}_{number}"
        self.properties[argument] = schema
        if is_required:
            self.required.append(argument)
        return argument


def arguments_of(
    document: Document, schemas: Schemas, operation: Mapping[str, Any], shared: Any, known: frozenset[str]
) -> Arguments:
    """The arguments of an operation. `shared`: parameters of its path; `known`: headers and such that are sent anyway.

    Raises:
        Broken: one of them cannot be sent, or understood.
    """
    gathered = _Gathered()
    listed = _parameters(document, operation.get("parameters"), shared)
    parameters = tuple(
        made
        for given in sorted(listed, key=lambda one: _PLACES.index(one["in"]))
        if (made := _parameter(schemas, given, gathered, known)) is not None
    )
    body = None
    if (given := operation.get("requestBody")) is not None:
        body = _body(schemas, resolve(document, given, "request body"), gathered)
    schema: dict[str, Any] = {"type": "object", "properties": gathered.properties, "additionalProperties": False}
    if gathered.required:
        schema["required"] = gathered.required
    return Arguments(schemas.whole(schema, "in"), parameters, body)


def _parameters(document: Document, own: Any, shared: Any) -> list[dict[str, Any]]:
    """Those of the operation replace those of its path that have the same name and place."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for listed in (shared, own):
        for one in cast("list[Any]", listed) if isinstance(listed, list) else []:
            parameter = resolve(document, one, "parameter")
            name, place = parameter.get("name"), parameter.get("in")
            if not isinstance(name, str) or not name or place not in _PLACES:
                raise Broken(f"a parameter has no usable name or place: {str(name)[:100]!r} in {str(place)[:20]!r}")
            found[name, str(place)] = parameter
    return list(found.values())


def _parameter(
    schemas: Schemas, given: Mapping[str, Any], gathered: _Gathered, known: frozenset[str]
) -> Parameter | None:
    """None: it is not for callers to give."""
    name, place = str(given["name"]), cast("Place", given["in"])
    spoken = name.lower() if place == "header" else name
    if f"{place} {spoken}" in known or (place == "header" and spoken in _NOT_OURS):
        return None
    if place == "header" and (spoken in _NEVER or not _is_token(name)):
        raise Broken(f"the header {name[:100]!r} is not for callers to set")
    if place == "cookie" and not _is_token(name):
        raise Broken(f"a cookie cannot be called {name[:100]!r}")
    content, is_json = given.get("content"), False
    schema: Any = given.get("schema", {})
    if isinstance(content, dict) and content:
        media = next(iter(cast("dict[str, dict[str, Any]]", content).values()))
        schema, is_json = media.get("schema", {}), True
    style = str(given.get("style") or DEFAULT_STYLES[place])
    if style not in STYLES[place]:
        raise Broken(f"the parameter {name[:100]!r} has the style {style[:30]!r}, which there is not in a {place}")
    explode = given.get("explode", style in ("form", "deepObject"))
    shown = _described(schemas.converted(schema, "in"), given.get("description"))
    is_required = place == "path" or given.get("required") is True
    argument = gathered.add(name, place, shown, is_required=is_required)
    return Parameter(argument, name, place, style, bool(explode), is_json, bool(given.get("allowReserved")))


def _body(schemas: Schemas, given: Mapping[str, Any], gathered: _Gathered) -> BodyShape | None:
    content = given.get("content")
    if not isinstance(content, dict) or not content:
        return None
    medias = cast("dict[str, Any]", content)
    media_type, format_ = _chosen(list(medias))
    media = cast("dict[str, Any]", medias[media_type]) if isinstance(medias[media_type], dict) else {}
    is_required = given.get("required") is True
    if format_ in ("text", "bytes"):
        schema: dict[str, Any] = {"type": "string"}
        if format_ == "bytes":
            schema |= {"contentEncoding": "base64", "description": f"The body ({media_type}), as base64"}
        argument = gathered.add("body", "body", _described(schema, given.get("description")), is_required=is_required)
        return BodyShape(media_type, format_, argument, always=is_required)
    converted = schemas.converted(media.get("schema", {}), "in")
    members = _members(schemas, converted)
    if members is None:
        if format_ != "json" and schemas.followed(converted, "in").get("type") not in (None, "object"):
            raise Broken(f"its body is {media_type}, but no object")
        argument = gathered.add(
            "body", "body", _described(converted, given.get("description")), is_required=is_required
        )
        return BodyShape(media_type, format_, argument, always=is_required)
    properties, required = members
    files = {name for name, schema in properties.items() if format_ == "multipart" and _is_file(schema)}
    shown = {name: _as_file(schema) if name in files else schema for name, schema in properties.items()}
    named = {
        gathered.add(name, "body", schema, is_required=is_required and name in required): name
        for name, schema in shown.items()
    }
    return BodyShape(media_type, format_, "", named, frozenset(files), is_required)


def _chosen(media_types: list[str]) -> tuple[str, Format]:
    """The media type to send, of those that are taken."""
    kinds: dict[Format, str] = {}
    for media_type in media_types:
        plain = media_type.partition(";")[0].strip().lower()
        kind: Format = "bytes"
        if plain in ("application/json", "*/*", "application/*") or plain.endswith("+json"):
            kind = "json"
        elif plain == "application/x-www-form-urlencoded":
            kind = "form"
        elif plain == "multipart/form-data":
            kind = "multipart"
        elif plain.startswith("text/") or plain.endswith(("xml", "yaml", "ndjson", "graphql", "jsonl")):
            kind = "text"
        kinds.setdefault(kind, media_type)
    best = min(kinds, key=_PREFERRED.index)
    return kinds[best], best


def _members(schemas: Schemas, schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
    """The properties of a plain object and those that are required; None: it is something else."""
    plain = schemas.followed(schema, "in")
    if isinstance(plain.get("allOf"), list) and not {"anyOf", "oneOf", "not", "if"} & plain.keys():
        properties, required = dict[str, Any](), list[str]()
        own = {key: value for key, value in plain.items() if key != "allOf"}
        for part in [*plain["allOf"], *([own] if "properties" in own else [])]:
            members = _members(schemas, part)
            if members is None:
                return None
            properties |= members[0]
            required += members[1]
        required += [name for name in plain.get("required", []) if name not in required]
        return properties, required
    if "required" in plain and not plain.keys() - {"required", "type", "description", "title"}:
        return {}, list(plain["required"])
    is_plain = plain.get("type", "object") == "object" and isinstance(plain.get("properties"), dict)
    is_open = plain.get("additionalProperties", False) is not False or "patternProperties" in plain
    if not is_plain or is_open or {"anyOf", "oneOf", "not", "if", "$ref"} & plain.keys():
        return None
    return plain["properties"], list(plain.get("required", []))


def _is_file(schema: dict[str, Any]) -> bool:
    return schema.get("format") == "binary" or schema.get("contentMediaType") == "application/octet-stream"


def _as_file(schema: dict[str, Any]) -> dict[str, Any]:
    said = str(schema.get("description", "")).strip()
    return {"type": "string", "contentEncoding": "base64", "description": f"{said} (a file, as base64)".strip()}


def _described(schema: dict[str, Any], description: Any) -> dict[str, Any]:
    """What is said of a parameter says more than what is said of its schema."""
    return {**schema, "description": description} if isinstance(description, str) and description else schema


def _is_token(name: str) -> bool:
    return name.isascii() and bool(name) and all(one.isalnum() or one in "!#$%&'*+.^_`|~-" for one in name)
