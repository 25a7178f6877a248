"""100,000 calls page at once: counted in steps of the database, which no busy machine changes."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.storage.call_log.reader import Filter, read_page

ROOT = Path(__file__).parents[2]
CALLS = 100_000
_GRAIN = 1000


@dataclass
class Work:
    """What reading cost."""

    steps: int = 0
    """Instructions of SQLite's machine, to a thousand."""
    statements: int = 0


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    work, connect = Work(), sqlite3.connect

    def stepped() -> int:
        work.steps += _GRAIN
        return 0

    def said(statement: str) -> None:
        work.statements += statement.startswith("SELECT")

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_progress_handler(stepped, _GRAIN)
        connection.set_trace_callback(said)
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", connected)
        yield work


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Mapping[str, Filter]]]:
    """A call log of many calls, and filters for it."""
    path = tmp_path_factory.mktemp("many") / "calls.db"
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT))
        from benchmarks.call_log_pages import FILTERS, fill

        fill(path, CALLS)
        yield path, FILTERS


def test_a_page_looks_at_each_call_once_at_most(
    many: tuple[Path, Mapping[str, Filter]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 20: 100,000 calls page at once, whatever is filtered by."""
    path, filters = many
    spent: dict[str, Work] = {}
    for name, which in filters.items():
        with counted(monkeypatch) as spent[name]:
            page = read_page(path, which, limit=50)
        assert len(page.rows) <= 50
    assert {name: work for name, work in spent.items() if work.statements > 3} == {}
    assert {name: work for name, work in spent.items() if work.steps > 10 * CALLS} == {}
    usual = ("none", "server", "client", "user", "went wrong", "last hour", "session")
    assert {name: spent[name] for name in usual if spent[name].steps > CALLS / 2} == {}


def test_the_newest_and_the_next_page_look_at_little_more_than_what_they_show(
    many: tuple[Path, Mapping[str, Filter]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = many
    with counted(monkeypatch) as work:
        page = read_page(path, Filter(), limit=50)
        older = read_page(path, Filter(), limit=50, before=page.before)
        newer = read_page(path, Filter(), limit=1, after=page.after)
    assert [row["id"] for row in (*page.rows, *older.rows)] == list(range(CALLS, CALLS - 100, -1))
    assert newer.rows == []
    assert work.steps < 20_000
