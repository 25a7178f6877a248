"""The index of each server on disk: used again while its texts are the same, and never a reason to fail (issue 21)."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.search import index
from mcpbridge.catalog.search.index import CatalogRankers
from mcpbridge.catalog.search.index_cache import IndexCache, digest_of
from mcpbridge.catalog.search.ranker import ServerText, ToolText

SERVERS = {
    "repos": {"create_issue": "Open a new issue", "fork": "Copy a repository"},
    "weather": {"forecast": "Rain and sun of the coming days"},
}
QUERY = "will it rain tomorrow, and report a bug"

Catalog = list[tuple[ServerText, list[ToolText]]]


class Disk:
    """What an index cache saves, and what it asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.saved: list[str] = []

    def save(self, key: str, data: bytes) -> None:
        self.files[key] = data
        self.saved.append(key)

    def rankers(self) -> CatalogRankers:
        """Those of a new process."""
        return CatalogRankers(IndexCache(lambda key: self.files.get(key, b""), self.save))


def catalog(changed: str = "") -> Catalog:
    return [
        (
            ServerText(server, tags=("one", "two")),
            [
                ToolText(f"{server}/{name}", server, name, description=about + (changed if server == "repos" else ""))
                for name, about in tools.items()
            ],
        )
        for server, tools in SERVERS.items()
    ]


def test_the_next_process_answers_the_same_and_makes_nothing_anew() -> None:
    disk = Disk()
    first = disk.rankers().of(catalog()).rank(QUERY, 10)
    assert disk.saved == ["index of repos", "index of weather"]
    assert disk.rankers().of(catalog()).rank(QUERY, 10) == first == CatalogRankers().of(catalog()).rank(QUERY, 10)
    assert disk.saved == ["index of repos", "index of weather"]


def test_only_the_server_that_changed_is_read_again() -> None:
    disk = Disk()
    rankers = disk.rankers()
    rankers.of(catalog())
    disk.saved.clear()
    changed = catalog(" about rain")
    assert rankers.of(changed).rank(QUERY, 10) == CatalogRankers().of(changed).rank(QUERY, 10)
    assert disk.saved == ["index of repos"]


@given(st.sampled_from(["index of repos", "index of weather"]), st.data())
def test_a_damaged_file_is_made_anew(key: str, data: st.DataObject) -> None:
    disk = Disk()
    whole = disk.rankers().of(catalog()).rank(QUERY, 10)
    good = disk.files[key]
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = data.draw(st.sampled_from([good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], b"", good * 2]))
    disk.files[key] = damaged
    disk.saved.clear()
    assert disk.rankers().of(catalog()).rank(QUERY, 10) == whole
    assert disk.saved == [key]
    assert disk.files[key] == good


@pytest.mark.parametrize(
    "tool",
    [
        ToolText("s/\ud800", "s", "half a character"),
        ToolText("s/big", "s", "big", schema={"default": 10**400}),
        ToolText("s/odd", "s", "odd", schema={"properties": {"a": [float("nan"), float("inf")]}}),
    ],
    ids=["half a character", "big number", "not a number"],
)
def test_texts_that_cannot_be_written_are_indexed_all_the_same(tool: ToolText) -> None:
    disk = Disk()
    hits = disk.rankers().of([(ServerText("s"), [tool])]).rank(tool.name, 3)
    assert [hit.id for hit in hits] == [tool.id]
    assert digest_of(ServerText("s"), [tool]) != digest_of(ServerText("t"), [tool])


def test_the_thread_that_makes_an_index_gives_way_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event loop beside it never waits for the whole index."""
    pauses: list[float] = []
    monkeypatch.setattr(index, "time", SimpleNamespace(sleep=pauses.append))
    CatalogRankers().of([(ServerText("s"), [ToolText(f"s/{number}", "s", f"n{number}") for number in range(400)])])
    assert len(pauses) >= 400 / 8
