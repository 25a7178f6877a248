"""What previews say of trees: how many nodes and leaves, how deep, the first level with what is below, an outline."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import Struct

from mcpbridge.results.preview_facts import Line
from mcpbridge.results.preview_outline import Field
from mcpbridge.results.preview_table import Section, table_section
from mcpbridge.results.preview_words import cut, plural, said

__all__ = ["tree_section"]

_MOST_NODES = 200_000
_NAMED = ("name", "title", "label", "path", "id", "key", "text", "type")
_LONGEST_OUTLINE = 6000
_SHORT_OUTLINE = 900
"""Characters; a tree that can be told in so many is told whole, if there is room."""


class _Node(Struct):
    value: dict[str, Any]
    depth: int
    above: int
    """The place of the node above; -1 at the top."""
    below: int = 0
    """Leaves under it."""
    leaf: bool = True


def tree_section(title: str, roots: Sequence[Any], branch: str) -> Section:
    """A tree whose nodes hold what is below them in the member `branch`. All nodes together are told as a table."""
    nodes, more = _nodes(roots, branch)
    section = table_section(title, [node.value for node in nodes], leave_out=branch)
    leaves = sum(node.leaf for node in nodes)
    counts = Line(f"tree by {branch}[]")
    deepest = 1 + max(node.depth for node in nodes)
    counts.add(
        f"{plural(len(nodes), 'node')}{' (and more, not looked at)' if more else ''}, {leaves} without {branch}, "
        f"{len(nodes) - leaves} with, {plural(deepest, 'level')}; top level: {plural(len(roots), 'entry')}".replace(
            "entrys", "entries"
        ),
        40.0,
    )
    name = _name_of(nodes)
    lines = [counts]
    if name:
        _count_leaves(nodes)
        tops = [node for node in nodes if not node.depth]
        first = Line("top level in order")
        first.add(", ".join(_top(node, name) for node in tops[:40]) + (", …" if len(tops) > 40 else ""), 12.0)
        lines.append(first)
        if len(tops) == 1:
            second = [node for node in nodes if node.depth == 1]
            below = Line(f"below {said(tops[0].value.get(name))}")
            below.add(", ".join(_top(node, name) for node in second[:40]) + (", …" if len(second) > 40 else ""), 10.0)
            lines.append(below)
    section.lines = [*lines, *section.lines]
    if name:
        section.rows, section.values = None, ()
        outline = list(_outline(nodes, name))
        if sum(len(line.title) + len(line.facts[0].text) for line in outline) <= _SHORT_OUTLINE:
            for line in outline:
                line.facts[0].worth *= 4
        section.lines.extend(outline)
    section.fields.append(Field(f"{branch}[]", "list", 2.0))
    return section


def _nodes(roots: Sequence[Any], branch: str) -> tuple[list[_Node], bool]:
    """All nodes, each before what is below it, and whether there are more than are looked at."""
    nodes: list[_Node] = []
    waiting: list[tuple[Any, int, int]] = [(root, 0, -1) for root in reversed(roots)]
    while waiting:
        if len(nodes) >= _MOST_NODES:
            return nodes, True
        value, depth, above = waiting.pop()
        if not isinstance(value, dict):
            continue
        node = _Node(cast("dict[str, Any]", value), depth, above)
        below = node.value.get(branch)
        if isinstance(below, list):
            inner = cast("list[Any]", below)
            node.leaf = not inner
            place = len(nodes)
            waiting.extend((child, depth + 1, place) for child in reversed(inner))
        nodes.append(node)
    return nodes, False


def _name_of(nodes: Sequence[_Node]) -> str:
    """The member that nodes are called by."""
    first = nodes[0].value
    for name in _NAMED:
        if isinstance(first.get(name), str):
            return name
    return next((name for name, value in first.items() if isinstance(value, str)), "")


def _count_leaves(nodes: Sequence[_Node]) -> None:
    for node in reversed(nodes):
        if node.above >= 0:
            nodes[node.above].below += node.below + node.leaf


def _top(node: _Node, name: str) -> str:
    called = said(node.value.get(name, "?"), 40)
    return called if node.leaf else f"{called} ({node.below})"


def _outline(nodes: Sequence[_Node], name: str) -> Iterator[Line]:
    """The whole tree in short, as much of it as there is room for: `src/{a.py,lib/{b.py}}`, a line for each top."""
    line, written = Line("leaves below"), 0
    parts: list[str] = []
    for node in nodes:
        called = cut(str(node.value.get(name, "?")), 60)
        if not node.depth or (len(parts) > 24 and not node.leaf):
            if parts:
                yield _closed(line, parts)
            line, parts = Line(_path(nodes, node, name)), []
            written += len(called)
        else:
            parts.append(called if node.leaf else called + "/")
        written += len(called) + 2
        if written > _LONGEST_OUTLINE:
            break
    if parts:
        yield _closed(line, parts)


def _closed(line: Line, parts: Sequence[str]) -> Line:
    line.add(", ".join(parts), 0.12 * len(parts))
    return line


def _path(nodes: Sequence[_Node], node: _Node, name: str) -> str:
    steps: list[str] = []
    while True:
        steps.append(cut(str(node.value.get(name, "?")), 60))
        if node.above < 0 or len(steps) > 40:
            return "/".join(reversed(steps)) + "/"
        node = nodes[node.above]
