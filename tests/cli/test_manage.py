"""`manage`: management commands of tools, done by the bridges that run, or by one for this alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from daemons import daemon
from harness import Finished, Place

Run = Callable[..., Finished]

CODE = '''
import os

class Glossary:
    commands = {"reindex", "count", "fail", "nothing"}

    def __init__(self):
        self.words = ["a"]

    def execute(self) -> list[str]:
        """The words."""
        return self.words

    def execute_command(self, name, data):
        if name == "fail":
            raise RuntimeError("no index, and the password is " + os.environ["GLOSSARY_KEY"])
        if name == "reindex":
            self.words = data["words"]
        return {"reindex": "indexed " + str(data.get("words")), "count": {"words": len(self.words)}}.get(name)
'''
TOOLS = """
[tools.glossary]
executor_class = "glossary_of_test.Glossary"
description = "Words. ${GLOSSARY_KEY}"

[tools.today]
command = ["date"]
"""
SECRET = "hunter2hunter2"


def written(folder: Path) -> Path:
    (folder / "glossary_of_test.py").write_text(CODE)
    path = folder / "servers.toml"
    path.write_text(TOOLS)
    return path


@pytest.fixture
def here(alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command where no bridge runs."""
    monkeypatch.setenv("MCPBRIDGE_CONFIG", str(written(tmp_path)))
    monkeypatch.setenv("GLOSSARY_KEY", SECRET)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return alone


async def test_the_bridges_that_run_do_it_and_keep_what_it_changed(place: Place) -> None:
    """In the object that answers calls, not in one beside it."""
    config = written(place.folder)
    place.env = {"PYTHONPATH": str(place.folder), "GLOSSARY_KEY": SECRET, "MCPBRIDGE_CONFIG": str(config)}
    async with daemon(place, config):
        done = await place.run("manage", "tools/glossary", "reindex", 'words=["x", "y", "z"]')
        assert (done.code, done.out, done.err) == (0, "indexed ['x', 'y', 'z']\n", "")
        counted = await place.run("manage", "glossary", "count", "--json")
        assert counted.code == 0
        document = json.loads(counted.out)
        assert document["ok"] is True
        assert [one["result"] for one in document["bridges"]] == [{"words": 3}]
        failed = await place.run("manage", "glossary", "fail")
        assert failed.code == 5
        assert "no index" in failed.err
        assert SECRET not in failed.err
        unknown = await place.run("manage", "glossary", "reindx")
        assert (unknown.code, "did you mean" in unknown.err) == (2, True), unknown.err


def test_where_no_bridge_runs_one_does_it_that_is_there_for_this_alone(here: Run) -> None:
    done = here("manage", "glossary", "count")
    assert (done.code, json.loads(done.out)) == (0, {"words": 1})
    assert "no bridge runs" in done.err
    quiet = here("manage", "glossary", "count", "--json")
    assert (quiet.code, quiet.err) == (0, "")
    assert here("manage", "glossary", "nothing").out == "done\n"
    given = here("manage", "glossary", "reindex", "--data", '{"words": ["q"]}')
    assert given.out == "indexed ['q']\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["glossari", "count"], 2, "glossary"),
        (["glossary", "conut"], 2, "count"),
        (["today", "count"], 2, "Unknown management command: count"),
        (["glossary", "fail"], 5, "no index"),
        (["glossary", "count", "word"], 2, "--data"),
        (["glossary", "count", "--data", "[]"], 2, "--data: expected a JSON object"),
        (["glossary", "count", "--data", "{}", "a=b"], 2, "not both"),
        (["glossary", "count", f"a={'x' * 70_000}"], 2, "larger than"),
        (["glossary", "count", "--config", "nowhere.toml"], 2, "nowhere.toml"),
    ],
)
def test_what_cannot_be_done_is_told(here: Run, words: list[str], code: int, told: str) -> None:
    for more in ([], ["--json"]):
        finished = here("manage", *words, *more)
        assert finished.code == code, finished.err
        assert told in finished.err + finished.out
        assert SECRET not in finished.err + finished.out
