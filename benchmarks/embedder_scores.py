"""Score tool search with and without an embedder: python -m benchmarks.embedder_scores FOLDER… [--url URL --model NAME]

Each folder has `tools.jsonl` and `queries.jsonl`, and may have `servers.jsonl`, as the scorer of rankers reads them.
Without `--url` it is the local model of the extra `embed`, or that in the directory `--model`.
"""

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpbridge.base.background_tasks import OwnedTasks
from mcpbridge.catalog.search.embeddings.embedder import Embedder, VectorCache, texts_of_query
from mcpbridge.catalog.search.embeddings.http import HttpEmbedder
from mcpbridge.catalog.search.embeddings.local import LocalEmbedder
from mcpbridge.catalog.search.embeddings.ranker import EmbeddedRankers
from mcpbridge.catalog.search.embeddings.vectors import Vectors
from mcpbridge.catalog.search.index import CatalogRankers
from mcpbridge.catalog.search.ranker import Ranker, ServerText, ToolText
from mcpbridge.catalog.settings import EmbedderSettings

__all__ = ["main"]

_KS = (1, 5, 8)
_DEPTH = 50
_WAIT = 60.0
"""Seconds for a query's vector: here answers matter, not time."""


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    gold: list[list[str]]
    """Groups of tools that serve one need equally well."""
    kind: str


@dataclass(frozen=True, slots=True)
class Score:
    recall: tuple[float, ...]
    """At each of `_KS`."""
    ndcg: float
    seconds: float
    """CPU time of a query, its vectors included."""


def servers_of(folder: Path) -> list[tuple[ServerText, list[ToolText]]]:
    """The catalog of a folder; tools without a server are those of one without a name."""
    said = {row["server"]: row for row in _rows(folder / "servers.jsonl")}
    parts: dict[str, list[ToolText]] = {}
    for row in _rows(folder / "tools.jsonl"):
        schema = row.get("inputSchema")
        text = ToolText(
            row["id"],
            row["server"],
            row["name"],
            description=row.get("description") or "",
            schema=schema if isinstance(schema, dict) else None,
        )
        parts.setdefault(row["server"], []).append(text)
    return [
        (ServerText(name, said.get(name, {}).get("title") or "", said.get(name, {}).get("description") or ""), tools)
        for name, tools in parts.items()
    ]


def queries_of(folder: Path) -> list[Query]:
    return [Query(row["text"], row["gold"], row["kind"]) for row in _rows(folder / "queries.jsonl")]


def scored(answers: Sequence[tuple[Query, Sequence[str]]], seconds: float) -> Score:
    """What the answers to queries are worth."""
    recall = [0.0] * len(_KS)
    ndcg = 0.0
    for query, ids in answers:
        places = [next((place for place, one in enumerate(ids) if one in group), None) for group in query.gold]
        for number, k in enumerate(_KS):
            recall[number] += sum(place is not None and place < k for place in places) / len(places)
        gain = sum(1 / math.log2(place + 2) for place in places if place is not None and place < 10)
        ndcg += gain / sum(1 / math.log2(place + 2) for place in range(min(10, len(places))))
    count = len(answers) or 1
    return Score(tuple(sum_ / count for sum_ in recall), ndcg / count, seconds / count)


async def asked(ranker: Ranker, queries: Sequence[Query], vectors: Vectors | None) -> Score:
    """A ranker's answers to all queries."""
    answers: list[tuple[Query, list[str]]] = []
    began = time.process_time()
    for query in queries:
        if vectors is not None and not await vectors.prepare(texts_of_query(query.text)):
            print(f"no vector for {query.text[:60]!r}", file=sys.stderr)
        answers.append((query, [hit.id for hit in ranker.rank(query.text, _DEPTH)]))
    return scored(answers, time.process_time() - began)


async def score_folder(folder: Path, embedder: Embedder, weights: Sequence[float], cache: Path) -> None:
    """One line for the words alone, and one for each weight of the embedder."""
    servers, queries = servers_of(folder), queries_of(folder)
    tasks = OwnedTasks()
    async with tasks.running():
        vectors = Vectors(embedder, VectorCache(cache), tasks, timeout=_WAIT)
        began = time.process_time()
        EmbeddedRankers(CatalogRankers, vectors, weights[0]).of(servers)
        await asyncio.sleep(0)  # what it wants is told to the loop
        await vectors.settled()
        seconds = time.process_time() - began
        tools = sum(len(some) for _, some in servers)
        print(f"{folder.name}: {tools} tools, {len(queries)} queries; vectors took {seconds:.1f} s of CPU time")
        _print("alone", await asked(CatalogRankers().of(servers), queries, None))
        for weight in weights:
            ranker = EmbeddedRankers(CatalogRankers, vectors, weight).of(servers)
            await asyncio.sleep(0)
            _print(f"weight {weight:g}", await asked(ranker, queries, vectors))
        await vectors.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0."""
    options = _parser().parse_args(arguments)
    for folder in options.folders:
        embedder: Embedder = LocalEmbedder(options.model)
        if options.url:
            embedder = HttpEmbedder(EmbedderSettings(kind="http", url=options.url, model=options.model))
        asyncio.run(score_folder(folder, embedder, options.weight or [0.4], options.cache))
    return 0


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _print(name: str, score: Score) -> None:
    recall = "  ".join(f"R@{k} {100 * part:5.1f}" for k, part in zip(_KS, score.recall, strict=True))
    print(f"  {name:12s} {recall}  NDCG@10 {100 * score.ndcg:5.1f}  {1000 * score.seconds:6.2f} ms")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embedder_scores", description="Score tool search with and without an embedder."
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--url", help="base address of a service of embeddings")
    parser.add_argument("--model", help="the service's model; without --url, the directory of a local one")
    parser.add_argument("--weight", type=float, action="append", metavar="W", help="the embedder's share; many")
    parser.add_argument("--cache", type=Path, default=Path(".bench/vectors.db"), help="where vectors are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
