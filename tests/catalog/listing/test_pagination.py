import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import BadRequest
from mcpbridge.catalog.listing.pagination import Entry, Listing

LEGACY, MODERN = "2025-11-25", "2026-07-28"
MODERN_MEMBERS = b'"resultType":"complete"'


def listing(*names: str, page_size: int = 0, kind: Any = "tools") -> Listing:
    entries = [Entry(("s", name), b'{"n":"%b"}' % name.encode(), b'{"m":1}', name.encode()) for name in sorted(names)]
    return Listing(kind, entries, page_size, MODERN_MEMBERS)


def walk(pages: Listing) -> list[list[str]]:
    seen: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = json.loads(pages.page(cursor, revision=LEGACY))
        seen.append([entry["n"] for entry in page["tools"]])
        cursor = page.get("nextCursor")
        if cursor is None:
            return seen


def test_everything_is_on_one_page_by_default() -> None:
    assert listing("a", "b").page(None, revision=LEGACY) == b'{"tools":[{"n":"a"},{"n":"b"}]}'
    assert listing().page(None, revision=LEGACY) == b'{"tools":[]}'


def test_modern_pages_end_with_the_members_that_modern_results_need() -> None:
    assert listing("a").page(None, revision=MODERN) == b'{"tools":[{"m":1}],"resultType":"complete"}'


def test_templates_are_listed_under_the_name_of_the_protocol() -> None:
    assert listing(kind="templates").page(None, revision=LEGACY) == b'{"resourceTemplates":[]}'


def test_cursors_lead_through_all_pages_in_order() -> None:
    assert walk(listing("c", "a", "e", "b", "d", page_size=2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert walk(listing("a", "b", page_size=2)) == [["a", "b"]]


def test_a_page_is_encoded_once() -> None:
    pages = listing("a", "b", "c", page_size=2)
    assert pages.page(None, revision=LEGACY) is pages.page(None, revision=LEGACY)
    cursor = json.loads(pages.page(None, revision=LEGACY))["nextCursor"]
    assert pages.page(cursor, revision=MODERN) is pages.page(cursor, revision=MODERN)


def test_an_empty_cursor_means_the_start() -> None:
    """Clients that always send the member send it empty at first."""
    assert listing("a").page("", revision=LEGACY) == listing("a").page(None, revision=LEGACY)


@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_a_cursor_keeps_its_place_when_the_list_changes(gone: str) -> None:
    """Spec, pagination: what is there all the time is seen, and once."""
    cursor = json.loads(listing("a", "b", "d", "e", page_size=2).page(None, revision=LEGACY))["nextCursor"]
    after = listing(*({"a", "b", "c", "d", "e"} - {gone}), page_size=2)
    shown = [entry["n"] for entry in json.loads(after.page(cursor, revision=LEGACY))["tools"]]
    assert shown == (["d", "e"] if gone == "c" else ["c", "d"])


def forged(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    ["x", "☃", "2", "null", forged(["prompts", "s", "a"]), forged(["tools", "s"]), forged(1), forged(["tools", 1, 2]),
     forged(["tools", "s", "a"]) + "==", forged(["tools", "s", "a"]) + "!!!!", "A" * 100_000],
)  # fmt: skip
def test_what_is_no_cursor_of_this_list_is_invalid_params(cursor: str) -> None:
    with pytest.raises(BadRequest, match="Invalid cursor") as refusal:
        listing("a", "b").page(cursor, revision=LEGACY)
    assert refusal.value.code == -32602


def test_the_digest_is_that_of_the_entries_not_of_the_pages() -> None:
    assert listing("a", "b").digest == listing("b", "a", page_size=1).digest
    assert listing("a").digest != listing("b").digest
    assert listing("a").digest != listing("a", kind="prompts").digest


@given(st.sets(st.text("abc", min_size=1, max_size=4), max_size=30), st.integers(1, 10))
def test_every_walk_sees_everything_once(names: set[str], page_size: int) -> None:
    assert [name for page in walk(listing(*names, page_size=page_size)) for name in page] == sorted(names)
