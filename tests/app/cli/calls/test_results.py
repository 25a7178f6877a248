"""`mcpbridge results`: what bridges kept is found, read as it was sent, and forgotten (issue 5, Store)."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from support.harness import Finished
from support.kept_results import keep, result_of

Run = Callable[..., Finished]

ROWS = json.dumps([{"id": 12345678901234567890, "price": 1.10, "name": f"row {number}"} for number in range(300)])


def listed(alone: Run, *words: str) -> list[str]:
    finished = alone("results", *words, "--json")
    assert finished.code == 0, finished.err
    return [one["handle"] for one in json.loads(finished.out)["results"]]


def test_what_was_kept_is_listed_with_what_is_known_of_it(alone: Run) -> None:
    handle = keep(
        result_of(ROWS),
        tool="sql/query",
        arguments='{"q":"select 1"}',
        kind="json",
        headline="JSON array of 300 objects",
        chars=len(ROWS),
        client="ear",
        at=1_800_000_000,
    )
    finished = alone("results")
    assert finished.code == 0
    assert [line.split()[0] for line in finished.out.splitlines()] == ["Handle", handle]
    assert all(word in finished.out for word in ("sql/query", "JSON array of 300 objects", '{"q":"select 1"}'))
    assert json.loads(alone("results", "list", "--json").out)["results"] == [
        {
            "handle": handle,
            "at": "2027-01-15T08:00:00Z",
            "tool": "sql/query",
            "arguments": '{"q":"select 1"}',
            "outcome": "ok",
            "kind": "json",
            "headline": "JSON array of 300 objects",
            "chars": len(ROWS),
            "client": "ear",
        }
    ]


def test_words_find_results_and_users_have_their_own(alone: Run) -> None:
    log = keep(result_of("a log"), tool="logs/tail", arguments='{"host":"Berlin"}', outcome="tool_error")
    page = keep(result_of("a page"), tool="web/fetch", headline="HTML of Berlin")
    hers = keep(result_of("hers"), principal="ann")
    assert set(listed(alone)) == {log, page}
    assert listed(alone, "--search", "berlin tail") == [log]
    assert listed(alone, "list", "--search", "tool_error") == [log]
    assert listed(alone, "--search", "nowhere") == []
    assert listed(alone, "--principal", "ann") == [hers]
    assert len(listed(alone, "-n", "1")) == 1
    assert "no kept result matches" in alone("results", "--search", "nowhere").err


def test_a_result_is_shown_as_it_was_sent(alone: Run, tmp_path: Path) -> None:
    data = result_of(ROWS, "and a word", _meta={"x": 1})
    handle = keep(data)
    assert alone("results", "show", handle).out == f"{ROWS}\nand a word\n"
    assert alone("results", "show", handle, "--raw").out == data.decode()
    file = tmp_path / "result.json"
    finished = alone("results", "show", handle[:5].upper(), "--raw", "--output", str(file))
    assert (finished.code, finished.out, file.read_bytes()) == (0, "", data)
    assert alone("results", "show", handle, "--output", str(file)).code == 0
    assert file.read_text() == f"{ROWS}\nand a word"
    finished = alone("results", "show", handle, "--output", str(tmp_path / "absent" / "x"))
    assert finished.code == 2
    assert "cannot be written" in finished.err


@pytest.mark.skipif(os.name == "nt", reason="there are no such rights")
def test_what_is_written_into_a_new_file_nobody_else_can_read(alone: Run, tmp_path: Path) -> None:
    """As in the store."""
    handle = keep(result_of(ROWS))
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("x" * 1_000_000)
    old.chmod(0o640)
    for file in (new, old):
        assert alone("results", "show", handle, "--output", str(file)).code == 0
        assert file.read_text() == ROWS
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_a_preview_is_what_a_model_might_get(alone: Run) -> None:
    handle = keep(result_of(ROWS))
    finished = alone("results", "show", handle, "--preview", "600")
    assert 0 < len(finished.out) <= 601
    assert "array of 300 objects" in finished.out


def test_a_result_without_text_is_told_as_such(alone: Run) -> None:
    data = json.dumps({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}).encode()
    finished = alone("results", "show", keep(data))
    assert finished.out.strip() == ""
    assert "--raw" in finished.err


@pytest.mark.parametrize("handle", ["a" * 26, "zz", ""])
def test_what_is_not_there_is_said_with_an_exit_code_of_its_own(alone: Run, handle: str) -> None:
    other = keep(result_of("hers"), principal="ann")
    for wanted in (handle, other):
        finished = alone("results", "show", wanted)
        assert finished.code == 5
        assert "mcpbridge results" in finished.err
        assert alone("results", "rm", wanted).code == 5


def test_a_beginning_that_several_have_is_not_enough(alone: Run) -> None:
    first: dict[str, str] = {}
    for number in range(40):  # there are 32 letters
        handle = keep(result_of(f"number {number}"))
        if handle[0] in first:
            break
        first[handle[0]] = handle
    finished = alone("results", "show", handle[0])
    assert finished.code == 2
    assert handle in finished.err
    assert first[handle[0]] in finished.err


def test_results_are_forgotten_by_name_and_all_at_once(alone: Run) -> None:
    handles = [keep(result_of(text)) for text in ("one", "two", "three")]
    hers = keep(result_of("hers"), principal="ann")
    finished = alone("results", "rm", handles[0])
    assert (finished.code, finished.out) == (0, "")
    assert "1 result forgotten" in finished.err
    assert set(listed(alone)) == set(handles[1:])
    finished = alone("results", "rm", "--all")
    assert finished.code == 2, "nobody is there to agree"
    assert "--yes" in finished.err
    forgotten = json.loads(alone("results", "rm", "--all", "--yes", "--json").out)["forgotten"]
    assert sorted(forgotten) == sorted(handles[1:])
    assert listed(alone) == []
    assert listed(alone, "--principal", "ann") == [hers]


def test_what_shall_be_forgotten_is_named_one_way_or_the_other(alone: Run) -> None:
    assert alone("results", "rm").code == 2
    assert alone("results", "rm", "--all", "abc").code == 2
    assert alone("results", "show", "abc", "--raw", "--preview", "5").code == 2


def test_looking_makes_no_store(alone: Run, tmp_path: Path) -> None:
    finished = alone("results")
    assert finished.code == 0
    assert "there is no store yet" in finished.err
    config = tmp_path / "memory.toml"
    config.write_text('[store]\nkind = "memory"\n')
    assert "in its memory" in alone("results", "--config", str(config)).err
    assert not [*tmp_path.rglob("*.db")]
