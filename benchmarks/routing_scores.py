"""Score how tools are found: python -m benchmarks.routing_scores --data FOLDER [--speed] [--no-peers]

The bridge's ranker (`mcpbridge rank`) beside SQLite FTS5 (porter stems over server, name and description) and FastMCP's
BM25 search transform (names with their server's before them). Each is a program that reads and writes JSON lines.

`FOLDER` (default: `$MCPBRIDGE_ROUTING_DATA`) holds a folder a set, with `tools.jsonl`, `queries.jsonl` and, if there is
one, `servers.jsonl`. A query has `text`, `kind` and `gold`: groups of tools of which any one serves the same need.
Recall at k is the share of groups of which one is among the first k. `--speed` gives CPU time and memory at 3,000 and
50,000 tools, which are those of the first set again and again, under other names and with other words.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.readings import cpu_seconds, memory_mib
from benchmarks.subjects import FastMcp, Unsupported

__all__ = ["Query", "Searcher", "main", "recall", "scores", "served", "varied"]

_ROOT = Path(__file__).resolve().parent.parent
_DEPTHS = (1, 5, 8)
_SIZES = (3_000, 50_000)
_TIMED = 150
"""Queries whose time is taken."""

_LOOP = """\
import json, re, sys

def rows(path):
    return [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()] if path else []

def serve(build):
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["op"] == "exit":
            break
        if asked["op"] == "load":
            titles = {row["server"]: row.get("title") or "" for row in rows(asked["servers_path"])}
            find = build(rows(asked["tools_path"]), titles)
            answer = {"ok": True}
        else:
            answer = {"id": asked["id"], "ids": find(asked["query"], asked["k"])}
        print(json.dumps(answer), flush=True)
"""

_FTS5 = """
import sqlite3

def build(tools, titles):
    db = sqlite3.connect(":memory:")
    db.execute("create virtual table tools using fts5(id unindexed, name, description, tokenize='porter unicode61')")
    db.executemany("insert into tools values (?, ?, ?)", [
        (t["id"], " ".join((t["server"], titles.get(t["server"], ""), t["name"])).replace("_", " "), t["description"])
        for t in tools
    ])
    def find(query, k):
        words = list(dict.fromkeys(re.findall(r"\\w+", query)))[:200]
        asked = " OR ".join(f'"{word}"' for word in words)
        ranked = "select id from tools where tools match ? order by rank limit ?"
        return [row[0] for row in db.execute(ranked, (asked, k))] if words else []
    return find

serve(build)
"""

_BM25 = """
from fastmcp.server.transforms.search.base import _extract_searchable_text
from fastmcp.server.transforms.search.bm25 import _BM25Index
from fastmcp.tools.base import Tool

def build(tools, titles):
    made = [
        Tool(name=f"{t['server']}_{t['name']}", description=t["description"], parameters=t["inputSchema"] or {})
        for t in tools
    ]
    def text(tool):
        try:
            return _extract_searchable_text(tool)
        except Exception:  # a malformed schema
            return f"{tool.name} {tool.description}"
    index = _BM25Index()
    index.build([text(tool) for tool in made])
    ids = [t["id"] for t in tools]
    return lambda query, k: [ids[at] for at in index.query(query, k)]

serve(build)
"""


@dataclass(frozen=True, slots=True)
class Query:
    """A request, and the groups of tools that serve its needs."""

    text: str
    kind: str
    gold: Sequence[frozenset[str]]


@dataclass(frozen=True, slots=True)
class Searcher:
    """A program that finds tools."""

    name: str
    command: tuple[str, ...]


class Running:
    """One of them at work on one catalog."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Raises Unsupported where the program ends or reports an error."""
        assert self.process.stdin
        assert self.process.stdout
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Unsupported("ended") from None
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "ended"}
        if "error" in answer:
            raise Unsupported(answer["error"])
        return answer

    def find(self, query: str, k: int) -> list[str]:
        """The tools for a query, best first."""
        return self.ask({"op": "rank", "id": "q", "query": query, "k": k})["ids"]


@contextmanager
def served(searcher: Searcher, folder: Path) -> Iterator[tuple[Running, float, float]]:
    """A searcher over the catalog in a folder, the CPU seconds that it took to load it, and the MiB that it grew by."""
    process = subprocess.Popen(
        searcher.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        running = Running(process)
        servers = folder / "servers.jsonl"
        load = {"op": "load", "servers_path": str(servers) if servers.exists() else None}
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as empty:  # so that what is imported counts as before
            running.ask({"op": "load", "tools_path": empty.name, "servers_path": None})
            running.find("warm", 1)
        cpu, memory = cpu_seconds(process.pid), memory_mib(process.pid)["rss"]
        running.ask(load | {"tools_path": str(folder / "tools.jsonl")})
        yield running, cpu_seconds(process.pid) - cpu, memory_mib(process.pid)["rss"] - memory
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


def recall(found: Sequence[str], gold: Sequence[frozenset[str]], k: int) -> float:
    """The share of the groups of which one is among the first `k`."""
    first = set(found[:k])
    return sum(not group.isdisjoint(first) for group in gold) / len(gold)


def scores(running: Running, queries: Sequence[Query]) -> dict[str, list[float]]:
    """By kind of query, and `all`: recall at 1, 5 and 8."""
    rows: dict[str, list[list[float]]] = {}
    for query in queries:
        found = running.find(query.text, max(_DEPTHS))
        row = [recall(found, query.gold, k) for k in _DEPTHS]
        for kind in ("all", query.kind):
            rows.setdefault(kind, []).append(row)
    return {kind: [sum(column) / len(some) for column in zip(*some, strict=True)] for kind, some in rows.items()}


def queries_of(folder: Path) -> list[Query]:
    """The queries of a set."""
    lines = (folder / "queries.jsonl").read_text("utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    return [Query(row["text"], row["kind"], [frozenset(group) for group in row["gold"]]) for row in rows]


def varied(folder: Path, size: int, to: Path) -> None:
    """Write a catalog of so many tools: those of a set again and again, each time other servers with other words."""
    for name, count in (("tools", size), ("servers", 0)):
        source = folder / f"{name}.jsonl"
        if not source.exists():
            continue
        rows = [json.loads(line) for line in source.read_text("utf-8").split("\n") if line]
        with (to / source.name).open("w") as file:
            for number in range(count or len(rows) * (size // 1000)):
                again, row = number // len(rows), dict(rows[number % len(rows)])
                if again:
                    row["server"] = f"{row['server']}-{again}"
                    row["description"] = f"{row.get('description') or ''} Variant w{again} of x{number % 977}."
                    row["id"] = f"{row.get('id', '')}-{again}"
                file.write(json.dumps(row) + "\n")


def _searchers(bridge: str, work: Path, *, peers: bool) -> Iterator[Searcher]:
    yield Searcher("mcpbridge", (*shlex.split(bridge), "rank"))
    if peers:
        yield Searcher("SQLite FTS5", (sys.executable, "-c", _LOOP + _FTS5))
        peer = FastMcp(work / "environments")
        try:
            peer.install()
        except Unsupported as error:
            print(f"Left out: FastMCP: {error}")
            return
        python = str(work / "environments" / peer.package / "bin" / "python")
        yield Searcher(f"FastMCP {peer.pinned} BM25", (python, "-c", _LOOP + _BM25))


def _speed(searchers: Sequence[Searcher], folder: Path) -> list[str]:
    lines = ["", "| tools | ranker | CPU ms a query | CPU s to load | MiB added |", "|---:|:---|---:|---:|---:|"]
    texts = [query.text for query in queries_of(folder)][:_TIMED]
    for size in _SIZES:
        with tempfile.TemporaryDirectory() as made:
            varied(folder, size, Path(made))
            for searcher in searchers:
                with served(searcher, Path(made)) as (running, seconds, memory):
                    rounds: list[float] = []
                    for _ in range(3):
                        before = cpu_seconds(running.process.pid)
                        for text in texts:
                            running.find(text, 8)
                        rounds.append((cpu_seconds(running.process.pid) - before) * 1000 / len(texts))
                    cells = (f"{size:,}", searcher.name, f"{min(rounds):.2f}", f"{seconds:.2f}", f"{memory:.0f}")
                    lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when the bridge could not be scored; 2 where there is no data."""
    options = _parser().parse_args(arguments)
    data = options.data or os.environ.get("MCPBRIDGE_ROUTING_DATA")
    folders = sorted(path.parent for path in Path(data).glob("*/queries.jsonl")) if data else []
    if not folders:
        print("no sets: name their folder by --data or $MCPBRIDGE_ROUTING_DATA", file=sys.stderr)
        return 2
    searchers = list(_searchers(options.bridge, options.work, peers=not options.no_peers))
    lines = ["| set | queries | ranker | R@1 | R@5 | R@8 |", "|:---|:---|:---|---:|---:|---:|"]
    try:
        for folder in folders:
            queries = queries_of(folder)
            for searcher in searchers:
                with served(searcher, folder) as (running, _, _):
                    for kind, row in sorted(scores(running, queries).items()):
                        cells = (folder.name, kind, searcher.name, *(f"{100 * value:.1f}" for value in row))
                        lines.append(f"| {' | '.join(cells)} |")
        if options.speed:
            lines += _speed(searchers, max(folders, key=lambda at: (at / "servers.jsonl").exists()))
    except Unsupported as error:
        print(f"{searcher.name}: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.routing_scores", description="Score how tools are found, beside other ways."
    )
    parser.add_argument("--data", metavar="FOLDER", help="the sets (default: $MCPBRIDGE_ROUTING_DATA)")
    parser.add_argument("--speed", action="store_true", help="CPU time and memory as well")
    parser.add_argument("--no-peers", action="store_true", help="leave the programs of others out")
    command = f"{shlex.quote(sys.executable)} -m mcpbridge"
    parser.add_argument("--bridge", default=command, metavar="COMMAND", help="the bridge's command, without `rank`")
    about = "where peers are installed (default: .bench)"
    parser.add_argument("--work", type=Path, default=_ROOT / ".bench", metavar="FOLDER", help=about)
    return parser


if __name__ == "__main__":
    sys.exit(main())
