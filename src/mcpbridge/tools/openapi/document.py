"""Parses an OpenAPI document, and finds the address of its API. Pure."""

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

import msgspec

from mcpbridge.tools.http.request import origin_of
from mcpbridge.tools.openapi.settings import OpenApiSettings

Document = Mapping[str, Any]

_LONGEST_WAY = 50
"""`$ref`s that lead to `$ref`s."""


class Broken(ValueError):
    """A document, or a part of one, that cannot be used; the message says why."""


def value_of(data: bytes) -> Document:
    """The document, from JSON or YAML.

    Raises:
        Broken: it is none, or of another version.
    """
    value = _parsed(data)
    if not isinstance(value, dict):
        raise Broken("no OpenAPI document: it is no JSON or YAML object")
    document = cast("dict[str, Any]", value)
    version = str(document.get("openapi", ""))
    if not version and "swagger" in document:
        raise Broken("Swagger 2.0 is not supported: convert the document to OpenAPI 3")
    if not version.startswith(("3.0", "3.1", "3.2")):
        raise Broken(f"no OpenAPI 3 document: `openapi` is {version[:20]!r}")
    if not isinstance(document.get("paths", {}), dict):
        raise Broken("no OpenAPI document: `paths` is no object")
    return document


def _parsed(data: bytes) -> Any:
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
        try:
            return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
        except (msgspec.DecodeError, RecursionError) as error:
            problem: Exception = error  # YAML has objects in braces as well
    else:
        problem = Broken("it is no YAML")
    import yaml

    try:
        value = yaml.load(data, Loader=_loader())  # noqa: S506 - a safe loader, see there
        _check_size(value)
        return value
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = problem if isinstance(problem, msgspec.DecodeError) else error
        raise Broken(f"neither JSON nor YAML: {' '.join(str(reason).split())[:300]}") from error


_MOST_PARTS = 3_000_000
"""Values in a document, aliases counted as often as they stand for something. GitHub's has 500,000."""


def _check_size(value: Any) -> None:
    """Refuse a document whose aliases stand for more than it could say itself, or for themselves.

    Raises:
        ValueError: it is one.
    """
    sizes: dict[int, int] = {}
    waiting: list[tuple[Any, bool]] = [(value, False)]
    while waiting:
        node, is_counted = waiting.pop()
        parts = _parts(node)
        if parts is None or (not is_counted and sizes.get(id(node), 0) > 0):
            continue
        if is_counted:
            size = 1 + sum(sizes.get(id(part), 1) for part in parts)
            if size > _MOST_PARTS:
                raise ValueError(f"its aliases expand to more than {_MOST_PARTS} values")
            sizes[id(node)] = size
        elif id(node) in sizes:
            raise ValueError("an alias refers to a value that contains it")
        else:
            sizes[id(node)] = 0
            waiting.append((node, True))
            waiting += [(part, False) for part in parts]


def _parts(node: object) -> list[Any] | None:
    """What an object or a list consists of; None of all else."""
    if isinstance(node, dict):
        return list(cast("dict[str, Any]", node).values())
    return cast("list[Any]", node) if isinstance(node, list) else None


_PLAIN = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)",
    "float": r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)",
}
"""What is no text if it is written without quotes. PyYAML is of YAML 1.1, for which `on`, `no` and dates are none."""


def _loader() -> Any:
    """A loader of plain values (YAML 1.2, core schema, as OpenAPI has it)."""
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("Loader", (base,), {"yaml_implicit_resolvers": {}})
    for name, pattern in _PLAIN.items():
        # Later ones count less, and none of these looks like another.
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"(?:{pattern})$"), None)
    loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<$"), ["<"])
    return loader


def resolve(document: Document, value: Any, wanted: str = "object") -> dict[str, Any]:
    """An object of the document, its `$ref`s followed.

    Raises:
        Broken: a reference leads nowhere, in circles or out of the document.
    """
    for _ in range(_LONGEST_WAY):
        if not isinstance(value, dict):
            raise Broken(f"a {wanted} is no object")
        found = cast("dict[str, Any]", value)
        reference = found.get("$ref")
        if not isinstance(reference, str):
            return found
        value = target_of(document, reference)
    raise Broken("references lead in circles")


def target_of(document: Document, reference: str) -> Any:
    """What a `$ref` names.

    Raises:
        Broken: nothing, or something outside the document.
    """
    if not reference.startswith("#/") and reference != "#":
        raise Broken(f"it refers to another document ({reference[:100]}): bundle them into one")
    value: Any = document
    for token in reference[2:].split("/") if len(reference) > 1 else []:
        key = _unescaped(token)
        if isinstance(value, dict) and key in value:
            value = cast("dict[str, Any]", value)[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[int(key)]
        else:
            raise Broken(f"a reference leads nowhere: {reference[:200]}")
    return value


def _unescaped(token: str) -> str:
    from urllib.parse import unquote

    return unquote(token).replace("~1", "/").replace("~0", "~")


def base_of(settings: OpenApiSettings, document: Document) -> str:
    """The address that the paths of the document are below, without a slash at its end.

    Raises:
        Broken: there is none, or it is one that a document must not choose.
    """
    if settings.base_url is not None:
        return settings.base_url.rstrip("/")
    beside = settings.openapi if settings.is_fetched else ""
    beside_name = "its document: set `base_url` if requests, and credentials, are to go there"
    return server_address(settings, document.get("servers"), beside, beside_name)


def server_address(settings: OpenApiSettings, servers: Any, beside: str, beside_name: str) -> str:
    """The address of the first of these servers.

    `beside`: an address that it must be on one host with; empty: it may be anywhere. `beside_name`: what that one is.

    Raises:
        Broken: see `base_of`.
    """
    listed = cast("list[Any]", servers) if isinstance(servers, list) else []
    first = cast("dict[str, Any]", listed[0]) if listed and isinstance(listed[0], dict) else {"url": "/"}
    address = urljoin(beside, _with_variables(settings, first))
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Broken("the document does not say where its API is: set `base_url`")
    if parts.username is not None or parts.query or parts.fragment:
        raise Broken(f"the document's server address cannot be used: {parts.scheme}://{parts.hostname}")
    try:
        is_elsewhere = bool(beside) and origin_of(address) != origin_of(beside)
    except ValueError as error:
        raise Broken(f"the document's server address cannot be used: {error}") from error
    if is_elsewhere:
        raise Broken(f"it is on another host ({parts.scheme}://{parts.netloc}) than {beside_name}")
    return address.rstrip("/")


def _with_variables(settings: OpenApiSettings, server: Mapping[str, Any]) -> str:
    address = str(server.get("url", "/"))
    variables = server.get("variables")
    for name, variable in (cast("dict[str, Any]", variables) if isinstance(variables, dict) else {}).items():
        default = cast("dict[str, Any]", variable).get("default", "") if isinstance(variable, dict) else ""
        address = address.replace(f"{{{name}}}", settings.server_variables.get(name, str(default)))
    if "{" in address:
        raise Broken(f"the document's server address has a variable without a value: {address[:200]}")
    return address
