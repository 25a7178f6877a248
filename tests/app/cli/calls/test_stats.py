"""`mcpbridge stats`: the tokens that results cost and saved, from the ledger in the store (issue 5, Never worse)."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.results.token_ledger import TokenLedger
from support.harness import Finished, Place, python_server
from support.kept_results import count

Run = Callable[..., Finished]

DAY = 86400


@pytest.fixture(autouse=True)
def _no_midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted and what is told later is of one day."""
    now = time.time()
    monkeypatch.setitem(TokenLedger.__init__.__kwdefaults__, "clock", lambda: now)


def tokens(alone: Run, *words: str) -> dict[str, Any]:
    finished = alone("stats", *words, "--json")
    assert finished.code == 0, finished.err
    return json.loads(finished.out)["tokens"]


@pytest.fixture
def _counted(alone: Run) -> None:
    count("sql/query", calls=3, rewritten=2, came=9000, sent=1000, stored=8800, recalled=500)
    count("sql/query", "eye", calls=1, came=100, sent=100)
    count("web/fetch", calls=2, rewritten=1, came=3000, sent=400, stored=2900)
    count("web/fetch", day=time.time() - 3 * DAY, calls=1, rewritten=1, came=1000, sent=100, stored=1000)
    count("old/tool", day=time.time() - 30 * DAY, calls=7, came=10, sent=10)


@pytest.mark.usefixtures("_counted")
def test_tokens_are_told_by_tool_for_a_week(alone: Run) -> None:
    told = tokens(alone)
    assert (told["days"], told["by"], told["estimated"]) == (7, ["tool"], True)
    assert told["rows"] == [
        {
            "tool": "sql/query",
            "calls": 4,
            "rewritten": 2,
            "came": 9100,
            "shown": 1100,
            "stored": 8800,
            "recalled": 500,
            "saved": 7500,
            "saved_share": 0.8242,
        },
        {
            "tool": "web/fetch",
            "calls": 3,
            "rewritten": 2,
            "came": 4000,
            "shown": 500,
            "stored": 3900,
            "recalled": 0,
            "saved": 3500,
            "saved_share": 0.875,
        },
    ]
    total = told["total"]
    assert (total["calls"], total["came"], total["saved"], total["saved_share"]) == (7, 13100, 11000, 0.8397)


@pytest.mark.usefixtures("_counted")
def test_tokens_are_told_apart_as_asked(alone: Run) -> None:
    assert {row["client"]: row["calls"] for row in tokens(alone, "--by", "client")["rows"]} == {"ear": 6, "eye": 1}
    assert {row["server"] for row in tokens(alone, "--by", "server", "--days", "40")["rows"]} == {"sql", "web", "old"}
    days = [row["day"] for row in tokens(alone, "--by", "day")["rows"]]
    assert days == sorted(days)
    assert len(days) == 2
    pairs = tokens(alone, "--by", "tool", "--by", "client", "--days", "1")["rows"]
    assert {(row["tool"], row["client"]) for row in pairs} == {
        ("sql/query", "ear"),
        ("sql/query", "eye"),
        ("web/fetch", "ear"),
    }


@pytest.mark.usefixtures("_counted")
def test_a_person_gets_a_table_with_its_sum_marked_as_estimates(alone: Run) -> None:
    finished = alone("stats")
    assert finished.code == 0
    head, *lines = finished.out.splitlines()
    assert head == "tokens of results, last 7 days (estimates)"
    assert [line.split()[0] for line in lines] == ["Tool", "sql/query", "web/fetch", "total"]
    bare = alone("stats", "--no-header").out.splitlines()
    assert [line.split() for line in bare] == [line.split() for line in (head, *lines[1:])]
    assert lines[-1].split() == ["total", "7", "4", "13,100", "1,600", "500", "12,700", "11,000", "84%"]


@pytest.mark.usefixtures("_counted")
def test_a_configuration_that_is_wrong_hides_nothing_unless_it_was_asked_for(alone: Run, tmp_path: Path) -> None:
    config = tmp_path / "servers.toml"
    config.write_text("[nonsense]\n")
    finished = alone("stats")
    assert finished.code == 0
    assert "nonsense" in finished.err
    assert "sql/query" in finished.out
    assert alone("stats", "--config", str(config)).code == 2


@pytest.mark.usefixtures("_counted")
def test_a_project_is_shown_its_own(alone: Run, tmp_path: Path) -> None:
    """Issue 18. The store may be that of all projects of a user."""
    (tmp_path / "servers.toml").write_text('[servers.web]\ncommand = "web"\n[tools.today]\ncommand = ["date"]\n')
    count("tools/today", calls=1, rewritten=1, came=50, sent=10, stored=40)
    assert {row["tool"] for row in tokens(alone)["rows"]} == {"web/fetch", "tools/today"}
    assert tokens(alone)["total"]["calls"] == 4
    assert {row["tool"] for row in tokens(alone, "--all")["rows"]} == {"web/fetch", "tools/today", "sql/query"}
    assert {row["client"] for row in tokens(alone, "--by", "client")["rows"]} == {"ear"}


async def test_bridges_of_other_configurations_are_shown_only_with_all(place: Place) -> None:
    other = place.folder / "other.toml"
    other.write_text('[servers.mine]\ncommand = "mine"\n')
    async with place.bridge({"up": python_server("plain")}) as client:
        await client.initialize()
        await client.call("up__echo", text="x")

        async def bridges(*words: str) -> int:
            finished = await place.run("stats", "--config", str(other), "--json", *words)
            return len(json.loads(finished.out)["bridges"])

        assert (await bridges(), await bridges("--all")) == (0, 1)


def test_nothing_counted_is_said_with_how_results_are_configured(alone: Run) -> None:
    finished = alone("stats")
    assert finished.code == 4
    assert "no bridge is running" in finished.err
    assert "[results]" in finished.err
    assert alone("stats", "--by", "day", "--json").code == 4
    count("a/b", day=time.time() - 9 * DAY, calls=1, came=1, sent=1)
    assert alone("stats", "--days", "3").code == 4
    assert alone("stats", "--days", "10").code == 0


def test_spans_and_parts_are_checked(alone: Run) -> None:
    assert alone("stats", "--days", "0").code == 2
    assert alone("stats", "--by", "weather").code == 2


async def test_what_a_running_bridge_has_counted_is_told_at_once(place: Place) -> None:
    async with place.bridge({"up": python_server("plain")}, results={"strategy": "preview"}) as client:
        await client.initialize()
        rows = json.dumps([{"id": number, "name": f"row {number}"} for number in range(2000)])
        raw = json.dumps({"content": [{"type": "text", "text": rows}]})
        for _ in range(2):
            await client.call("up__raw_result", raw=raw)
        told = json.loads((await place.run("stats", "--json")).out)
        [bridge] = told["bridges"]
        [row] = told["tokens"]["rows"]
        assert (row["tool"], row["calls"], row["rewritten"]) == ("up/raw_result", 2, 2)
        assert row["came"] >= row["stored"] > 10 * row["shown"] > 0
        [tool] = [tool for tool in bridge["tools"] if tool["tool"] == "up/raw_result"]
        assert sum(tool["rewritten"].values()) == 2
        assert tool["rewritten_tokens_estimated"]["shown"] == row["shown"]
        shown = (await place.run("stats")).out
        assert "tokens of results, last 7 days (estimates)" in shown
        assert "est." in shown
    [kept] = json.loads((await place.run("results", "--json")).out)["results"]
    assert (kept["tool"], kept["outcome"]) == ("up/raw_result", "ok")
    assert (await place.run("results", "show", kept["handle"])).out == f"{rows}\n"
