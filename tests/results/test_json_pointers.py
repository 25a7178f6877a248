"""JSON pointers (RFC 6901)."""

import pytest

from mcpbridge.results.exact_json import NotThere, pointed_at

RFC = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8}


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", RFC),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/c%25d", 2),
        ("/e%5Ef", 3),
        ('/k"l', 6),
        ("/%20", 7),
        ("/m~0n", 8),
        ("/foo/-1", "baz"),
    ],
)
def test_the_examples_of_the_rfc(pointer: str, expected: object) -> None:
    assert pointed_at(RFC, pointer) == expected


@pytest.mark.parametrize(
    ("pointer", "told"),
    [
        ("/nope", "'nope'.*foo"),
        ("/foo/2", "list of 2"),
        ("/foo/-", "list of 2"),
        ("/foo/--1", "list of 2"),
        ("/foo/\u0661", "list of 2"),
        ("/foo/99999999999999999999", "list of 2"),
        ("/foo/0/x", "neither an object nor a list"),
        ("foo", "begins with /"),
    ],
)
def test_what_finds_nothing_says_what_is_there(pointer: str, told: str) -> None:
    with pytest.raises(NotThere, match=told):
        pointed_at(RFC, pointer)
