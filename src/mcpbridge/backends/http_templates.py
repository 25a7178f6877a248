"""Templates of requests: texts and JSON values with places for arguments. Pure.

`{name}` stands for an argument, `{name?}` for one that may be left out, together with the query parameter, header or
member of the body that it stands in; `{{name}}` is the text `{name}`. A text that is nothing but a place stands for the
argument itself, whatever its type; elsewhere it is put in as text.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote, urlsplit

from mcpbridge.backends.http_urls import query_text, segment, text_of
from mcpbridge.errors import ArgumentsRefused

__all__ = ["LEFT_OUT", "fill", "fill_text", "fill_url", "places_in", "url_mistake", "without_query"]

_PLACE = re.compile(r"\{\{([A-Za-z_][\w-]*)\}\}|\{([A-Za-z_][\w-]*)(\?)?\}", re.ASCII)
_ALLOWED = "!$&'()*+,;=:@/-._~%"
"""What may stand in a path as it is; other characters of a template are percent-encoded."""

LEFT_OUT: Any = object()
"""What a template stands for whose argument is left out."""

Arguments = Mapping[str, Any]


def places_in(template: Any) -> dict[str, bool]:
    """The arguments named anywhere in a template, in order, each with whether it must be given."""
    found: dict[str, bool] = {}
    for text in _texts(template):
        for _, name, optional in _PLACE.findall(text):
            if name:
                found[name] = found.get(name, False) or not optional
    return found


def fill(template: Any, arguments: Arguments) -> Any:
    """A JSON value with the arguments in their places.

    Raises:
        ArgumentsRefused: one that must be given is missing.
    """
    if isinstance(template, str):
        place = _PLACE.fullmatch(template)
        if place is None or not place[2]:
            return fill_text(template, arguments)
        return _given(arguments, place)
    if isinstance(template, Mapping):
        members = {key: fill(value, arguments) for key, value in cast("Mapping[str, Any]", template).items()}
        return {key: value for key, value in members.items() if value is not LEFT_OUT}
    if isinstance(template, list | tuple):
        items = [fill(item, arguments) for item in cast("Sequence[Any]", template)]
        return [item for item in items if item is not LEFT_OUT]
    return template


def fill_text(template: str, arguments: Arguments, write: Callable[[str, str], str] | None = None) -> Any:
    """A text with the arguments in their places, or `LEFT_OUT`. `write` gets the text of each and its name.

    Raises:
        ArgumentsRefused: an argument is missing, or cannot stand there.
    """
    pieces: list[str] = []
    end = 0
    for place in _PLACE.finditer(template):
        pieces.append(template[end : place.start()])
        end = place.end()
        if place[1]:
            pieces.append(f"{{{place[1]}}}")
            continue
        value = _given(arguments, place)
        if value is LEFT_OUT:
            return LEFT_OUT
        text = text_of(value, place[2])
        pieces.append(write(text, place[2]) if write is not None else text)
    return "".join((*pieces, template[end:]))


def fill_url(template: str, arguments: Arguments) -> tuple[str, list[str]]:
    """The address without its query, and the parts of the query, both encoded.

    Raises:
        ArgumentsRefused: an argument is missing, or would lead elsewhere.
    """
    address, query = without_query(template)
    parts = urlsplit(address)
    segments = [_filled_segment(part, arguments) for part in parts.path.split("/")]
    said: list[str] = []
    for part in filter(None, query.split("&")):
        filled = fill_text(_safely(part), arguments, lambda text, _: query_text(text))
        if filled is not LEFT_OUT:
            said.append(filled)
    return f"{parts.scheme}://{parts.netloc}{'/'.join(segments)}", said


def without_query(template: str) -> tuple[str, str]:
    """The template of an address, and that of its query. The question mark of `{name?}` begins none."""
    at = _PLACE.sub(lambda place: "x" * len(place[0]), template).find("?")
    return (template, "") if at < 0 else (template[:at], template[at + 1 :])


def url_mistake(template: str) -> str:
    """What is wrong with the template of an address, for whoever wrote it; empty when nothing is."""
    address, _ = without_query(template)
    if "{" in "/".join(address.split("/", 3)[:3]):
        return "a placeholder in the scheme, host or port would let the caller choose where the request goes"
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        return f"not an address: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "expected an address such as https://api.example.com/v1/{city}"
    if parts.username is not None or parts.password is not None:
        return "an address shows in logs: put credentials into `auth` or `headers`"
    if "#" in template:
        return "a fragment (`#…`) is never sent: leave it out"
    if any(not required for required in places_in(address).values()):
        return "an argument in the path cannot be left out: write {name} instead of {name?}"
    if set(_PLACE.sub("", template)) & set("{}"):
        return "a brace that belongs to no placeholder: {name}, of letters, digits, `_` and `-`"
    if any(part in (".", "..") for part in parts.path.split("/")):
        return "`.` and `..` in the path: write the address that is meant"
    return ""


def _filled_segment(template: str, arguments: Arguments) -> str:
    filled = fill_text(_safely(template), arguments, segment)
    if _PLACE.fullmatch(template) and not filled:
        name = next(iter(places_in(template)))
        raise ArgumentsRefused(f"`{name}` is a part of the path and must not be empty")
    if filled in (".", ".."):
        raise ArgumentsRefused("These arguments would lead to another path than that of the tool")
    return filled


def _safely(template: str) -> str:
    """What stands between the places, percent-encoded where that is needed."""
    pieces: list[str] = []
    end = 0
    for place in _PLACE.finditer(template):
        pieces += (quote(template[end : place.start()], safe=_ALLOWED), place[0])
        end = place.end()
    return "".join((*pieces, quote(template[end:], safe=_ALLOWED)))


def _given(arguments: Arguments, place: re.Match[str]) -> Any:
    value = arguments.get(place[2])
    if value is not None:
        return value
    if place[3]:
        return LEFT_OUT
    raise ArgumentsRefused(f"`{place[2]}` is missing")


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for value in cast("Mapping[str, Any]", template).values():
            yield from _texts(value)
    elif isinstance(template, list | tuple):
        for item in cast("Sequence[Any]", template):
            yield from _texts(item)
