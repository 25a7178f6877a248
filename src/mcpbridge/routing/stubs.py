"""Tools as Python functions: what a model reads before it writes a program that calls them.

    async def github__create_issue(*, owner: str, repo: str, labels: list[str] | None = None) -> Any:
        \"\"\"Create an issue in a repository.\"\"\"

Always one that Python parses. A tool whose name is no identifier has one made of it; parameters likewise, and
`names_of` finds back what they are really called. All that definitions say is cut where it is long.
"""

import builtins
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

from mcpbridge.routing.stub_types import ANY, Types, one_line, properties_of, python_name

__all__ = ["Callee", "callable_as", "names_of", "signature", "stub", "wires_by_name"]

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
    """One line that tells how to call it: `github__create_issue(*, owner: str, title: str | None = None) -> Any`."""
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
