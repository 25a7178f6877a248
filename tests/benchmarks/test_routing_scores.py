"""How tools are found is scored: by the rules, over the programs' own wire (issue 6, How it is proved)."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads CPU times as Linux gives them")

ROOT = Path(__file__).parents[2]
TOOLS = [
    {"id": "w/forecast", "server": "w", "name": "forecast", "description": "Weather of the next days"},
    {"id": "m/send", "server": "m", "name": "send", "description": "Send a message"},
]
QUERIES = [
    {"text": "weather tomorrow", "kind": "user", "gold": [["w/forecast"]]},
    {"text": "weather, then send a message", "kind": "task", "gold": [["w/forecast"], ["m/send", "m/other"]]},
]


@pytest.fixture
def routing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import routing_scores

    return routing_scores


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "small").mkdir()
    for name, rows in (("tools", TOOLS), ("queries", QUERIES)):
        (tmp_path / "small" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_recall_counts_needs(routing: ModuleType) -> None:
    gold = [frozenset("ab"), frozenset("c")]
    assert [routing.recall(list("xbc"), gold, k) for k in (1, 2, 3)] == [0, 0.5, 1]


def test_the_bridge_is_scored(routing: ModuleType, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert routing.main(["--data", str(data), "--no-peers"]) == 0
    printed = capsys.readouterr().out
    assert "| small | user | mcpbridge | 100.0 | 100.0 | 100.0 |" in printed
    assert "| small | task | mcpbridge | 50.0 | 100.0 | 100.0 |" in printed


def test_catalogs_of_any_size_are_made(routing: ModuleType, data: Path, tmp_path: Path) -> None:
    routing.varied(data / "small", 7, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "tools.jsonl").read_text().splitlines()]
    assert len({row["id"] for row in rows}) == 7


def test_without_data_it_says_so(routing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCPBRIDGE_ROUTING_DATA", raising=False)
    assert routing.main([]) == 2
