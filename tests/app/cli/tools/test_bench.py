"""`mcpbridge bench routing`: recall, confusion and tokens on the user's own catalog (issue 6)."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.harness import Finished, Place, python_server

Run = Callable[..., Finished]

TRACKER = {
    "create_issue": "Create an issue in a repository",
    "create_issue_comment": "Create an issue in a repository",
    "list_pull_requests": "List the pull requests of a repository with their authors",
    "untold": "",
}
WEATHER = {"get_forecast": "Tell the weather of the next days in a city", "get_alerts": "Tell storm warnings"}


@pytest.fixture
def config(place: Place) -> str:
    servers = {
        "tracker": python_server("described", json.dumps(TRACKER)),
        "sky": python_server("described", json.dumps(WEATHER)),
    }
    return str(place.config(servers))


def bench(alone: Run, *words: str) -> dict[str, Any]:
    finished = alone("bench", "routing", *words, "--json")
    assert finished.code == 0, finished.err
    return json.loads(finished.out)


def test_without_a_file_queries_are_made_of_descriptions_and_marked(alone: Run, config: str) -> None:
    told = bench(alone, "--config", config)
    assert (told["tools"], told["servers"], told["limit"]) == (6, 2, 8)
    assert told["queries"] == {"count": 5, "generated": True, "source": None, "left_out": 1, "flaws": []}
    assert "easier than real ones" in told["note"]
    assert set(told["recall"]) == {"1", "5", "8"}
    assert (told["recall"]["1"], told["recall"]["8"], told["not_found"]) == (0.8, 1.0, 0.0)
    counts = {"right": 4, "sibling": 1, "same_server": 0, "other_server": 0, "doubtful": 0}
    assert told["first"] == counts
    pair = ["tracker/create_issue", "tracker/create_issue_comment"]
    assert told["confused"] == [{"tools": pair, "times": 1, "of": 2}]
    assert bench(alone, "--config", config) == told


def test_tokens_are_told_of_lists_and_answers(alone: Run, config: str) -> None:
    tokens = bench(alone, "--config", config)["tokens"]
    assert (tokens["counted"], tokens["listed"], tokens["answer"]["count"]) == ("estimate", "all", 5)
    assert 0 < tokens["answer"]["mean"] <= tokens["answer"]["p95"] <= 500
    assert 0 < tokens["list_all"] < tokens["list_search"] <= 600
    assert tokens["saved_share"] < 0


def test_a_person_gets_tables(alone: Run, config: str) -> None:
    finished = alone("bench", "routing", "--config", config, "--limit", "1", "--misses")
    assert (finished.code, finished.err) == (0, "")
    lines = finished.out.splitlines()
    assert lines[:2] == ["6 tools of 2 servers; queries generated: 5", "tools that say too little for one: 1"]
    rows = {" ".join(line.split()) for line in lines}
    assert {"found first 80.0 %", "found among the first 5 100.0 %", "not found at all (in 50) 0.0 %"} <= rows
    assert "tracker__create_issue tracker__create_issue_comment 1 of 2" in rows
    assert "queries with a tool that is not among the first 1: 1" in rows
    assert any("(place 2); first came tracker__create_issue" in row for row in rows)


def test_queries_of_a_file_are_asked_and_its_faulty_lines_named(alone: Run, config: str, tmp_path: Path) -> None:
    file = tmp_path / "queries.csv"
    file.write_text(
        "query,tool\n"
        "weather in Oslo tomorrow,sky/get_forecast\n"
        "report an issue of a repository,tracker__create_issue\n"
        "is there a storm,get_alertz\n"
        "what, no quotes,sky/get_alerts\n"
        "issues of a repository,get_alerts\n"
        "qwertz yxcvb,get_alerts\n"
    )
    words = ["bench", "routing", "--queries", str(file), "--limit", "1", "--misses", "--config", config]
    finished = alone(*words, "--json")
    told = json.loads(finished.out)
    assert (told["queries"]["count"], told["queries"]["left_out"], told["note"]) == (4, 2, None)
    assert [flaw["line"] for flaw in told["queries"]["flaws"]] == [4, 5]
    assert "line 4: Unknown tool: get_alertz (did you mean sky__get_alerts?)" in finished.err
    assert "line 5: 3 columns instead of 2" in finished.err
    [missed] = [miss for miss in told["misses"] if miss["line"] == 6]
    assert (missed["query"], missed["wanted"]) == ("issues of a repository", [["sky/get_alerts"]])
    assert missed["places"] != [1]
    assert not missed["doubtful"]
    assert told["first"]["doubtful"] == 1
    shown = alone(*words).out
    assert f"queries of {file}: 4" in shown
    assert "line 6: issues of a repository" in shown


def test_queries_come_from_standard_input_and_can_be_about_one_server(
    alone: Run, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"query": "storm warnings", "tool": "sky/get_alerts"},
        {"query": "pull requests, and the weather", "gold": [["list_pull_requests"], ["sky/get_forecast"]]},
    ]
    text = "\n".join(map(json.dumps, rows)).encode()
    for server, count in (("sky", 2), ("tracker", 1)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        told = bench(alone, "--queries", "-", "--server", server, "--config", config)
        assert (told["queries"]["count"], told["recall"]["8"]) == (count, 1.0)


def test_without_queries_that_can_be_asked_it_says_what_a_line_looks_like(
    alone: Run, config: str, tmp_path: Path
) -> None:
    file = tmp_path / "queries.txt"
    file.write_text("no comma here\n")
    finished = alone("bench", "routing", "--queries", str(file), "--config", config)
    assert finished.code == 2
    assert "line 1: 1 columns instead of 2" in finished.err
    assert "no query that can be asked" in finished.err
    assert '{"query": "open an issue"' in finished.err
    missing = alone("bench", "routing", "--queries", str(tmp_path / "gone"), "--config", config)
    assert missing.code == 2
    assert "No such file" in missing.err
    misspelled = alone("bench", "routing", "--server", "trakcer", "--config", config)
    assert misspelled.code == 2
    assert "Did you mean 'tracker'?" in misspelled.err


def test_a_catalog_without_tools_is_told(alone: Run, place: Place) -> None:
    config = str(place.config({"bare": python_server("described", "{}")}))
    finished = alone("bench", "routing", "--config", config)
    assert finished.code == 5
    assert "there are no tools" in finished.err
    config = str(place.config({"silent": python_server("described", '{"one": "", "two": {}}')}))
    finished = alone("bench", "routing", "--config", config)
    assert finished.code == 5
    assert "descriptions are missing" in finished.err


def test_what_servers_and_files_write_cannot_break_the_output(alone: Run, place: Place, tmp_path: Path) -> None:
    odd = {"name": "a\x1b[31mb", "description": "Tell \ud800 the time \x00 \x1b[2J"}
    config = str(place.config({"odd": python_server("described", json.dumps({"x": odd, "y": {"description": 7}}))}))
    file = tmp_path / "queries.jsonl"
    file.write_text('{"query": "half \\ud800 \\u001b[2J", "tool": "y"}')
    for words in (["bench", "routing", "--misses"], ["bench", "routing", "--queries", str(file), "--misses"]):
        for as_json in ([], ["--json"]):
            finished = alone(*words, *as_json, "--limit", "1", "--config", config)
            assert finished.code == 0, finished.err
            assert "\x1b" not in finished.out
