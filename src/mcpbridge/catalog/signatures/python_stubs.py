"""Tools as Python functions: what a model reads before it writes a program that calls them. Pure, and bounded.

    async def github__create_issue(*, owner: str, repo: str, labels: list[str] | None = None) -> Any:
        \"\"\"Create an issue in a repository.\"\"\"

Python parses every stub. A tool whose name is no identifier gets one, and parameters likewise; `names_of` finds their
real names again. Long definitions are cut.

Annotations come from the JSON Schema, and leave out where a short word does for many. What one leaves out is in a
comment, in a notation of its own (`{id: int, name?: str}`); the rest is said when the arguments are checked.
"""

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from msgspec import Struct

ANY = "Any"

_MOST_NODES = 500
"""Schemas within one schema that are looked at; what comes after that is `Any`."""
_DEEPEST, _MOST_HOPS = 5, 8
_MOST_MEMBERS, _MOST_BRANCHES, _MOST_VALUES = 24, 8, 16
_LONGEST_LITERAL = 240
_LONGEST_NAME = 200

_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z_]")

Schema = Mapping[str, Any]


def python_name(name: str) -> str:
    """The identifier under which Python knows what is called so: the name itself, if it is one."""
    found = _NOT_IN_NAMES.sub("_", name[:_LONGEST_NAME]) or "_"
    if found[0].isdigit():
        found = f"_{found}"
    return f"{found}_" if keyword.iskeyword(found) else found


def one_line(text: object, most: int) -> str:
    """A text of somebody else in one line, at most so long, that no comment or string of Python can end at."""
    if not isinstance(text, str):
        return ""
    flat = " ".join(text[: most * 4].split())
    flat = "".join(char for char in flat if char.isprintable())
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"


def properties_of(schema: Schema) -> tuple[dict[str, object], frozenset[str]]:
    """The members of an object and the names of those that are required; neither is trusted to be well-formed."""
    properties: object = schema.get("properties")
    required: object = schema.get("required")
    names = cast("Sequence[object]", required) if isinstance(required, list | tuple) else ()
    needed = frozenset(name for name in names if isinstance(name, str))
    found = cast("Mapping[object, object]", properties if isinstance(properties, Mapping) else {})
    return {name: inner for name, inner in found.items() if isinstance(name, str)}, needed


class Types:
    """The types in one schema."""

    def __init__(self, root: object) -> None:
        """`root`: what `$ref` is relative to."""
        self._root, self._left = root, _MOST_NODES

    def annotation(self, schema: object) -> str:
        """A Python expression: `str`, `list[int] | None`, `dict[str, Any]`, `Literal["a", "b"]`."""
        return self._type(schema, 0, inline=False)

    def notation(self, schema: object) -> str:
        """What is in it, where an annotation says no more than `dict[str, Any]`; empty if that is all there is."""
        told = self._type(schema, 0, inline=True)
        return told if "{" in told else ""

    def resolved(self, schema: object) -> Schema | None:
        """The schema that is meant: behind its `$ref`, with what `allOf` adds. None: any value will do."""
        for _ in range(_MOST_HOPS):
            if not isinstance(schema, Mapping):
                return None
            found = cast("Schema", schema)
            ref: object = found.get("$ref")
            if not isinstance(ref, str):
                return self._with_parts(found)
            beside = {name: value for name, value in found.items() if name != "$ref"}
            target = self._at(ref)
            schema = {**cast("Schema", target), **beside} if isinstance(target, Mapping) else beside
        return None

    def _with_parts(self, schema: Schema) -> Schema:
        parts: object = schema.get("allOf")
        if not isinstance(parts, list) or not parts:
            return schema
        merged = {name: value for name, value in schema.items() if name != "allOf"}
        properties, required = properties_of(merged)
        for part in cast("list[object]", parts)[:_MOST_BRANCHES]:
            self._left -= 1
            ref: object = cast("Schema", part).get("$ref") if isinstance(part, Mapping) else None
            found = cast("object", self._at(ref) if isinstance(ref, str) else part)
            if isinstance(found, Mapping) and self._left > 0:
                own = cast("Schema", found)
                more, needed = properties_of(own)
                properties, required = {**more, **properties}, required | needed
                merged = {**own, **merged}
        return {**merged, "properties": properties, "required": sorted(required)} if properties else merged

    def _at(self, ref: str) -> object:
        if ref == "#":
            return self._root
        if not ref.startswith("#/") or len(ref) > _LONGEST_LITERAL * 2:
            return None
        found: Any = self._root
        for step in unquote(ref[2:]).split("/"):
            if not isinstance(found, Mapping):
                return None
            found = cast("Schema", found).get(step.replace("~1", "/").replace("~0", "~"))
        return found

    def _type(self, schema: object, depth: int, *, inline: bool) -> str:
        self._left -= 1
        found = self.resolved(schema) if depth <= _DEEPEST and self._left > 0 else None
        if found is None:
            return ANY
        said = self._type_text(found, depth, inline=inline)
        return f"{said} | None" if found.get("nullable") is True and not _has_none(said) and said != ANY else said

    def _type_text(self, schema: Schema, depth: int, *, inline: bool) -> str:
        values: object = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and (literal := _literal(cast("list[object]", values))):
            return literal
        kind: object = schema.get("type")
        if kind is None:
            for name in ("anyOf", "oneOf"):
                branches: object = schema.get(name)
                if isinstance(branches, list) and branches:
                    few = cast("list[object]", branches)[:_MOST_BRANCHES]
                    return _union(self._type(branch, depth + 1, inline=inline) for branch in few)
            kind = "object" if "properties" in schema else "array" if "items" in schema else None
        if isinstance(kind, list):
            kinds = cast("list[object]", kind)[:_MOST_BRANCHES]
            return _union(self._of_kind(one, schema, depth, inline=inline) for one in kinds)
        return self._of_kind(kind, schema, depth, inline=inline)

    def _of_kind(self, kind: object, schema: Schema, depth: int, *, inline: bool) -> str:
        if kind == "array":
            inner = self._type(schema.get("items"), depth + 1, inline=inline)
            return f"list[{inner}]"
        if kind == "object":
            return self._object(schema, depth, inline=inline)
        return _SIMPLE.get(kind, ANY) if isinstance(kind, str) else ANY

    def _object(self, schema: Schema, depth: int, *, inline: bool) -> str:
        properties, required = properties_of(schema)
        if not properties:
            others: object = schema.get("additionalProperties")
            is_said = isinstance(others, Mapping)
            inner = self._type(cast("object", others), depth + 1, inline=inline) if is_said else ANY
            return f"dict[str, {inner}]"
        if not inline:
            return "dict[str, Any]"
        members: list[str] = []
        for name, inner in properties.items():
            if len(members) == _MOST_MEMBERS or self._left <= 0:
                members.append("…")
                break
            mark = "" if name in required else "?"
            members.append(f"{one_line(name, 60)}{mark}: {self._type(inner, depth + 1, inline=True)}")
        return f"{{{', '.join(members)}}}"


def _literal(values: list[object]) -> str:
    """`Literal[…]` of few short values that may stand there; else what type they have, or empty."""
    kinds = {type(value) for value in values[:200]}
    if kinds <= {str, int, bool, type(None)} and len(values) <= _MOST_VALUES and values:
        if any(isinstance(value, int) and abs(value) > 1 << 64 for value in values):
            return ""
        if all(len(value) <= _LONGEST_LITERAL for value in values if isinstance(value, str)):
            told = ", ".join(dict.fromkeys(map(repr, values)))
            if len(told) <= _LONGEST_LITERAL:
                return f"Literal[{told}]"
    return "str" if kinds == {str} else ""


def _union(types: Iterator[str]) -> str:
    """Each once, `None` last."""
    found = dict.fromkeys(one for told in types for one in _alternatives(told))
    if ANY in found or not found:
        return ANY
    is_optional = found.pop("None", "") is None
    return " | ".join([*found, *(["None"] if is_optional else [])])


def _alternatives(annotation: str) -> list[str]:
    """The types of a union; one with brackets stays whole."""
    return annotation.split(" | ") if "[" not in annotation and "{" not in annotation else [annotation]


def _has_none(annotation: str) -> bool:
    return annotation == "None" or annotation.endswith("| None")


LONGEST_STUB, LONGEST_SIGNATURE = 6000, 1200
"""Characters, about."""
CALL_TOOL = "call_tool"
"""The function that calls a tool by any name, in programs."""

_MOST_PARAMETERS, _FEW_PARAMETERS = 64, 12
_LONGEST_DOC, _LONGEST_COMMENT, _LONGEST_LINE = 1200, 200, 110
_LONGEST_DEFAULT = 60
_TAKEN = frozenset({*dir(builtins), CALL_TOOL, "tools", "asyncio"})
"""Names that mean something else in a program."""


class Callee(Struct, frozen=True):
    """A tool that a program may call. What it says of itself may be malformed."""

    wire: str
    """The name that clients call it by."""
    description: str = ""
    schema: Mapping[str, Any] | None = None
    """Its `inputSchema`, parsed; None where there is none that is an object."""
    output: Mapping[str, Any] | None = None
    """Its `outputSchema`, likewise."""


class _Parameter(Struct, frozen=True):
    text: str
    comment: str
    is_required: bool


def callable_as(wire: str) -> str:
    """The name of the function that a tool is in programs; empty: `call_tool` alone can call it."""
    name = python_name(wire)
    return "" if name in _TAKEN else name


def wires_by_name(wires: Iterable[str]) -> dict[str, str]:
    """The tools by the names of their functions, where those are not the tools' own.

    A name that is another tool's own, or would be that of several, is nobody's: `call_tool` calls these.
    """
    own = set(wires)
    found: dict[str, str] = {}
    ambiguous: set[str] = set()
    for wire in sorted(own):
        name = callable_as(wire)
        if name and name != wire and name not in own:
            if name in found:
                ambiguous.add(name)
            found[name] = wire
    return {name: wire for name, wire in found.items() if name not in ambiguous}


def names_of(schema: Mapping[str, Any] | None) -> dict[str, str]:
    """The parameters by their names in Python, where those are not the parameters' own."""
    if schema is None:
        return {}
    resolved = Types(schema).resolved(schema)
    properties = properties_of(resolved)[0] if resolved is not None else {}
    found: dict[str, str] = {}
    for name in properties:
        python = python_name(name)
        if python != name and python not in properties:
            found.setdefault(python, name)
    return found


def signature(callee: Callee) -> str:
    """One line that shows how to call it: `github__create_issue(*, owner: str, title: str | None = None) -> Any`."""
    for most in (_MOST_PARAMETERS, _FEW_PARAMETERS, 0):
        parameters = _parameters(callee, most)
        told = f"{_head(callee, parameters)} -> {_returned(callee)[0]}"
        if len(told) <= LONGEST_SIGNATURE:
            return told
    return f"{_name(callee)}(**arguments: Any) -> Any"


def stub(callee: Callee) -> str:
    """The whole function: parameters with what is known of them, and its description."""
    description = _documentation(callee.description)
    for most, comments in ((_MOST_PARAMETERS, True), (_MOST_PARAMETERS, False), (_FEW_PARAMETERS, False), (0, False)):
        told = "\n".join(_lines(callee, _parameters(callee, most), description, comments=comments))
        if len(told) <= LONGEST_STUB:
            return told
    return f"async def {_name(callee)}(**arguments: Any) -> Any: ..."


def _lines(callee: Callee, parameters: list[_Parameter], description: str, *, comments: bool) -> Iterator[str]:
    if not callable_as(callee.wire):
        yield f"# only by await {CALL_TOOL}({_quoted(callee.wire)}, {{…}})"
    elif _name(callee) != callee.wire:
        yield f"# the tool {_quoted(callee.wire)}"
    returned, inside = _returned(callee)
    ending = f"  # {inside}" if inside and comments else ""
    head = f"async def {_head(callee, parameters)} -> {returned}:"
    if len(head) <= _LONGEST_LINE and not (comments and any(parameter.comment for parameter in parameters)):
        yield f"{head}{ending}"
    else:
        yield f"async def {_name(callee)}("
        if any(not parameter.text.startswith("**") for parameter in parameters):
            yield "    *,"
        for parameter in parameters:
            comment = f"  # {parameter.comment}" if comments and parameter.comment else ""
            yield (
                f"    {parameter.text},{comment}"
                if not parameter.text.startswith("**")
                else (f"    {parameter.text}{comment}")
            )
        yield f") -> {returned}:{ending}"
    yield f"    {description}" if description else "    ..."


def _head(callee: Callee, parameters: list[_Parameter]) -> str:
    texts = [parameter.text for parameter in parameters]
    star = ["*"] if any(not text.startswith("**") for text in texts) else []
    return f"{_name(callee)}({', '.join([*star, *texts])})"


def _name(callee: Callee) -> str:
    return python_name(callee.wire)


def _parameters(callee: Callee, most: int) -> list[_Parameter]:
    """Required ones first, each group in the order of the schema; `**…` last where there are more than `most`."""
    types = Types(callee.schema)
    schema = types.resolved(callee.schema)
    if schema is None or not most:
        return [_Parameter("**arguments: Any", "", is_required=False)]
    properties, required = properties_of(schema)
    found: dict[str, _Parameter] = {}
    for name, inner in properties.items():
        python = python_name(name)
        is_own = python == name or python not in properties
        if is_own and python not in found and len(found) < most:
            found[python] = _parameter(types, python, inner, is_required=name in required)
    parameters = sorted(found.values(), key=lambda parameter: not parameter.is_required)
    others: object = schema.get("additionalProperties")
    if len(found) < len(properties):
        comment = f"and {len(properties) - len(found)} more"
        parameters.append(_Parameter("**arguments: Any", comment, is_required=False))
    elif others is True or (isinstance(others, Mapping) and others) or _has_alternatives(schema, properties):
        parameters.append(_Parameter("**arguments: Any", "", is_required=False))
    return parameters


def _has_alternatives(schema: Mapping[str, Any], properties: Mapping[str, object]) -> bool:
    """What the arguments are is said in branches only."""
    return not properties and ("anyOf" in schema or "oneOf" in schema)


def _parameter(types: Types, name: str, schema: object, *, is_required: bool) -> _Parameter:
    annotation = types.annotation(schema)
    resolved = types.resolved(schema) or {}
    text = f"{name}: {annotation}"
    if not is_required:
        default = _default(resolved)
        if default == "None" and annotation != ANY and not annotation.endswith("None"):
            text += " | None"
        text += f" = {default}"
    said = (types.notation(schema), _limits(resolved), one_line(resolved.get("description"), _LONGEST_COMMENT))
    return _Parameter(text, "; ".join(part for part in said if part)[: _LONGEST_COMMENT * 2], is_required)


def _default(schema: Mapping[str, Any]) -> str:
    value: object = schema.get("default")
    if isinstance(value, bool | None) or value == [] or value == {}:
        return repr(value)
    if isinstance(value, str) and len(value) <= _LONGEST_DEFAULT:
        return repr(value)
    if isinstance(value, int | float) and abs(value) < 1e18:
        return repr(value)
    return "..."


def _limits(schema: Mapping[str, Any]) -> str:
    """What a value must keep to beside its type: a format, a range, a choice too long for the annotation."""
    said = [one_line(schema.get("format"), 40)]
    least, most = (schema.get(name) for name in ("minimum", "maximum"))
    if _is_number(least) or _is_number(most):
        said.append(f"{least if _is_number(least) else ''}..{most if _is_number(most) else ''}")
    values: object = schema.get("enum")
    if isinstance(values, list) and len(cast("list[object]", values)) > 16:
        few = [one_line(value, 30) for value in cast("list[object]", values)[:8] if isinstance(value, str)]
        said.append(f"one of {', '.join(few)}, …")
    return "; ".join(part for part in said if part)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18


def _returned(callee: Callee) -> tuple[str, str]:
    """The annotation of what it returns, and what is inside of that."""
    if callee.output is None:
        return ANY, ""
    types = Types(callee.output)
    return types.annotation(callee.output), one_line(types.notation(callee.output), _LONGEST_COMMENT * 3)


def _documentation(description: object) -> str:
    """A docstring; empty if there is nothing to say."""
    if not isinstance(description, str):
        return ""
    lines = [one_line(line, 400) for line in description[: _LONGEST_DOC * 4].splitlines()]
    text = "\n".join(lines).strip()
    if len(text) > _LONGEST_DOC:
        text = f"{text[: _LONGEST_DOC - 1].rstrip()}…"
    if not text:
        return ""
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    last = "\n" if "\n" in text or text.endswith('"') else ""
    return f'"""{text}{last}"""'.replace("\n", "\n    ").replace("\n    \n", "\n\n")


def _quoted(text: str) -> str:
    return repr(text[:200])
