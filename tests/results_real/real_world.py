"""Data that real servers are given, generated the same every time, and the servers in front of it.

Four kinds of data that people have: a repository, a folder, a knowledge graph, a table. What the tests expect is
computed from the values here, not from what a server says.
"""

import json
import sqlite3
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.rpc import Client

__all__ = ["SETTINGS", "World", "made", "started"]

SETTINGS: dict[str, Any] = {"results": {"strategy": "preview"}, "bridge": {"startup_wait": "60s"}}
"""Of the bridge: the first listing waits for all servers, of which some take seconds on a busy machine."""

ROOT = Path(__file__).parent.parent.parent

COMMITS, FILES, ENTITIES, ROWS = 80, 1500, 300, 500

_AUTHORS = ["Ada Lovelace", "Grace Hopper", "Annie Easley"]
_AREAS = ["parser", "network", "storage", "docs"]
_VERBS = ["fix", "add", "rework", "remove"]
_CITIES = ["Oslo", "Lima", "Kyoto", "Accra", "Quito"]
_KINDS = ["person", "project", "city"]


@dataclass(frozen=True)
class World:
    """The data, and the servers that serve it."""

    folder: Path
    """Where all of it lies; the server of files may read and write in it."""
    commits: list[dict[str, Any]]
    """Newest first: `sha`, `author`, `subject`."""
    files: list[str]
    """Names in the folder `inbox`."""
    entities: list[dict[str, Any]]
    relations: list[dict[str, str]]
    rows: list[dict[str, Any]]
    report: str
    """The text of `report.csv`, 600 lines below its heading."""
    servers: dict[str, dict[str, Any]]
    """Their configuration, by name."""

    @property
    def repository(self) -> str:
        return str(self.folder / "repository")

    @property
    def inbox(self) -> str:
        return str(self.folder / "inbox")

    def path(self, name: str) -> str:
        return str(self.folder / name)


def made(folder: Path, sql_server: str, *, has_node: bool) -> World:
    """Make all of the data in a folder. `sql_server`: that program; without Node there are only two servers."""
    folder = folder.resolve()
    servers: dict[str, dict[str, Any]] = {
        "git": {"command": str(ROOT / ".venv-servers/bin/mcp-server-git"), "args": ["-r", str(folder / "repository")]},
        "sql": {"command": sql_server, "args": ["--db-path", str(folder / "shop.db")]},
    }
    if has_node:
        node = ROOT / "examples/node_modules/.bin"
        memory = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
        servers["files"] = {"command": str(node / "mcp-server-filesystem"), "args": [str(folder)]}
        servers["memory"] = {"command": str(node / "mcp-server-memory"), "env": memory}
    commits, files, rows, report = _repository(folder), _inbox(folder), _table(folder), _report(folder)
    entities, relations = _graph(folder)
    return World(folder, commits, files, entities, relations, rows, report, servers)


async def started(client: Client, *servers: str) -> None:
    """The handshake; then the client has seen tools of all these servers."""
    await client.initialize()
    tools = (await client.request("tools/list", {}, within=60)).result["tools"]
    assert {*servers} <= {tool["name"].partition("__")[0] for tool in tools}, client.log.told()


def _repository(folder: Path) -> list[dict[str, Any]]:
    """A repository with one line of history; each commit changes one of a few files."""
    repository = folder / "repository"
    subjects = [f"{_VERBS[n % 4]} {_AREAS[n * 7 % 4]}: step {n} of the plan" for n in range(COMMITS)]
    authors = [_AUTHORS[n * n % 3] for n in range(COMMITS)]
    script: list[str] = []
    for n, (subject, author) in enumerate(zip(subjects, authors, strict=True)):
        stamp = f"{author} <{author.split()[0].lower()}@example.org> {1_790_000_000 + n * 5000} +0200"
        text = "".join(f"line {line} of {_AREAS[n % 4]}, as of step {n}\n" for line in range(40))
        body = f"{subject}\n\nThe reason is told in note {n}." if n % 5 == 0 else subject
        script += ["commit refs/heads/main", f"author {stamp}", f"committer {stamp}", _data(body)]
        script += [f"M 100644 inline src/{_AREAS[n % 4]}.txt", _data(text), ""]
    _git("init", "--quiet", "--initial-branch=main", str(repository))
    _git("-C", str(repository), "fast-import", "--quiet", given="\n".join(script) + "\ndone\n")
    _git("-C", str(repository), "reset", "--hard", "--quiet")
    shas = _git("-C", str(repository), "log", "--format=%H").split()
    assert len(shas) == COMMITS
    newest_first = zip(shas, reversed(authors), reversed(subjects), strict=True)
    return [{"sha": sha, "author": author, "subject": subject} for sha, author, subject in newest_first]


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}"


def _git(*args: str, given: str = "") -> str:
    return subprocess.run(["git", *args], input=given, capture_output=True, text=True, check=True).stdout


def _inbox(folder: Path) -> list[str]:
    """Files of three kinds, of sizes that follow from their number."""
    inbox = folder / "inbox"
    inbox.mkdir()
    names = [f"{n:04}-{_AREAS[n % 4]}.{'pdf' if n % 10 == 0 else 'txt' if n % 3 else 'md'}" for n in range(FILES)]
    for n, name in enumerate(names):
        (inbox / name).write_bytes(b"x" * (n * 37 % 4096))
    return names


def _graph(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """A knowledge graph, as the memory server keeps it: one JSON object a line."""
    entities = [
        {
            "name": f"{_KINDS[n % 3]}-{n}",
            "entityType": _KINDS[n % 3],
            "observations": [f"was seen in {_CITIES[n % 5]}", f"has the number {10**17 + n}"][: 1 + n % 2],
        }
        for n in range(ENTITIES)
    ]
    relations = [
        {"from": entities[n]["name"], "to": entities[(n * 7 + 1) % ENTITIES]["name"], "relationType": "knows"}
        for n in range(0, ENTITIES, 2)
    ]
    lines = [{"type": "entity", **entity} for entity in entities]
    lines += [{"type": "relation", **relation} for relation in relations]
    (folder / "memory.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return entities, relations


def _table(folder: Path) -> list[dict[str, Any]]:
    """Orders in a database, with ids longer than a double holds, amounts and gaps."""
    rows = [
        {
            "id": 10**17 + n,
            "customer": f"O'Neil {n % 50}" if n % 7 == 0 else f"Customer {n % 50}",
            "city": _CITIES[n * n % 5],
            "status": "refunded" if n % 61 == 60 else "paid" if n % 4 else "open",
            "amount": round(n * 1.25 + 0.1, 2),
            "note": None if n % 3 else f'said "{n}"',
        }
        for n in range(ROWS)
    ]
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("create table orders (id integer, customer, city, status, amount real, note)")
        database.executemany("insert into orders values (:id, :customer, :city, :status, :amount, :note)", rows)
    database.close()
    return rows


def _report(folder: Path) -> str:
    """A CSV with what is easily lost on the way: quotes, other scripts, no newline at the end."""
    lines = [f'{n},"item, no. {n}",{n * 3}.50,grüße 世界 🙂' for n in range(600)]
    text = "\n".join(["number,name,price,remark", *lines])
    (folder / "report.csv").write_bytes(text.encode())
    return text
