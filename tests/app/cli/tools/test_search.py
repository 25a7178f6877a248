"""`mcpbridge search`: what `find_tools` answers, for people and programs (issue 6)."""

import json
from collections.abc import Callable

import pytest

from support.harness import Finished, Place, python_server

Run = Callable[..., Finished]

TRACKER = {
    "create_issue": "Create an issue in a repository",
    "close_issue": "Close an issue in a repository",
    "list_pull_requests": "List the pull requests of a repository",
}
WEATHER = {"get_forecast": "Tell the weather of the next days in a city", "get_alerts": "Tell storm warnings"}


@pytest.fixture
def config(place: Place) -> str:
    servers = {
        "tracker": python_server("described", json.dumps(TRACKER)),
        "sky": python_server("described", json.dumps(WEATHER), tags=["weather"]),
    }
    permissions = [{"tools": ["sky/get_alerts"], "permission": "deny"}]
    return str(place.config(servers, profiles={"outside": {"servers": ["sky"]}}, permissions=permissions))


def test_the_answer_of_find_tools_is_printed(alone: Run, config: str) -> None:
    finished = alone("search", "close", "an", "issue", "--config", config)
    assert (finished.code, finished.err) == (0, "")
    first, second, *_ = finished.out.splitlines()
    assert first == "tracker__close_issue() - Close an issue in a repository"
    assert second.startswith("tracker__create_issue()")
    named = alone("search", "close an issue", "--limit", "1", "--detail", "schemas", "--config", config).out
    assert json.loads(named.splitlines()[0])["inputSchema"] == {"type": "object"}
    assert "create_issue" not in named


def test_programs_get_ids_names_and_scores(alone: Run, config: str) -> None:
    finished = alone("search", "close an issue", "--limit", "2", "--json", "--config", config)
    told = json.loads(finished.out)
    assert (told["query"], told["fits"]) == ("close an issue", True)
    first, second = told["tools"]
    assert first["score"] >= second["score"] > 0
    assert {**first, "score": 0} == {
        "id": "tracker/close_issue",
        "name": "tracker__close_issue",
        "score": 0,
        "is_named": True,
        "also": [],
        "signature": "tracker__close_issue() - Close an issue in a repository",
    } | {"is_named": first["is_named"]}
    again = alone("search", "close an issue", "--limit", "2", "--json", "--config", config)
    assert again.out == finished.out
    named = json.loads(alone("search", "tracker/close_issue", "--json", "--config", config).out)
    assert named["tools"][0]["is_named"]


def test_a_search_keeps_to_a_server_a_profile_and_what_the_policy_lets_be_seen(alone: Run, config: str) -> None:
    def found(*words: str) -> set[str]:
        told = json.loads(alone("search", *words, "--detail", "names", "--json", "--config", config).out)
        return {tool["id"] for tool in told["tools"]}

    everything = {"tracker/create_issue", "tracker/close_issue", "tracker/list_pull_requests", "sky/get_forecast"}
    assert found("server:*") == everything
    assert found("tag:weather") == {"sky/get_forecast"}
    assert found("server:*", "--server", "tracker") == everything - {"sky/get_forecast"}
    assert found("server:*", "--profile", "outside") == {"sky/get_forecast"}
    assert "sky/get_alerts" not in found("storm warnings of a repository")


def test_where_nothing_fits_the_exit_code_says_so(alone: Run, config: str) -> None:
    finished = alone("search", "qwertz yxcvb", "--config", config)
    assert finished.code == 5
    assert finished.out.startswith("No tool seems to do that.")
    told = json.loads(alone("search", "qwertz yxcvb", "--json", "--config", config).out)
    assert (told["fits"], told["tools"]) == (False, [])


def test_what_is_typed_wrong_is_told_with_what_was_meant(alone: Run, config: str) -> None:
    for option, typed, meant in (("--server", "trakcer", "tracker"), ("--profile", "outsite", "outside")):
        finished = alone("search", "x", option, typed, "--config", config)
        assert finished.code == 2
        assert f"'{typed}'" in finished.err
        assert f"Did you mean '{meant}'?" in finished.err
    assert alone("search", " ", "--config", config).code == 2
    assert alone("search", "x", "--limit", "0", "--config", config).code == 2
    assert alone("search", "x", "--detail", "all", "--config", config).code == 2


async def test_servers_that_are_missing_are_named(place: Place) -> None:
    servers = {"sky": python_server("described", json.dumps(WEATHER)), "gone": {"command": "no-such-program-here"}}
    finished = await place.run("search", "weather of a city", "--config", str(place.config(servers)))
    assert finished.code == 0
    assert "sky__get_forecast" in finished.out
    assert "gone is missing" in finished.err


def test_the_scores_are_explained(alone: Run, config: str) -> None:
    """Issue 20: the ranking with scores, and which words and vectors made it."""
    told = json.loads(alone("search", "close an issue", "--explain", "--json", "--config", config).out)
    (why,) = [tool["why"] for tool in told["tools"] if tool["id"] == "tracker/close_issue"]
    score = next(tool["score"] for tool in told["tools"] if tool["id"] == "tracker/close_issue")
    close = next(word for word in why["words"] if word["word"] == "close")
    assert close["in"] == ["name", "description"]
    assert not close["implied"]
    points = sum(word["points"] for word in why["words"]) + why["vectors"]["points"] + why["asked"] + why["name"]
    assert abs(min(points, 1) - score) < 0.01
    shown = alone("search", "close an issue", "--explain", "--config", config).out
    assert "tracker/close_issue: close 0." in shown
    named = json.loads(alone("search", "tracker/close_issue", "--explain", "--json", "--config", config).out)
    assert named["tools"][0]["why"] == {"named": True}
