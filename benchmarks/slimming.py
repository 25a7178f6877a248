"""Count what tools cost a model's context at each level: python -m benchmarks.slimming [PATH…] [--server NAME=COMMAND]

Paths are files of tools, one JSON object a line (`name`, `description`, `inputSchema`; other members are left out).
Besides, the servers of the example configuration are asked for their tools, where they are installed (`make example`).
Counted is what clients show models, as compact JSON, with the vocabulary o200k.
"""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from mcpbridge.catalog.signatures.signature import call_line
from mcpbridge.catalog.slim.levels import LEVELS, Level
from mcpbridge.catalog.slim.slim import slimmed, visible
from mcpbridge.results.token_count import counter

__all__ = ["Figures", "figures", "main", "read"]

_ROOT = Path(__file__).resolve().parent.parent
_NODE = _ROOT / "examples" / "node_modules" / ".bin"
_PYTHON = _ROOT / ".venv-servers" / "bin"
_EXAMPLE: Mapping[str, Sequence[str]] = {
    "git": (str(_PYTHON / "mcp-server-git"),),
    "time": (str(_PYTHON / "mcp-server-time"), "--local-timezone", "Etc/UTC"),
    "filesystem": (str(_NODE / "mcp-server-filesystem"), str(_ROOT / "examples")),
    "memory": (str(_NODE / "mcp-server-memory"),),
    "everything": (str(_NODE / "mcp-server-everything"),),
}
_MEMBERS = ("name", "description", "inputSchema", "outputSchema", "annotations", "title", "icons", "_meta", "execution")
_ANSWER_IN = 60
"""Seconds that a server may take to start and list."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One catalog."""

    name: str
    tools: int
    tokens: Mapping[Level, int]
    seconds: Mapping[Level, float]
    """CPU time of making the forms, the fastest of some rounds."""

    def saved(self, level: Level) -> float:
        """Of what is sent, the share that is not listed."""
        return 1 - self.tokens[level] / self.tokens["off"] if self.tokens["off"] else 0.0


def figures(name: str, definitions: Sequence[bytes], rounds: int = 3) -> Figures:
    """Tokens and time of each level. Raises ModuleNotFoundError, ConfigError without the vocabulary."""
    count = counter("o200k")
    tokens: dict[Level, int] = {}
    seconds: dict[Level, float] = {}
    for level in LEVELS:
        best, listed = float("inf"), list(definitions)
        for _ in range(rounds):
            began = time.process_time()
            listed = [slimmed(definition, level, call_line) for definition in definitions]
            best = min(best, time.process_time() - began)
        tokens[level], seconds[level] = sum(count(visible(one)) for one in listed), best
    return Figures(name, len(definitions), tokens, seconds)


def read(path: Path) -> list[bytes]:
    """The tools in a file."""
    rows = map(json.loads, filter(None, path.read_text("utf-8").splitlines()))
    return [_dumped({member: row[member] for member in _MEMBERS if member in row}) for row in rows]


async def listed_by(command: Sequence[str]) -> list[bytes]:
    """The tools of a server on stdio. Raises OSError, or what the server's failure looks like to the SDK."""
    from mcp import Client, StdioServerParameters

    parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ))
    found: list[bytes] = []
    with anyio.fail_after(_ANSWER_IN):
        async with Client(parameters) as client:
            cursor: str | None = None
            while True:
                page = await client.list_tools(cursor=cursor)
                found += [
                    _dumped(tool.model_dump(mode="json", by_alias=True, exclude_unset=True)) for tool in page.tools
                ]
                cursor = page.next_cursor
                if not cursor:
                    return found


def _dumped(tool: dict[str, Any]) -> bytes:
    return json.dumps(tool, ensure_ascii=False, separators=(",", ":")).encode()


def _total(rows: Sequence[Figures]) -> Figures:
    return Figures(
        "all",
        sum(row.tools for row in rows),
        {level: sum(row.tokens[level] for row in rows) for level in LEVELS},
        {level: sum(row.seconds[level] for row in rows) for level in LEVELS},
    )


def _table(rows: Sequence[Figures]) -> str:
    levels = LEVELS[1:]
    lines = [
        f"| catalog | tools | sent | {' | '.join(levels)} | {levels[0]}, ms | {levels[1]}, ms |",
        f"|:---|---:|---:|{'---:|' * len(levels)}---:|---:|",
    ]
    for row in rows:
        cells = [row.name, f"{row.tools:,}", f"{row.tokens['off']:,}"]
        cells += [f"{row.tokens[level]:,} (-{row.saved(level):.1%})" for level in levels]
        cells += [f"{row.seconds[level] * 1000:,.0f}" for level in levels[:2]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _as_json(rows: Sequence[Figures]) -> list[dict[str, Any]]:
    return [{"name": row.name, "tools": row.tools, "tokens": row.tokens, "seconds": row.seconds} for row in rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table: files first, each a catalog of its own, then servers and their sum."""
    options = _parser().parse_args(arguments)
    files = [figures("/".join(path.parts[-2:]), read(path)) for path in options.paths]
    asked = {} if options.no_example else dict(_EXAMPLE)
    for given in options.server:
        name, _, command = given.partition("=")
        asked[name] = shlex.split(command)
    servers: list[Figures] = []
    left_out: list[str] = []
    for name, command in asked.items():
        try:
            servers.append(figures(name, anyio.run(listed_by, command)))
        except Exception as error:
            left_out.append(f"{name}: {error or type(error).__name__}")
    rows = [*files, *servers, *([_total(servers)] if len(servers) > 1 else [])]
    if options.json:
        print(json.dumps({"tokenizer": "o200k", "rows": _as_json(rows), "left_out": left_out}, indent=1))
    else:
        print("\n".join([_table(rows), *(f"Left out: {reason}" for reason in left_out)]))
    return int(not rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slimming", description="Count what tools cost a model's context at each level."
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="tools.jsonl; a catalog each")
    about = "another server on stdio; many"
    parser.add_argument("--server", action="append", default=[], metavar="NAME=COMMAND", help=about)
    parser.add_argument("--no-example", action="store_true", help="leave the servers of the example out")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
