"""What a change of a definition means: new text, a parameter, a weaker annotation, a new address. Pure.

A reviewer reads the classes first and the text last, so nothing may hide: two definitions that are not equal always
differ in at least one class, `other` if nothing else fits. Texts are hostile: what is cited of them is shortened, and
it is for whoever shows it to escape it.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import msgspec

from mcpbridge.catalog.pins.definition import PinKind
from mcpbridge.protocol.canonical_json import canonical, decode_exactly

ChangeClass = Literal[
    "added",
    "removed",
    "text",
    "parameter-added",
    "required-parameter-added",
    "parameter-removed",
    "parameter-now-required",
    "parameter-now-optional",
    "type",
    "enum",
    "default",
    "constraint",
    "annotation-weakened",
    "annotation",
    "output",
    "new-url",
    "new-command",
    "new-email",
    "new-tool-name",
    "instructions-grown",
    "server-name",
    "server-version",
    "command",
    "package-version",
    "origin",
    "other",
]
"""What a change means. `text`: wording only, `constraint`: another limit on a value, `other`: any other member."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between what was agreed to and what the server shows now."""

    what: ChangeClass
    where: str = ""
    """The member, as a path with dots; empty for the whole definition."""
    detail: str = ""
    """What is new, shortened; empty if the class says all."""

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"{self.what}{place}: {self.detail}" if self.detail else f"{self.what}{place}"


LONGEST_DETAIL = 120
"""Characters of what is cited."""

_Object = dict[str, object]
_TEXTS = frozenset({"title", "description", "$comment", "examples"})
_SAFE: Mapping[str, bool] = {
    "readOnlyHint": True,
    "destructiveHint": False,
    "idempotentHint": True,
    "openWorldHint": False,
}
"""The value of each hint that lets a client ask less. Absent means the other one (MCP 2025-11-25, ToolAnnotations)."""
_URL = re.compile(r"\b(?:[a-z][a-z0-9+.-]{1,20}://|www\.)[^\s\"'<>()\[\]{}`|\\]{1,2000}", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_COMMAND = re.compile(
    r"(?<![\w./-])(?:sudo|curl|wget|bash|zsh|sh|powershell|pwsh|cmd(?:\.exe)?|python3?|node|npx|npm|uvx|uv|pip3?|rm|chmod"
    r"|ssh|scp|nc|eval|base64|docker|git|cat)[ \t]+(?:-{1,2}\w|[/~.$\"']|https?:|install\b|run\b|exec\b|clone\b)"
    r"[^\s`]{0,200}"
)
_VERSION = re.compile(r"^(.*[^=@])(?:@|==)[\w.^~*+-]+$")


def changes(
    kind: PinKind, name: str, old: bytes | None, new: bytes | None, *, others: Collection[str] = ()
) -> tuple[Change, ...]:
    """What is different, in order of the members; none only for definitions that are equal. Never raises.

    `old`, `new`: None where there is none. `others`: names of other servers' and other tools, which a new text may
    refer to.
    """
    if old is None or new is None:
        return () if old is new else (Change("added" if old is None else "removed"),)
    before_spelled, after_spelled = canonical(old), canonical(new)
    if before_spelled == after_spelled:
        return ()
    try:
        before, after = decode_exactly(before_spelled), decode_exactly(after_spelled)
        seen = [*_by_kind(kind, name, before, after)]
        if kind != "server" or name == "instructions":  # the rest is no text
            seen += _mentions(before, after, others)
        found = tuple(dict.fromkeys(seen))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        found = ()
    return found or (Change("other", "", "it is spelled in another way"),)


def _by_kind(kind: PinKind, name: str, before: object, after: object) -> Iterator[Change]:
    if kind == "server":
        yield from _of_server(name, before, after)
    elif isinstance(before, dict) and isinstance(after, dict):
        yield from _of_definition(cast("_Object", before), cast("_Object", after))
    else:
        yield Change("other")


def _of_definition(before: _Object, after: _Object) -> Iterator[Change]:
    for member in _differing(before, after):
        old, new = before.get(member), after.get(member)
        match member:
            case "inputSchema":
                yield from _of_schema(old, new, "")
            case "outputSchema":
                yield Change("output", member, _presence(before, after, member))
            case "annotations":
                yield from _of_annotations(old, new)
            case "arguments":
                yield from _of_arguments(old, new)
            case "title" | "description":
                yield Change("text", member, _cited(new))
            case _:
                yield Change("other", member, _presence(before, after, member))


def _of_schema(before: object, after: object, path: str) -> Iterator[Change]:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        yield Change("type" if path else "constraint", path)
        return
    old, new = cast("_Object", before), cast("_Object", after)
    for keyword in _differing(old, new):
        if keyword in _TEXTS:
            yield Change("text", _joined(path, keyword), _cited(new.get(keyword)))
        elif keyword == "properties":
            yield from _of_properties(old, new, path)
        elif keyword == "required":
            yield from _of_required(old, new, path)
        elif keyword == "type":
            yield Change("type", path, f"{_cited(old.get('type'))} → {_cited(new.get('type'))}")
        elif keyword in ("enum", "const"):
            yield Change("enum", path, _cited(new.get(keyword)))
        elif keyword == "default":
            yield Change("default", path, _cited(new.get(keyword)))
        elif keyword in ("items", "additionalProperties") and isinstance(old.get(keyword), dict):
            yield from _of_schema(old.get(keyword), new.get(keyword), _joined(path, "*"))
        else:
            yield Change("constraint", _joined(path, keyword), _presence(old, new, keyword))


def _of_properties(old: _Object, new: _Object, path: str) -> Iterator[Change]:
    before, after = old.get("properties", {}), new.get("properties", {})
    if not (isinstance(before, dict) and isinstance(after, dict)):
        yield Change("constraint", _joined(path, "properties"))
        return
    before, after, required = cast("_Object", before), cast("_Object", after), _required(new)
    if not _differing(before, after):
        yield Change("constraint", _joined(path, "properties"), _presence(old, new, "properties"))
    for name in _differing(before, after):
        if name not in before:
            yield Change("required-parameter-added" if name in required else "parameter-added", _joined(path, name))
        elif name not in after:
            yield Change("parameter-removed", _joined(path, name))
        else:
            yield from _of_schema(before[name], after[name], _joined(path, name))


def _of_required(old: _Object, new: _Object, path: str) -> Iterator[Change]:
    before, after = _required(old), _required(new)
    if before == after:
        yield Change("constraint", _joined(path, "required"))
    known, kept = _members(old.get("properties")), _members(new.get("properties"))
    for name in sorted(after - before):
        is_new = name in kept and name not in known
        yield Change("required-parameter-added" if is_new else "parameter-now-required", _joined(path, name))
    for name in sorted(before - after):
        is_gone = name in known and name not in kept
        yield Change("parameter-removed" if is_gone else "parameter-now-optional", _joined(path, name))


def _required(schema: _Object) -> frozenset[str]:
    value = schema.get("required")
    names = cast("list[object]", value) if isinstance(value, list) else []
    return frozenset(name for name in names if isinstance(name, str))


def _of_annotations(before: object, after: object) -> Iterator[Change]:
    old, new = _members(before), _members(after)
    names = _differing(old, new)
    if not names:
        yield Change("annotation", "annotations")
    for name in names:
        safe = _SAFE.get(name)
        if name == "title":
            yield Change("text", "annotations.title", _cited(new.get(name)))
            continue
        is_weaker = safe is not None and old.get(name) is safe and new.get(name) is not safe
        detail = f"{_cited(old.get(name))} → {_cited(new.get(name))}"
        yield Change("annotation-weakened" if is_weaker else "annotation", f"annotations.{name}", detail)


def _of_arguments(before: object, after: object) -> Iterator[Change]:
    """Of a prompt, whose arguments are a list of objects with a `name` and `required`."""
    old, new = _arguments(before), _arguments(after)
    names = _differing(old, new) if old is not None and new is not None else ()
    if old is None or new is None or not names:
        yield Change("constraint", "arguments")
        return
    for name in names:
        if name not in old:
            is_needed = new[name].get("required") is True
            yield Change("required-parameter-added" if is_needed else "parameter-added", name)
        elif name not in new:
            yield Change("parameter-removed", name)
        else:
            yield from _of_argument(old[name], new[name], name)


def _of_argument(old: _Object, new: _Object, name: str) -> Iterator[Change]:
    for member in _differing(old, new):
        if member == "required":
            is_needed = new.get(member) is True
            yield Change("parameter-now-required" if is_needed else "parameter-now-optional", name)
        elif member in _TEXTS:
            yield Change("text", _joined(name, member), _cited(new.get(member)))
        else:
            yield Change("other", _joined(name, member))


def _arguments(value: object) -> dict[str, _Object] | None:
    if value is None:
        return {}
    if not isinstance(value, list):
        return None
    found: dict[str, _Object] = {}
    for one in cast("list[object]", value):
        members = _members(one)
        name = members.get("name")
        if not isinstance(name, str) or name in found:
            return None
        found[name] = members
    return found


def _of_server(fact: str, before: object, after: object) -> Iterator[Change]:
    match fact:
        case "instructions":
            is_longer = isinstance(before, str) and isinstance(after, str) and len(after) > len(before)
            yield Change("instructions-grown" if is_longer else "text", fact, _cited(after))
        case "identity":
            old, new = _members(before), _members(after)
            known: dict[str, ChangeClass] = {"name": "server-name", "version": "server-version"}
            for member in _differing(old, new):
                detail = f"{_cited(old.get(member))} → {_cited(new.get(member))}"
                yield Change(known.get(member, "text" if member in _TEXTS else "other"), member, detail)
        case "command":
            is_version = _without_versions(before) == _without_versions(after)
            yield Change("package-version" if is_version else "command", "", f"{_cited(before)} → {_cited(after)}")
        case "package":
            yield Change("package-version", "", f"{_package(before)} → {_package(after)}")
        case "origin":
            yield Change("origin", "", f"{_cited(before)} → {_cited(after)}")
        case _:
            yield Change("other", fact)


def _package(value: object) -> str:
    one = _members(value)
    return " ".join(_cited(one[member]) for member in ("name", "version") if member in one) or _cited(None)


def _members(value: object) -> _Object:
    return cast("_Object", value) if isinstance(value, dict) else {}


def _without_versions(command: object) -> list[object]:
    words = cast("list[object]", command) if isinstance(command, list) else [command]
    return [_VERSION.sub(r"\1", word) if isinstance(word, str) else word for word in words]


# -- what texts refer to


def _mentions(before: object, after: object, others: Collection[str]) -> Iterator[Change]:
    """What the texts name that they did not name before."""
    known, texts = "\n".join(_strings(before)), "\n".join(_strings(after))
    patterns: tuple[tuple[ChangeClass, re.Pattern[str]], ...] = (
        ("new-url", _URL),
        ("new-command", _COMMAND),
        ("new-email", _EMAIL),
    )
    for what, pattern in patterns:
        seen = set(pattern.findall(known))
        for found in dict.fromkeys(pattern.findall(texts)):
            if found not in seen:
                yield Change(what, "", _shortened(found))
    for name in sorted({name for name in others if name in texts}):
        if _refers(texts, name) and not _refers(known, name):
            yield Change("new-tool-name", "", _shortened(name))


def _refers(text: str, name: str) -> bool:
    """Whether a text names this tool. A plain word does so only where it is quoted or called a tool."""
    if not name or name not in text:
        return False
    word = re.escape(name)
    if name.isalpha() and name.islower():
        return re.search(rf"[`'\"]{word}[`'\"]|\b{word} tool\b|\btool {word}\b", text) is not None
    return re.search(rf"(?<!\w){word}(?!\w)", text) is not None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _strings(one)
    elif isinstance(value, dict):
        for name, one in cast("_Object", value).items():
            yield name
            yield from _strings(one)


# -- small parts


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[str, ...]:
    """The members that are not the same, in order of their names."""
    names = sorted({*old, *new})
    return tuple(name for name in names if (name in old) != (name in new) or not _is_same(old.get(name), new.get(name)))


def _is_same(old: object, new: object) -> bool:
    return old is new or msgspec.json.encode(old, order="sorted") == msgspec.json.encode(new, order="sorted")


def _presence(old: Mapping[str, object], new: Mapping[str, object], member: str) -> str:
    return "added" if member not in old else "removed" if member not in new else ""


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _cited(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode() if value is not None else "nothing"
    return _shortened(text)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_DETAIL else f"{line[: LONGEST_DETAIL - 1]}…"
