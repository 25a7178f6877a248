"""`mcpbridge rank`: the ranker behind `find_tools`, over tools in files, in JSON lines; for scoring it.

    {"op": "load", "tools_path": "…", "servers_path": "…" or null}    ->  {"ok": true}
    {"op": "rank", "id": "…", "query": "…", "k": 8}                   ->  {"id": "…", "ids": ["…", …]}, best first
    {"op": "exit"}

A line of the tools file has `id`, `server`, `name`, `description` and `inputSchema`, one of the servers file `server`,
`title` and `description`. What cannot be done is answered with {"error": "…"}, and the next line is read.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import click

from mcpbridge.app.exit_codes import OK
from mcpbridge.catalog.search.ranker import Ranker, ServerText, ToolText

_MOST = 1000
"""Tools of one answer."""


class _Wrong(ValueError):
    """A line that cannot be obeyed; says why."""


@click.command("rank")
def rank_command() -> int:
    """Rank tools of files for queries on standard input, in JSON lines: load, rank, exit. For scoring the ranker.

    \u0008
    Examples:
      mcpbridge rank < requests.jsonl
    """
    ranker: Ranker | None = None
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        try:
            asked = _asked(line)
            if asked.get("op") == "exit":
                break
            if asked.get("op") == "load":
                ranker = _loaded(asked)
                answer: dict[str, Any] = {"ok": True}
            else:
                answer = _ranked(asked, ranker)
        except _Wrong as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return OK


def _asked(line: str | bytes) -> dict[str, Any]:
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        raise _Wrong("not JSON") from None
    if not isinstance(asked, dict):
        raise _Wrong("not an object")
    return cast("dict[str, Any]", asked)


def _loaded(asked: Mapping[str, Any]) -> Ranker:
    tools, servers = asked.get("tools_path"), asked.get("servers_path")
    if not isinstance(tools, str) or not isinstance(servers, str | None):
        raise _Wrong("`tools_path` must be a path, `servers_path` a path or null")
    from mcpbridge.catalog.search.index import CatalogRankers

    return CatalogRankers().of(texts_of(Path(tools), Path(servers) if servers else None))


def _ranked(asked: Mapping[str, Any], ranker: Ranker | None) -> dict[str, Any]:
    if asked.get("op") != "rank":
        raise _Wrong("`op` must be load, rank or exit")
    if ranker is None:
        raise _Wrong("nothing is loaded")
    query, k = asked.get("query"), asked.get("k", 8)
    if not isinstance(query, str) or not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise _Wrong("`query` must be a text, `k` a positive number")
    return {"id": asked.get("id"), "ids": [hit.id for hit in ranker.rank(query, min(k, _MOST))]}


def texts_of(tools: Path, servers: Path | None) -> list[tuple[ServerText, list[ToolText]]]:
    """The tools of the files by server, in the order in which they first come.

    Raises:
        ValueError: a file cannot be read, or a line of it is no object.
    """
    about = {_text(row, "server"): row for row in _rows(servers)} if servers else {}
    grouped: dict[str, list[ToolText]] = {}
    for row in _rows(tools):
        schema = row.get("inputSchema")
        server = _text(row, "server")
        tool = ToolText(
            id=_text(row, "id"),
            server=server,
            name=_text(row, "name"),
            title=_text(row, "title"),
            description=_text(row, "description"),
            schema=cast("dict[str, Any]", schema) if isinstance(schema, dict) else None,
        )
        grouped.setdefault(server, []).append(tool)
    return [
        (ServerText(name, _text(about.get(name, {}), "title"), _text(about.get(name, {}), "description")), of)
        for name, of in grouped.items()
    ]


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text("utf-8", errors="replace").split("\n")
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise _Wrong(f"{str(path)!r} cannot be read") from error
    for line in lines:
        if line.strip():
            yield _asked(line)
