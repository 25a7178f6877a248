"""How many functions of the bridge a call passes, with nothing configured and with each stage: no more, unseen.

The figures are counts, so they are the same on every machine.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

MOST_ENTRIES = {
    "plain": 34,
    "without pins and scanner": 34,
    "plain over HTTP": 44,  # those of the HTTP server are in it
    "plain to HTTP": 42,
    "plain from HTTP to HTTP": 52,
    "with _meta": 41,
    "with _meta over HTTP": 51,
    "with a progress token": 44,
    "from a client that can be asked, to HTTP": 43,
    "from a client that can be asked, HTTP to HTTP": 53,
    "modern client": 47,
    "modern client over HTTP": 53,
    "modern server": 51,
    "modern server over HTTP": 59,
    "modern client and server": 51,
    "modern client and server, HTTP to HTTP": 65,
    "results as they come": 33,
    "call log": 51,
    "history": 46,
    "no history": 34,
    "rule on arguments": 42,
    "rate limit": 42,
    "call budget": 39,
    "concurrency limit": 45,
    "deadline": 35,
    "retry": 37,
    "secrets redacted": 41,
    "cache": 97,
}
"""What was reached. Lower them with the way; whoever has to raise them says why."""

MOST_FILES = 17
"""Of the plain call."""

RECORD = Path(__file__).parent / "call_paths.json"
"""The entries behind these numbers: `python -m benchmarks.call_path --record tests/benchmarks/call_paths.json`."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[str]]:
    """The entries of each way, counted in a process of its own: nothing else runs there."""
    file = tmp_path_factory.mktemp("call_path") / "found.json"
    command = [sys.executable, "-m", "benchmarks.call_path", "--record", str(file)]
    subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=300, check=True)
    return json.loads(file.read_text())


@pytest.mark.parametrize("way", MOST_ENTRIES)
def test_a_call_passes_no_more_functions_than_it_did(way: str, found: Mapping[str, Sequence[str]]) -> None:
    """Promise of the bridge: a tool has the shortest way there is for what is configured for it."""
    recorded = json.loads(RECORD.read_text())[way]
    added = Counter(found[way]) - Counter(recorded)
    assert len(found[way]) <= MOST_ENTRIES[way], f"{way}: {len(found[way])} entries; added: {dict(added)}"


def test_a_plain_call_passes_few_files(found: Mapping[str, Sequence[str]]) -> None:
    files = {entry.partition(": ")[0] for entry in found["plain"]}
    assert len(files) <= MOST_FILES, sorted(files)


def test_pins_and_the_scanner_are_not_on_the_way_of_a_call(found: Mapping[str, Sequence[str]]) -> None:
    """Issue 22: what is on by default costs a call at most 3 % of CPU: these two look at lists, never at calls."""
    assert found["plain"] == found["without pins and scanner"]


def test_every_way_is_held_by_a_number_and_its_record(found: Mapping[str, Sequence[str]]) -> None:
    recorded = json.loads(RECORD.read_text())
    assert {way: len(entries) for way, entries in recorded.items()} == MOST_ENTRIES
    assert MOST_ENTRIES.keys() == found.keys()


PAGE = Path(__file__).parents[2] / "docs/explanation/architecture.md"


def named_in(heading: str) -> list[str]:
    """The files that a section of the page about the architecture names, in order."""
    section = PAGE.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"`([\w/]+\.py)`", section)


def test_the_page_about_the_architecture_has_the_way_of_a_call(found: Mapping[str, Sequence[str]]) -> None:
    """Who reads it meets every file that a plain call passes."""
    files = {entry.partition(": ")[0] for entry in found["plain"]}
    assert files - {*named_in("A tools/call, file by file")} == set()


def test_the_page_about_the_architecture_has_the_way_of_a_list() -> None:
    """Every file of the catalog and the front that the first list of a client passes; the main ones in their order."""
    command = [sys.executable, "-m", "benchmarks.call_path", "tools/list"]
    done = subprocess.run(command, cwd=PAGE.parents[2], capture_output=True, timeout=300, check=True, text=True)
    passed = list(dict.fromkeys(re.findall(r"^ *\d+  (\S+)", done.stdout, re.MULTILINE)))
    named = named_in("A tools/list, file by file")
    ours = {file for file in passed if file.startswith(("catalog/", "downstream/"))}
    assert ours - {*named, *named_in("A tools/call, file by file")} == set()
    main = [
        "downstream/server.py",
        "downstream/requests/lists.py",
        "upstream/startup_wait.py",
        "catalog/refresh.py",
        "catalog/listing/tool_lists.py",
        "catalog/snapshot.py",
        "catalog/listing/pagination.py",
        "downstream/session_events.py",
    ]
    assert [file for file in passed if file in main] == main
    assert sorted(main, key=named.index) == main
