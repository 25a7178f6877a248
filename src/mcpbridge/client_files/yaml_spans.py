"""What PyYAML tells of a YAML text: its nodes, with the places where they stand."""

import re
from typing import Any, cast

import yaml

from mcpbridge.client_files.editing import NotEditable, Spot

__all__ = ["compose", "content_end", "find", "is_flow", "is_null", "name_of", "pair", "plain"]


def compose(text: str) -> yaml.Node | None:
    """The root; None if there is nothing in it.

    Raises:
        NotEditable: it is no YAML, or more than one document.
    """
    try:
        return cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "cannot be parsed"
        raise NotEditable(f"not valid YAML: {what}", mark.line + 1 if mark else None) from error
    except yaml.YAMLError as error:
        at = getattr(error, "position", None)
        line = text.count("\n", 0, at) + 1 if isinstance(at, int) else None
        raise NotEditable("not valid YAML: a character that may not stand there", line) from error
    except RecursionError as error:
        raise NotEditable("nested too deeply") from error


def plain(node: yaml.Node) -> object:
    """The value; of a tag that is none of JSON's, as a pair of tag and text."""
    value = node.value
    if isinstance(node, yaml.MappingNode):
        return {name_of(key): plain(item) for key, item in value}
    if isinstance(node, yaml.SequenceNode):
        return [plain(item) for item in value]
    match node.tag.removeprefix("tag:yaml.org,2002:"):
        case "str":
            return value
        case "null":
            return None
        case "bool":
            return value.lower() in ("true", "yes", "on")
        case "int" if re.fullmatch(r"-?(0|[1-9]\d*)", value):
            return int(value)
        case "float" if re.fullmatch(r"-?\d+\.\d+", value):
            return float(value)
        case _:
            return (node.tag, value)


def name_of(key: yaml.Node) -> str:
    """A key as text."""
    return key.value if isinstance(key, yaml.ScalarNode) else repr(plain(key))


def is_null(node: yaml.Node) -> bool:
    """Whether it says nothing, in whatever spelling."""
    return node.tag == "tag:yaml.org,2002:null"


def pair(at: yaml.Node, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value in a map; of several with one name the last."""
    pairs = cast("list[tuple[yaml.Node, yaml.Node]]", at.value)
    return next(((key, value) for key, value in reversed(pairs) if name_of(key) == name), None)


def find(at: yaml.Node, spot: Spot) -> int | None:
    """Which one of the table the entry is."""
    found = None
    for number, one in enumerate(cast("list[Any]", at.value)):
        if spot.in_list:
            named = pair(one, "name") if isinstance(one, yaml.MappingNode) else None
            found = number if named and named[1].value == spot.name else found
        elif name_of(one[0]) == spot.name:
            found = number
    return found


def is_flow(node: yaml.Node) -> bool:
    """Whether it is written with brackets."""
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def content_end(node: yaml.Node) -> int:
    """Where the last character of a value is that is neither blank nor comment."""
    if isinstance(node, yaml.ScalarNode) or is_flow(node) or not node.value:
        return node.end_mark.index
    last = node.value[-1]
    parts = cast("tuple[yaml.Node, ...]", last if isinstance(last, tuple) else (last,))
    return max(content_end(part) for part in parts)
