"""Field paths in few characters: `user{login,id:int,type="User"},labels[]{name,color}`."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mcpbridge.results.preview_words import cut

__all__ = ["PLAINEST", "Field", "outline"]

_STEP = re.compile(r'(?:\["(?:[^"\\]|\\.)*"\]|[^.\["]|\[(?!"))+')
_SHORTER = ((True, 64, 0.65), (False, 64, 0.65), (False, 24, 0.9), (False, 0, 1.0))
"""With types or without, how long values may be that are told, and in how much of the room: what is tried, one after
the other. More than the names is told where that leaves room for what matters more."""
PLAINEST = len(_SHORTER) - 1
_Tree = dict[str, "_Tree | Field"]


class Field(Struct, frozen=True):
    """One path, for the list of fields."""

    path: str
    type: str = "str"
    """`unique`: strings, all different."""
    matter: float = 1.0
    """What is left out first, where there is no room for all, matters least."""
    always: str = ""
    """The value, as JSON, of a field that has the same one everywhere: `kind="Pod"`."""


def outline(fields: Sequence[Field], room: int, plainness: int = 0) -> str:
    """The fields, with their types if there is room; those that matter least are counted only.

    `plainness`: up to `PLAINEST`; the more, the less is told beside the names.
    """
    if not fields or room < 8:
        return ""
    tree = _tree(fields)
    for typed, longest, share in _SHORTER[plainness:]:
        text = _render(tree, typed=typed, longest=longest)
        if len(text) <= room * share:
            return text
    ranked = sorted(range(len(fields)), key=lambda place: (-fields[place].matter, place))
    low, high = 0, len(ranked)
    best = ""
    while low <= high:
        middle = (low + high) // 2
        kept = [fields[place] for place in sorted(ranked[:middle])]
        note = f",… +{len(fields) - middle} fields"
        text = _render(_tree(kept), typed=False, longest=0) + note
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


def _render(node: Mapping[str, "_Tree | Field"], *, typed: bool, longest: int) -> str:
    """`typed`: with types; `longest`: values of constant fields of so many characters at most are told."""
    parts: list[str] = []
    for name, inner in node.items():
        short = cut(name, 64)
        if isinstance(inner, Field):
            if 0 < len(inner.always) <= longest:
                short = f"{short}={inner.always}"
            elif typed and inner.type != "str":
                short = f"{short}:{inner.type}"
            parts.append(short)
        elif len(inner) == 1:
            parts.append(f"{short}.{_render(inner, typed=typed, longest=longest)}")
        else:
            parts.append(f"{short}{{{_render(inner, typed=typed, longest=longest)}}}")
    return ",".join(parts)
