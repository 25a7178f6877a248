"""What `describe_tools` answers: all that there is to know for calling some tools. Pure.

A signature in full takes fewer tokens than a schema; where it cannot say all, the exact schema stands below it.
What does not fit is left out, the exact schemas first, and named.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from mcpbridge.conduct import Hints
from mcpbridge.results.frame import defused
from mcpbridge.results.tokens import Counter, estimated_tokens_of
from mcpbridge.routing.signatures import Signature, signature
from mcpbridge.routing.told import Told

__all__ = ["DESCRIBED_TOKENS", "described"]

DESCRIBED_TOKENS = 4000
"""Tokens of a description of tools, about."""

_LONGEST_NAME = 100
_NAMED = 8
"""Unknown names that are told one by one."""


def described(
    tools: Sequence[Told],
    unknown: Mapping[str, Sequence[str]],
    *,
    tokens: int = DESCRIBED_TOKENS,
    count: Counter = estimated_tokens_of,
    stub_of: Callable[[Told], str] | None = None,
) -> str:
    """All of these tools, and of names that are unknown those that may have been meant.

    `stub_of`: how programs call a tool, in place of its signature; None: there are no programs.
    """
    lines = [_unknown(name, guesses) for name, guesses in list(unknown.items())[:_NAMED]]
    if len(unknown) > _NAMED:
        lines.append(f"{len(unknown) - _NAMED} more names are unknown.")
    parts = [_Part(told, stub_of=stub_of) for told in tools]
    room = tokens - count("\n".join(lines))
    missing = _fit(parts, room, count)
    return defused("\n\n".join([*(part.text for part in parts if part.text), *lines, *missing]))


class _Part(Struct):
    """One tool."""

    told: Told
    text: str = ""
    stub_of: Callable[[Told], str] | None = None
    _known: Signature | None = None

    def with_schema(self) -> str:
        """All of it."""
        text, schema = self.plain(), self.told.text.schema
        if self._signature().is_whole or schema is None:
            return text
        return f"{text}\n  exact inputSchema: {msgspec.json.encode(schema).decode()}"

    def plain(self) -> str:
        """Without the exact schema."""
        notes = _notes(self.told.tool.hints, self.told.tool.task_support)
        text = self.stub_of(self.told) if self.stub_of is not None else self._signature().text
        return f"{text}\n  [{notes}]" if notes else text

    def _signature(self) -> Signature:
        if self._known is None:
            told = self.told
            self._known = signature(told.tool.wire, told.description, told.text.schema, "full", output=told.output)
        return self._known

    def brief(self) -> str:
        told = self.told
        return signature(told.tool.wire, told.description, told.text.schema).text


def _fit(parts: Sequence[_Part], room: int, count: Counter) -> list[str]:
    """Choose how much of each is told. Returns what is said of what is left out."""
    for part in parts:
        part.text = part.with_schema()
    sizes = [count(part.text) + 1 for part in parts]
    without, shortened = list[str](), list[str]()
    steps: list[tuple[Callable[[_Part], str], list[str]]] = [(_Part.plain, without), (_Part.brief, shortened)]
    for shorter, gone in steps:
        for at in sorted(range(len(parts)), key=lambda at: -sizes[at]):
            if sum(sizes) <= room:
                break
            text = shorter(parts[at])
            if text != parts[at].text:
                parts[at].text, sizes[at] = text, count(text) + 1
                gone.append(parts[at].told.tool.wire)
    dropped: list[str] = []
    for at in reversed(range(len(parts))):
        if sum(sizes) > room and len(dropped) + 1 < len(parts):
            parts[at].text, sizes[at] = "", 0
            dropped.insert(0, parts[at].told.tool.wire)
    shortened = [name for name in shortened if name not in dropped]
    without = [name for name in without if name not in shortened and name not in dropped]
    said = (("no room for the exact schema of", without), ("shortened", shortened), ("left out", dropped))
    told = [f"{what}: {', '.join(sorted(names))}" for what, names in said if names]
    return [f"{'; '.join(told)}. Ask for fewer at a time."] if told else []


def _notes(hints: Hints, task_support: str) -> str:
    said = {
        "read-only": hints.read_only is True,
        "not read-only": hints.read_only is False,
        "may destroy": hints.destructive is True and hints.read_only is not True,
        "destroys nothing": hints.destructive is False and hints.read_only is not True,
        "same effect if repeated": hints.idempotent is True and hints.read_only is not True,
        "runs long, as a task": task_support == "required",
    }
    return ", ".join(note for note, is_said in said.items() if is_said)


def _unknown(name: str, guesses: Sequence[str]) -> str:
    shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    shown = " ".join("".join(char if char.isprintable() else " " for char in shown).split())
    meant = f"; did you mean {', '.join(guesses)}?" if guesses else ". find_tools finds tools by what they do."
    return f"Unknown tool: {shown}{meant}"
