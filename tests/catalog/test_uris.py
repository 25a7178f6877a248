import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.catalog.uris import (
    authority_of,
    is_web,
    published_uris,
    rewritten,
    rewritten_firmly,
    scheme_of,
    slugs,
    unwrapped,
)

SLUGS = {"work": "work", "home": "home"}


@pytest.mark.parametrize(
    ("uri", "scheme", "authority"),
    [
        ("file:///a", "file", ""),
        ("HTTP://Example.com/a", "http", "Example.com"),
        ("repo://{owner}/x", "repo", ""),
        ("git+ssh://host?x", "git+ssh", "host"),
        ("urn:isbn:1", "urn", ""),
        ("{+uri}", "", ""),
        ("no scheme", "", ""),
        ("", "", ""),
    ],
)
def test_parts_of_a_uri(uri: str, scheme: str, authority: str) -> None:
    assert (scheme_of(uri), authority_of(uri)) == (scheme, authority)


def test_only_web_addresses_are_web_addresses() -> None:
    assert [uri for uri in ("http://a", "HTTPS://a", "httpx://a", "file:///http:") if is_web(uri)] == [
        "http://a",
        "HTTPS://a",
    ]


@pytest.mark.parametrize(
    ("uri", "form"),
    [
        ("file:///notes", "mcpb+work+file:///notes"),
        ("urn:isbn:1", "mcpb+work+urn:isbn:1"),
        ("file:///{+path}{?page}", "mcpb+work+file:///{+path}{?page}"),
        ("notes/today", "mcpb+work:notes/today"),
        ("ui://chart", "ui://work/chart"),
        ("ui://{app}/x", "ui://work/{app}/x"),
    ],
)
def test_the_rewritten_form_names_the_server(uri: str, form: str) -> None:
    """Valid URIs (RFC 3986); `ui` must survive (MCP Apps); variables are kept (RFC 6570)."""
    assert rewritten("work", uri) == form


def test_what_only_one_server_has_stays_as_it_is() -> None:
    owned = [("work", "file:///a"), ("home", "file:///b")]
    assert published_uris(owned, SLUGS) == {("work", "file:///a"): "file:///a", ("home", "file:///b"): "file:///b"}


def test_what_several_have_is_rewritten_for_all_of_them() -> None:
    assert published_uris([("work", "x:a"), ("home", "x:a")], SLUGS) == {
        ("work", "x:a"): "mcpb+work+x:a",
        ("home", "x:a"): "mcpb+home+x:a",
    }


def test_web_addresses_are_never_rewritten() -> None:
    owned = [("work", "https://a/"), ("home", "https://a/")]
    assert set(published_uris(owned, SLUGS).values()) == {"https://a/"}


def test_a_form_of_ours_that_a_server_lists_itself_is_rewritten() -> None:
    """An upstream may be another bridge."""
    owned = [("home", "mcpb+work+x:a"), ("work", "x:a")]
    assert published_uris(owned, SLUGS)["home", "mcpb+work+x:a"] == "mcpb+home+mcpb+work+x:a"


def test_an_app_that_meets_anothers_rewritten_form_is_rewritten_too() -> None:
    owned = [("work", "ui://x"), ("home", "ui://x"), ("third", "ui://work/x")]
    published = published_uris(owned, {**SLUGS, "third": "third"})
    assert published["third", "ui://work/x"] == "ui://third/work/x"
    assert len(set(published.values())) == 3


def test_slugs_are_unique_though_a_scheme_has_few_letters() -> None:
    found = slugs(["A", "a", "b c", ""])
    assert len(set(found.values())) == 4
    assert found["b c"] == "b-c"
    assert all(unwrapped(f"mcpb+{slug}+x:y") == (slug, "x:y") for slug in found.values())


def test_a_server_named_like_anothers_slug_takes_nothing() -> None:
    imitation = slugs(["A", "a"])["A"]
    found = slugs(["A", "a", imitation])
    assert found[imitation] == imitation
    assert len(set(found.values())) == 3


servers = st.sampled_from(["a", "b", "A", "ü", "a-b", "work"])
uris = st.sampled_from(["file:///x", "ui://x", "ui://a/x", "ui://b/a/x", "x", "", "mcpb+a+x", "mcpb+a:x"]) | st.text(
    "abu:/+mcp", max_size=8
)


@given(st.lists(st.tuples(servers, uris), max_size=30))
def test_published_uris_are_unique(owned: list[tuple[str, str]]) -> None:
    published = published_uris(owned, slugs(server for server, _ in owned))
    not_web = [uri for (_, original), uri in published.items() if not is_web(original)]
    assert len(set(not_web)) == len(not_web)
    assert published.keys() == set(owned)


@given(st.sets(st.text(max_size=5), min_size=1, max_size=8), st.text(max_size=20))
def test_the_firm_form_can_always_be_undone(names: set[str], uri: str) -> None:
    for slug in slugs(names).values():
        assert unwrapped(rewritten_firmly(slug, uri)) == (slug, uri)
