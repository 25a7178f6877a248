"""What previews are worth, held against the targets; and the rules by which that is told."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark starts programs as Linux does")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import result_scores

    return result_scores


@pytest.fixture
def rules(scores: ModuleType) -> ModuleType:
    from benchmarks import result_rules

    return result_rules


@pytest.mark.parametrize(
    ("budget", "saved", "shown", "one_step", "tokens"), [(2000, 0.97, 0.78, 0.995, 550), (800, 0.97, 0.65, 0.97, 1200)]
)
def test_previews_answer_what_they_should(
    scores: ModuleType, rules: ModuleType, budget: int, saved: float, shown: float, one_step: float, tokens: int
) -> None:
    """Issue 5: the targets of previews, by the functions that the bridge uses."""
    from benchmarks.result_methods import by_library

    found = scores.scored(by_library, rules.load(scores.PAYLOADS), budget, goes_on=True)
    figures = (found.saved, found.at_once, found.after_one_step, found.tokens_per_answer)
    assert found.saved >= saved, figures
    assert found.at_once >= shown, figures
    assert found.after_one_step >= one_step, figures
    assert found.tokens_per_answer <= tokens, figures


def test_the_lossless_form_of_json_is_short_and_exact(scores: ModuleType, rules: ModuleType) -> None:
    """Issue 5: at least 65 % of the tokens of JSON, and every value back to the last digit."""
    figures = scores.lossless_figures(rules.load(scores.PAYLOADS))
    assert figures.saved >= 0.65
    assert figures.exact == figures.values >= 9


def test_what_is_shown_never_exceeds_the_budget(scores: ModuleType, rules: ModuleType) -> None:
    from benchmarks.result_methods import by_library, truncated

    for payload in rules.load(scores.PAYLOADS):
        for method in (by_library, truncated):
            if len(payload.text) > 4000:
                assert len(method(payload.text, payload.mime, 2000).text) <= 2000


def question(rules: ModuleType, answer: object, *near: str) -> object:
    return rules.Question("?", answer, "result.length", ("items.size",), near)


@pytest.mark.parametrize(
    ("text", "answer", "near", "shown"),
    [
        ("count: 12", 12, ("count",), True),
        ("count: 112, 12.5, 12a", 12, ("count",), False),
        ("Count: 12", 12, ("count",), True),
        (f"count {'.' * 200} 12", 12, ("count",), False),
        (f"count {'.' * 200} 12", 12, (), True),
        ("state: open-ended", "open", ("state",), False),
        ('"a": true', True, ("a",), True),
        ("a, b and c", ["a", "c"], (), True),
        ("a, b", ["a", "c"], (), False),
        (r"say \"hi\" now", 'say "hi"', (), True),
        ("12", 12, ("12",), False),
    ],
)
def test_an_answer_counts_where_it_can_be_read_near_its_words(
    rules: ModuleType, text: str, answer: object, near: tuple[str, ...], shown: bool
) -> None:
    assert rules.shows(text, question(rules, answer, *near)) is shown


def test_a_step_counts_where_the_names_can_be_read(rules: ModuleType) -> None:
    payload = rules.Payload("p", "", "x" * 400, (question(rules, 7),))
    read = rules.score([payload], [rules.Answer("items: [size]")], goes_on=True)
    unread = rules.score([payload], [rules.Answer("items")], goes_on=True)
    without = rules.score([payload], [rules.Answer("items: [size]")], goes_on=False)
    assert (read.stepped, unread.stepped, without.stepped) == (1, 0, 0)
    assert read.cost == rules.token_count("items: [size]") + 50 + rules.token_count("result.length") + 1
    assert unread.cost == rules.token_count("items") + read.raw


def test_the_command_prints_a_table_and_figures() -> None:
    command = [sys.executable, "-m", "benchmarks.result_scores", "--library", "--no-peers", "--budget", "2000"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=True).stdout
    assert "| 2,000 | mcpbridge, by its library |" in shown
    assert str(ROOT) not in shown
    figures = json.loads(
        subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=170, check=True).stdout
    )
    assert {row["method"] for row in figures["rows"]} >= {"raw", "cut at N", "truncate", "lossless form"}
    assert figures["lossless_json"]["exact"] == figures["lossless_json"]["values"]


def test_the_bridge_is_scored_by_what_its_clients_are_given(scores: ModuleType, tmp_path: Path) -> None:
    """A running bridge before a server with the payloads; what it says to be complete answers everything."""
    payloads = tmp_path / "payloads"
    payloads.mkdir()
    for name in ("small", "csv_text", "id_map"):
        for ending in (".json", ".payload"):
            shutil.copy(scores.PAYLOADS / (name + ending), payloads)
    command = [sys.executable, "-m", "benchmarks.result_scores", "--no-peers", "--json", "--budget", "5000"]
    places = ["--payloads", str(payloads), "--work", str(tmp_path / "work")]
    done = subprocess.run([*command, *places], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["method"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["mcpbridge"]["saved"] > 0.5
    assert rows["mcpbridge"]["shown"] > rows["cut at N"]["shown"]
