"""`name | transform: expression`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.sandbox.javascript.scripts import transform_suffix


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("list_commits | transform: result.slice(0,5)", ("list_commits", "result.slice(0,5)")),
        ("list_commits|transform:result", ("list_commits", "result")),
        ("list  |  _transform :  a | b ", ("list", "a | b")),
        ("| transform: result", ("", "result")),
        ("a | transform: x | transform: y", ("a", "x | transform: y")),
        ("list_commits", None),
        ("list_commits | transform:", None),
        ("transform: x", None),
        ("a | transformed: x", None),
    ],
)
def test_a_suffix_is_split_off(text: str, parts: tuple[str, str] | None) -> None:
    assert transform_suffix(text) == parts


@given(st.text().filter(lambda name: "|" not in name), st.text(min_size=1).filter(lambda text: bool(text.strip())))
def test_what_is_joined_is_split_again(name: str, expression: str) -> None:
    assert transform_suffix(f"{name} | transform: {expression}") == (name.rstrip(), expression.strip())
