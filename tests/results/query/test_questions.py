"""Questions about results of many kinds, answered by the arguments of `recall` alone."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.results.document import read
from mcpbridge.results.query.query import answer
from mcpbridge.results.query.request import read_query

PAYLOADS = Path(__file__).parents[3] / "benchmarks" / "data" / "tool-results"
ROOM = 1900
DEEP_FILES = {"path": "**", "where": 'type == "file"', "aggregate": "count"}

ASKED: dict[str, list[dict[str, Any]]] = {
    "code_search": [
        {"path": "total_count"},
        {"path": "items", "aggregate": "count"},
        {"path": "items[7].path"},
        {"path": "items", "where": 'sha startswith "090ea3ae64"', "select": "repository.full_name"},
        {"path": "items", "where": "repository.fork", "aggregate": "count"},
        {"path": "items", "aggregate": "max:score"},
    ],
    "csv_text": [
        {"aggregate": "count"},
        {"group_by": "state"},
        {"aggregate": "max:temp_c"},
        {"where": 'sensor == "SN-11610"', "select": "city"},
        {"path": "[-1].sensor"},
    ],
    "dir_tree": [
        DEEP_FILES,
        DEEP_FILES | {"where": 'type == "file" and name endswith ".py"'},
        {"aggregate": "count"},
        {"find": "candle70.py"},
        {"path": "[2].name"},
    ],
    "event_stream": [
        {"aggregate": "count"},
        {"where": {"type": "click"}, "aggregate": "count"},
        {"group_by": "type"},
        {"where": "type = 'purchase'", "aggregate": "sum:payload.cents"},
        {"where": 'type == "error" and payload.code == 500', "aggregate": "count"},
        {"path": "[-1].session"},
    ],
    "gh_commits": [
        {"aggregate": "count"},
        {"path": "[0].sha"},
        {"path": "[11].sha"},
        {"path": "[-1].sha"},
        {"where": r'commit.message matches "#717(\n|$)"', "select": "author.login"},
        {"group_by": "author.login"},
        {"aggregate": "count_distinct:author.login"},
        {"where": 'commit.message startswith "fix"', "aggregate": "count"},
        {"aggregate": "max:commit.author.date"},
    ],
    "gh_issues": [
        {"aggregate": "count"},
        {"group_by": "state"},
        {"path": "[0].number"},
        {"path": "[9].title"},
        {"where": "number == 1134", "select": "title"},
        {"where": {"number": 1068}, "select": "user.login"},
        {"aggregate": "max:comments"},
        {"aggregate": "sum:comments"},
        {"where": 'labels[].name == "bug"', "aggregate": "count"},
        {"aggregate": "distinct:user.login"},
    ],
    "id_map": [
        {"path": "users", "aggregate": "count"},
        {"path": "users", "where": 'role == "admin"', "aggregate": "count"},
        {"path": "users.u-5947a0.name"},
        {"path": "users", "aggregate": "max:quota.used_mb"},
        {"path": "users", "where": "not mfa", "aggregate": "count"},
    ],
    "k8s_pods": [
        {"path": "items", "aggregate": "count"},
        {"path": "items", "group_by": "status.phase"},
        {"path": "items", "where": 'status.phase != "Running"', "select": "metadata.name"},
        {"path": "items", "where": {"metadata.namespace": "default"}, "aggregate": "count"},
        {"path": "items", "where": 'metadata.name == "widget-cd5b24f95-70cbd"', "select": "status.podIP"},
        {"path": "items[4].spec.containers[0].image"},
        {"path": "items", "aggregate": "max:status.restartCount"},
        {"path": "items[].spec.nodeName", "aggregate": "distinct"},
    ],
    "small": [{"path": "id"}, {"path": "duration_ms"}],
    "sql_rows": [
        {"aggregate": "count"},
        {"aggregate": "sum(amount_cents)"},
        {"aggregate": "max:amount_cents"},
        {"where": {"status": "shipped"}, "aggregate": "count"},
        {"group_by": "status"},
        {"sort": "-amount_cents", "limit": 1, "select": "customer"},
        {"where": "order_id == 40634", "select": "status"},
        {"path": "[-1].order_id"},
        {"where": "region == 'us-east' and status == 'paid'", "aggregate": "sum:amount_cents"},
        {"where": "coupon != null", "aggregate": "count"},
    ],
    "timeseries": [
        {"path": "data.result", "aggregate": "count"},
        {"path": "data.result[].values[][1]", "aggregate": "max"},
        {"path": "data.result", "sort": "-values[][1]", "limit": 1, "select": "metric.instance"},
        {"path": "data.result[0]", "select": "len(values)"},
        {"path": "data.result", "where": 'metric.instance == "host-03:9100"', "select": "values[-1]"},
    ],
    "web_search": [
        {"path": "results", "aggregate": "count"},
        {"path": "results[0].url"},
        {"path": "results[6].url"},
        {"path": "results", "select": "url"},
        {"path": "results", "where": 'title == "Harbor Falcon Anchor Widget Signal"', "select": "published"},
        {"path": "results", "aggregate": "min:score"},
    ],
    "app_log": [
        {"aggregate": "count"},
        {"find": " ERROR ", "aggregate": "count"},
        {"regex": r"^\S+ (?P<level>\w+)", "group_by": "level"},
        {"find": "FATAL"},
        {"lines": "-1"},
        {"find": " 504 ", "aggregate": "count"},
    ],
    "html_page": [
        {"lines": "1-8"},
        {"regex": "<h2>", "aggregate": "count"},
        {"regex": "<h2>(.*?)</h2>", "select": "1"},
        {"regex": r"falcon</td><td[^>]*>(\d+)", "select": "1"},
        {"find": ">deprecated<", "aggregate": "count"},
    ],
    "markdown_doc": [
        {"regex": "^## ", "aggregate": "count"},
        {"regex": "^## (.*)", "select": "1"},
        {"find": "default port"},
        {"regex": "^```python", "aggregate": "count"},
    ],
    "test_log": [
        {"regex": "^FAILED ", "aggregate": "count"},
        {"lines": "-1"},
        {"regex": r"^FAILED (\S+)", "select": "1"},
        {"regex": ": AssertionError$", "limit": 1},
    ],
}


def is_answered(text: str, expected: Any) -> bool:
    wanted = expected if isinstance(expected, list) else [expected]
    return all(re.search(rf"(?<![\w.]){re.escape(str(one))}(?![\w])", text) for one in wanted)


def answers(folder: Path, name: str) -> list[tuple[bool, dict[str, Any], str]]:
    told = json.loads((folder / f"{name}.json").read_text("utf-8"))
    document = read((folder / f"{name}.payload").read_text("utf-8"), told["mime"])
    texts = [answer(read_query(asked), {"h": document}, ROOM).text for asked in ASKED[name]]
    return [
        (is_answered(text, question["answer"]), question, text)
        for question, text in zip(told["questions"], texts, strict=True)
    ]


@pytest.mark.skipif(not PAYLOADS.is_dir(), reason="the payloads are not in this copy")
@pytest.mark.parametrize("name", sorted(ASKED))
def test_a_query_answers_the_question(name: str) -> None:
    missed = [(question["q"], text) for is_right, question, text in answers(PAYLOADS, name) if not is_right]
    assert not missed
