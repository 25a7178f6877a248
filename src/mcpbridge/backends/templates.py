"""Templates of packs: JSON values or texts with places in them, which are filled from another JSON value. Pure.

`{city}` is a member, `{days.0.high}` a member of an item of a member; `{}` is the whole value, `{{` and `}}` are plain
braces. A text that is one place and nothing else becomes the value that stands there, of any type; in a longer text it
becomes text. There is nothing more to them: no attributes, no calls, no formats, so that a template reads only what it
is given. What `{name?}` names may be missing: it is null then, or no text, and a member of it is left out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

__all__ = ["TemplateFailed", "filled", "places_of"]

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[^.{}?]+(\.[^.{}?]+)*\??")

_MISSING: Any = object()


class TemplateFailed(Exception):
    """A template is none, or what it needs is not there; the message says which."""


def places_of(template: object) -> dict[str, bool]:
    """The paths that a template names, and whether what they name must be there.

    Raises:
        TemplateFailed: it is none.
    """
    found: dict[str, bool] = {}
    if isinstance(template, str):
        for match in _PLACE.finditer(template):
            if match[0] not in ("{{", "}}"):
                path = _path(match)
                found[path] = found.get(path, False) or not match[0].endswith("?}")
        return found
    if isinstance(template, Mapping):
        parts = list(cast("Mapping[str, object]", template).values())
    else:
        parts = list(cast("Sequence[object]", template)) if isinstance(template, list | tuple) else []
    for part in parts:
        for path, is_needed in places_of(part).items():
            found[path] = found.get(path, False) or is_needed
    return found


def filled(template: object, value: object) -> Any:
    """The template with its places filled from `value`.

    Raises:
        TemplateFailed: it is none, or names what is not there.
    """
    found = _filled(template, value)
    return None if found is _MISSING else found


def _filled(template: object, value: object) -> Any:
    if isinstance(template, str):
        return _text(template, value)
    if isinstance(template, Mapping):
        members = cast("Mapping[str, object]", template)
        made = {name: _filled(member, value) for name, member in members.items()}
        return {name: member for name, member in made.items() if member is not _MISSING}
    if isinstance(template, list | tuple):
        items = [_filled(item, value) for item in cast("Sequence[object]", template)]
        return [item for item in items if item is not _MISSING]
    return template


def _text(template: str, value: object) -> Any:
    whole = _PLACE.fullmatch(template)
    if whole is not None and whole[0] not in ("{{", "}}"):
        return _found(whole, value)

    def put(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        found = _found(match, value)
        if found is _MISSING or found is None:
            return ""
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()

    return _PLACE.sub(put, template)


def _path(match: re.Match[str]) -> str:
    written = match[1]
    if written is None or (written and not _NAME.fullmatch(written)):
        raise TemplateFailed(f"`{match[0][:60]}` is no place: write {{name}}, {{a.b}} or {{}}, and {{{{ for a brace")
    return written.removesuffix("?")


def _found(match: re.Match[str], value: object) -> Any:
    path = _path(match)
    for part in path.split(".") if path else ():
        if isinstance(value, Mapping):
            value = cast("Mapping[str, object]", value).get(part, _MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 10:
            items = cast("list[object]", value)
            value = items[int(part)] if int(part) < len(items) else _MISSING
        else:
            value = _MISSING
        if value is _MISSING:
            if match[0].endswith("?}"):
                return _MISSING
            raise TemplateFailed(f"there is no `{path}`")
    return value
