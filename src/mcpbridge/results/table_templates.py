"""Columns of strings that can be told from other columns: `https://host/{owner}/{name}`.

A template is a list of parts: strings, sources (columns that have a value in every row where the string is one), and
at most one `HOLE`, which is what remains for the cell.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from mcpbridge.results.table_notation import MISSING

__all__ = ["HOLE", "Part", "derive", "fill", "read_template", "template_text"]

HOLE = -1
Part = str | int
"""A literal, the number of a source, or HOLE."""

_PARTS = 12
"""Of a template; what has more is told by its cell."""
_PLACES = 8
"""Where a source is looked for in the first text."""


def derive(texts: Sequence[str], sources: Sequence[tuple[int, Sequence[str]]]) -> list[Part] | None:
    """A template of these texts, or None if none of it would be shared. `sources`: a number and a text per text."""
    parts: list[Part] = []
    at = [0] * len(texts)
    while len(parts) < _PARTS and (found := _next_source(texts, at, sources)):
        skip, number, values = found
        parts += [texts[0][at[0] : at[0] + skip], number] if skip else [number]
        at = [place + skip + len(value) for place, value in zip(at, values, strict=True)]
    rests = [text[place:] for text, place in zip(texts, at, strict=True)]
    if all(rest == rests[0] for rest in rests):
        return [*parts, rests[0]] if rests[0] else parts
    prefix = _whole_words(_shared_start(rests), rests[0])
    cut = [rest[len(prefix) :] for rest in rests]
    suffix = _whole_words(_shared_start([rest[::-1] for rest in cut]), cut[0][::-1])[::-1]
    if not parts and not prefix and not suffix:
        return None
    return [*parts, *([prefix] if prefix else []), HOLE, *([suffix] if suffix else [])]


def _next_source(
    texts: Sequence[str], at: list[int], sources: Sequence[tuple[int, Sequence[str]]]
) -> tuple[int, int, Sequence[str]] | None:
    """The nearest source in what remains of all texts, after as much of the same text; of equally near the longest."""
    best: tuple[int, int, int, Sequence[str]] | None = None
    first, begin = texts[0], at[0]
    second = texts[-1][at[-1] :]
    shared = len(_shared_start((first[begin:], second)))
    for number, values in sources:
        place = first.find(values[0], begin, begin + shared + len(values[0]))
        for _ in range(_PLACES):
            if place < 0:
                break
            skip = place - begin
            rank = (skip, -len(values[0]))
            if best and rank >= best[:2]:
                break
            if second.startswith(values[-1], skip) and _everywhere(texts, at, values, first[begin:place]):
                best = (*rank, number, values)
                break
            place = first.find(values[0], place + 1, begin + shared + len(values[0]))
    return (best[0], best[2], best[3]) if best else None


def _everywhere(texts: Sequence[str], at: list[int], values: Sequence[str], before: str) -> bool:
    length = len(before)
    for text, place, value in zip(texts, at, values, strict=True):
        if not (text.startswith(before, place) and text.startswith(value, place + length)):
            return False
    return True


def _shared_start(texts: Sequence[str]) -> str:
    """The longest beginning that all have."""
    low, high = min(texts), max(texts)
    end = 0
    for a, b in zip(low, high, strict=False):
        if a != b:
            break
        end += 1
    return low[:end]


def _whole_words(shared: str, example: str) -> str:
    """As much of a shared beginning as does not cut a word or a number of the example in two."""
    end = len(shared)
    while 0 < end < len(example) and _kind(example[end - 1]) and _kind(example[end - 1]) == _kind(example[end]):
        end -= 1
    return shared[:end]


def _kind(char: str) -> int:
    return 1 if char.isdigit() else 2 if char.isalpha() else 0


def fill(parts: Sequence[Part], values: Sequence[Any], cell: Any) -> Any:
    """The value of a template in a row, given those of its sources, in order, and its cell. Absence is handed on."""
    if HOLE in parts and not isinstance(cell, str):
        return cell
    texts = iter(values)
    out: list[str] = []
    for part in parts:
        if isinstance(part, str):
            out.append(part)
        elif part == HOLE:
            out.append(cell)
        else:
            value = next(texts)
            if value is MISSING or value is None:
                return value
            out.append(str(value))
    return "".join(out)


def template_text(parts: Sequence[Part], names: Sequence[str]) -> str:
    """As it is written: literals with their braces doubled, sources by name in braces, `{}` for the hole."""
    return "".join(
        part.replace("{", "{{").replace("}", "}}")
        if isinstance(part, str)
        else "{}"
        if part == HOLE
        else f"{{{names[part]}}}"
        for part in parts
    )


def read_template(text: str) -> Iterator[tuple[bool, str]]:
    """The parts again: (False, literal) or (True, name of a source, empty for the hole)."""
    at, literal = 0, ""
    while at < len(text):
        char = text[at]
        if char in "{}" and text[at + 1 : at + 2] == char:
            literal, at = literal + char, at + 2
        elif char == "{":
            end = text.index("}", at)
            if literal:
                yield False, literal
            yield True, text[at + 1 : end]
            literal, at = "", end + 1
        else:
            literal, at = literal + char, at + 1
    if literal:
        yield False, literal
