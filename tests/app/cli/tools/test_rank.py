"""`mcpbridge rank`: the ranker in JSON lines, for scoring (issue 6, How it is proved)."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mcpbridge.app.cli.tools.rank import rank_command

TOOLS = [
    {"id": "w/forecast", "server": "w", "name": "forecast", "description": "Weather of the next days"},
    {"id": "w/alerts", "server": "w", "name": "alerts", "description": "Storm warnings", "inputSchema": {"type": {}}},
    {"id": "m/send", "server": "m", "name": "send", "description": "Send a message", "inputSchema": 7},
]
SERVERS = [{"server": "m", "title": "Mail", "description": "E-mail", "n": 1}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools.jsonl").write_text("\n".join(map(json.dumps, TOOLS)) + "\n")
    (tmp_path / "servers.jsonl").write_text("\n".join(map(json.dumps, SERVERS)))
    return tmp_path


def answers(*lines: Any) -> list[dict[str, Any]]:
    given = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    done = CliRunner().invoke(rank_command, input=given)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def load(folder: Path, *, servers: bool = True) -> dict[str, Any]:
    about = str(folder / "servers.jsonl") if servers else None
    return {"op": "load", "tools_path": str(folder / "tools.jsonl"), "servers_path": about}


def rank(query: str, k: int = 2) -> dict[str, Any]:
    return {"op": "rank", "id": "q1", "query": query, "k": k}


def test_tools_are_loaded_and_ranked(folder: Path) -> None:
    loaded, first, second = answers(load(folder), rank("will there be a storm"), rank("write a mail", 1))
    assert loaded == {"ok": True}
    assert first["id"] == "q1"
    assert first["ids"][0] == "w/alerts"
    assert second == {"id": "q1", "ids": ["m/send"]}


def test_there_may_be_no_file_of_servers(folder: Path) -> None:
    assert answers(load(folder, servers=False), rank("weather", 1))[1]["ids"] == ["w/forecast"]


def test_nothing_is_answered_after_exit(folder: Path) -> None:
    assert answers(load(folder), {"op": "exit"}, rank("weather")) == [{"ok": True}]


def test_what_cannot_be_done_is_told_and_disturbs_nothing(folder: Path) -> None:
    wrong: list[Any] = [
        "{",
        "[1]",
        "\x00",
        "[" * 100_000,
        {"op": "rank", "id": 1, "query": 5},
        {"op": "rank", "id": 1, "query": "a", "k": 0},
        {"op": "dance"},
        {},
        {"op": "load", "tools_path": 3},
        {"op": "load", "tools_path": str(folder / "absent.jsonl"), "servers_path": None},
        {"op": "load", "tools_path": str(folder), "servers_path": None},
        {"op": "load", "tools_path": "a\0b", "servers_path": None},
    ]
    got = answers(rank("weather"), load(folder), *wrong, "", rank("weather", 1))
    assert got[0] == {"error": "nothing is loaded"}
    assert all(list(answer) == ["error"] for answer in got[2:-1])
    assert len(got) == len(wrong) + 3
    assert got[-1]["ids"] == ["w/forecast"]
