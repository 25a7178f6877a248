"""Field paths in few characters: `user{login,id:int},labels[]{name,color}`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcpbridge.results.preview_words import cut

__all__ = ["Field", "outline"]

_STEP = re.compile(r'(?:\["(?:[^"\\]|\\.)*"\]|[^.\["]|\[(?!"))+')
_Tree = dict[str, "_Tree | Field"]


@dataclass(frozen=True, slots=True)
class Field:
    """One path, for the list of fields."""

    path: str
    type: str = "str"
    matter: float = 1.0
    """What is left out first, where there is no room for all, matters least."""


def outline(fields: Sequence[Field], room: int) -> str:
    """The fields, with their types if there is room; those that matter least are counted only."""
    if not fields or room < 8:
        return ""
    text = _render(_tree(fields), typed=True)
    if len(text) <= room:
        return text
    text = _render(_tree(fields), typed=False)
    if len(text) <= room:
        return text
    ranked = sorted(range(len(fields)), key=lambda place: (-fields[place].matter, place))
    low, high = 0, len(ranked)
    best = ""
    while low <= high:
        middle = (low + high) // 2
        kept = [fields[place] for place in sorted(ranked[:middle])]
        note = f",… +{len(fields) - middle} fields"
        text = _render(_tree(kept), typed=False) + note
        if len(text) <= room:
            best, low = text, middle + 1
        else:
            high = middle - 1
    return best


def _tree(fields: Sequence[Field]) -> _Tree:
    root: _Tree = {}
    for field in fields:
        steps = _STEP.findall(field.path) or [field.path]
        node = root
        for step in steps[:-1]:
            inner = node.get(step)
            if not isinstance(inner, dict):
                # A field that is an object in some rows and a plain value in others: the members say more.
                inner = {}
                node[step] = inner
            node = inner
        if not isinstance(node.get(steps[-1]), dict):
            node[steps[-1]] = field
    return root


def _render(node: Mapping[str, "_Tree | Field"], *, typed: bool) -> str:
    parts: list[str] = []
    for name, inner in node.items():
        short = cut(name, 64)
        if isinstance(inner, Field):
            parts.append(f"{short}:{inner.type}" if typed and inner.type != "str" else short)
        elif len(inner) == 1:
            parts.append(f"{short}.{_render(inner, typed=typed)}")
        else:
            parts.append(f"{short}{{{_render(inner, typed=typed)}}}")
    return ",".join(parts)
