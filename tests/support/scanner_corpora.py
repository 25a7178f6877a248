"""The corpora of the scanner (`tests/corpora`) as definitions, and what the scanner finds in them."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcpbridge.catalog.definitions.scanner.scan import scan
from mcpbridge.catalog.tool_names import names_of_others

CORPORA = Path(__file__).parents[1] / "corpora"

OTHERS = frozenset({"send_email", "read_file", "create_issue", "query_database", "post_message"})
"""The tools of other servers."""

HOLDS_OUT = 3
"""One text of so many in each class was not looked at while the rules were written."""


@dataclass(frozen=True)
class Case:
    """One text of a corpus."""

    group: str
    entry: Mapping[str, str]
    is_held_out: bool

    @property
    def definition(self) -> dict[str, Any]:
        """As a server lists it."""
        return definition_of(self.entry)

    @property
    def is_found(self) -> bool:
        return bool(scan(json.dumps(self.definition).encode(), OTHERS))

    def __str__(self) -> str:
        return f"{self.group}: {json.dumps(self.entry)[:160]}"


def cases(name: str) -> Iterator[Case]:
    """The texts of a corpus: `poisoned` or `benign`."""
    with (CORPORA / f"{name}_definitions.toml").open("rb") as file:
        document = tomllib.load(file)
    for group, table in document.items():
        for number, entry in enumerate(table["texts"]):
            yield Case(group, entry, number % HOLDS_OUT == HOLDS_OUT - 1)


def definition_of(entry: Mapping[str, str]) -> dict[str, Any]:
    """A harmless definition, but for what the entry says."""
    [(place, text)] = entry.items()
    if place == "instructions":
        return {"instructions": text}
    if place == "prompt":
        return {"name": "ask", "description": text, "arguments": [{"name": "a", "description": "The first number."}]}
    if place == "resource":
        return {"uri": "memo://it", "name": "it", "description": text}
    number: dict[str, Any] = {"type": "string", "description": "The first number."}
    number |= {
        "parameter": {"description": text},
        "enum": {"enum": ["one", text]},
        "default": {"default": text},
        "example": {"examples": [text]},
    }.get(place, {})
    schema = {"type": "object", "properties": {text if place == "parameter_name" else "a": number}}
    tool: dict[str, Any] = {"name": "add", "description": "Adds two numbers.", "inputSchema": schema}
    return tool | ({place: text} if place in ("name", "title", "description") else {})


@dataclass
class Tally:
    """How many of how many were found, by class."""

    of: Counter[str] = field(default_factory=Counter[str])
    found: Counter[str] = field(default_factory=Counter[str])
    unlike: list[Case] = field(default_factory=list[Case])
    """Those that were missed, or wrongly found."""

    @classmethod
    def count(cls, counted: Iterator[Case], *, is_poison: bool) -> "Tally":
        tally = cls()
        for case in counted:
            is_found = case.is_found
            tally.of[case.group] += 1
            tally.found[case.group] += is_found
            if is_found is not is_poison:
                tally.unlike.append(case)
        return tally

    @property
    def share(self) -> float:
        return sum(self.found.values()) / sum(self.of.values())

    def __str__(self) -> str:
        lines = [f"  {group:20} {self.found[group]:4} of {count}" for group, count in self.of.items()]
        return "\n".join([*lines, f"  {'all':20} {sum(self.found.values()):4} of {self.of.total()} ({self.share:.1%})"])


@dataclass
class RealTools:
    """The tools of one real catalog, and those of them that would be held at `text_trust = "low"`."""

    name: str
    count: int = 0
    flagged: list[str] = field(default_factory=list[str])
    rules: Counter[str] = field(default_factory=Counter[str])

    @classmethod
    def of_folder(cls, folder: Path) -> Iterator["RealTools"]:
        """A folder holds one a set, with `tools.jsonl`: objects with `server`, `name`, `description`, `inputSchema`."""
        for path in sorted(folder.glob("*/tools.jsonl")):
            tools = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            yield cls(path.parent.name)._read(tools)

    @classmethod
    def of_servers(cls, name: str, tools: Mapping[str, Iterable[Mapping[str, Any]]]) -> "RealTools":
        """The tools of running servers, by server, as each lists them."""
        flat = [
            {"description": "", **tool, "server": server, "id": f"{server}/{tool['name']}"}
            for server, own in tools.items()
            for tool in own
        ]
        return cls(name)._read(flat)

    def _read(self, tools: list[dict[str, Any]]) -> "RealTools":
        names: dict[str, set[str]] = {}
        for tool in tools:
            names.setdefault(tool["server"], set()).add(tool["name"])
        others = names_of_others(names)
        for tool in tools:
            definition = {key: tool[key] for key in ("name", "description", "inputSchema")}
            found = scan(json.dumps(definition).encode(), others[tool["server"]])
            self.count += 1
            if found:
                self.flagged.append(f"{tool['id']}: {', '.join(f'{one.rule} ({one.text})' for one in found)}")
                self.rules.update({one.rule for one in found})
        return self

    def __str__(self) -> str:
        by_rule = ", ".join(f"{rule} {count}" for rule, count in self.rules.most_common())
        return (
            f"  {self.name:20} {len(self.flagged):4} of {self.count} ({len(self.flagged) / self.count:.2%})  {by_rule}"
        )
