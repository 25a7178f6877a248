"""What a model chose, in all the forms in which models say it."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.search.llm_router import chosen_in
from mcpbridge.catalog.search.ranker import ToolText
from mcpbridge.core.llm.messages import ModelFailed


def tools_of(*ids: str) -> dict[str, ToolText]:
    """By the names that clients see: `server__tool`."""
    return {id_.replace("/", "__"): ToolText(id_, *id_.split("/")) for id_ in ids}


TOOLS = tools_of("github/create_issue", "github/search", "web/search", "web/open", "web/Open", "files/read-file")
ISSUE, READ = "github__create_issue", "files__read-file"


def chosen(answer: str, most: int = 8) -> list[str]:
    return list(chosen_in(answer, TOOLS, most))


@pytest.mark.parametrize(
    "answer",
    [
        f'["{ISSUE}","{READ}"]',
        f'\n```json\n[\n  "{ISSUE}",\n  "{READ}"\n]\n```\n',
        f'These fit [1]: ["{ISSUE}", "{READ}"]\nI left out {{all}} the others [see above].',
        f'{{"tools": ["{ISSUE}", "{READ}"]}}',
        f'{{"reasoning": ["web__open"], "tools": ["{ISSUE}", "{READ}"], "rejected": ["web__search"]}}',
        f'{{"selection": ["{ISSUE}", "{READ}"]}}',
        f'[{{"name": "{ISSUE}", "why": ["web__open"]}}, {{"tool": "{READ}", "args": []}}]',
        f'First ["web__open"] comes to mind. Better: ["{ISSUE}", "{READ}"]',
        f'<think>["web__open"]?</think>["{ISSUE}", "{READ}"]',
        f'["{ISSUE}", "{READ}"',
        f'["{ISSUE}", "{READ}", "web__op',
        f'["{ISSUE}", "{READ}",]',
        f'["{ISSUE}", // files issues\n "{READ}"]',
        f"['{ISSUE}', '{READ}']",
        f"- {ISSUE}\n- `{READ}`: reads files\n",
        f"1. **{ISSUE}**\n2) {READ}: reads it",
        '["create_issue", "read-file"]',
        '["github/create_issue", "files.read-file"]',
        '["GitHub__Create_Issue", " files__read-file "]',
        f'["{ISSUE}", "{ISSUE}", "nothing__such", 7, null, "{READ}", "create_issue"]',
    ],
)
def test_the_names_are_found_in_all_that_models_make_of_an_array(answer: str) -> None:
    assert chosen(answer) == [ISSUE, READ]


@pytest.mark.parametrize("answer", [f'{{"tool": "{ISSUE}"}}', ISSUE, f"`{ISSUE}`", f'"{ISSUE}"'])
def test_one_name_needs_no_array(answer: str) -> None:
    assert chosen(answer) == [ISSUE]


def test_what_several_could_be_meant_by_is_none_of_them() -> None:
    assert chosen('["search", "create_issue", "OPEN"]') == [ISSUE]
    assert chosen('["web__Open", "web__open"]') == ["web__Open", "web__open"]


def test_no_more_than_asked_for() -> None:
    assert chosen(f'["web__open", "{ISSUE}", "{READ}"]', most=2) == ["web__open", ISSUE]


@pytest.mark.parametrize(
    "answer", ["[]", "```json\n[]\n```", '{"tools": []}', "None of them is of use: []", '["x"] or []']
)
def test_nothing_can_be_chosen(answer: str) -> None:
    assert chosen(answer) == []


def test_what_is_set_aside_is_not_chosen() -> None:
    assert chosen(f'{{"tools": [], "rejected": ["{ISSUE}"]}}') == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "wrote nothing"),
        (" \n", "wrote nothing"),
        ("<think>github__create_issue", "wrote nothing"),
        ("I cannot help with that.", "no tool that there is"),
        ('["rm -rf", "sudo"]', "no tool that there is"),
        ("[1, 2]", "no tool that there is"),
        ('{"answer": 42}', "no tool that there is"),
        ("{}", "no tool that there is"),
        ('["\\ud800"]', "no tool that there is"),
        ('["' + "1" * 100, "no tool that there is"),
        ("[" + "1" * 10_000 + "]", "no tool that there is"),
    ],
)
def test_what_is_no_choice_is_a_failure(answer: str, reason: str) -> None:
    with pytest.raises(ModelFailed, match=reason):
        chosen(answer)


HOSTILE = {
    "brackets": "[" * 2_000_000,
    "quoted brackets": '["[' * 700_000,
    "both brackets": "{[" * 500_000,
    "escapes": '"\\' * 500_000,
    "one long string": '["' + "a" * 2_000_000,
    "lines": "a\n" * 999_999,
    "quotes": "'" * 1_000_000,
    "half quoted": "[" + "'a" * 500_000,
    "blanks": " " * 1_000_000 + "x",
    "cut objects": '{"tools":' * 300_000,
    "deep": "[{" * 900 + "}]" * 900,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_answers_take_no_time(kind: str) -> None:
    begun = time.process_time()
    with pytest.raises(ModelFailed):
        chosen(HOSTILE[kind])
    assert time.process_time() - begun < 1


NAMES = st.lists(st.sampled_from([*TOOLS, "unknown", "search", ""]), max_size=12)


@given(NAMES, st.integers(1, 8), st.text(alphabet="ab []{}\n", max_size=30).filter(lambda text: "[" not in text))
def test_an_array_anywhere_is_read_in_its_order(names: list[str], most: int, after: str) -> None:
    answer = f"Sure:\n{json.dumps(names, indent=len(after) % 3)}{after}"
    expected = list(dict.fromkeys(name for name in names if name in TOOLS))[:most]
    if expected or not names:
        assert list(chosen_in(answer, TOOLS, most)) == expected
    else:
        with pytest.raises(ModelFailed):
            chosen_in(answer, TOOLS, most)


@given(st.text(alphabet="[]{}\",:\\ \n`'_abcdegikmrhtu-*1.", max_size=200) | st.text(max_size=200), st.integers(1, 8))
def test_whatever_is_written_only_tools_that_there_are_come_of_it(answer: str, most: int) -> None:
    try:
        found = chosen_in(answer, TOOLS, most)
    except ModelFailed:
        return
    assert len(found) == len(set(found)) <= most
    assert set(found) <= TOOLS.keys()
