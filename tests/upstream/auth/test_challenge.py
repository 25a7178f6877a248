"""Reading `WWW-Authenticate` (RFC 6750, RFC 9110, RFC 9728)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.upstream.auth.challenge import Challenge, join_scopes

META = "https://server.example/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", Challenge()),
        ("Basic realm=x", Challenge()),
        ("Bearer", Challenge()),
        (f'Bearer resource_metadata="{META}"', Challenge(resource_metadata=META)),
        (f"bearer scope=read, resource_metadata={META}", Challenge(scope="read", resource_metadata=META)),
        ('Bearer error="insufficient_scope", scope="a  b"', Challenge("insufficient_scope", "a b")),
        ('Bearer error_description="scope=no, really", scope="yes"', Challenge(scope="yes")),
        (r'Bearer realm="a \" b, scope=no", scope="yes"', Challenge(scope="yes")),
        ('Basic realm="x", Bearer scope="yes"', Challenge(scope="yes")),
        ('Bearer scope="one", scope="two"', Challenge(scope="one")),
        ('Bearer scope="no\u00ebl"', Challenge()),
        ('Bearer scope="a\\\\"', Challenge()),
    ],
)
def test_the_bearer_challenge_is_read(header: str, expected: Challenge) -> None:
    assert Challenge.parse(header) == expected


@given(st.text())
def test_any_header_is_read(header: str) -> None:
    """What is taken from it may go into a URL or a header again: printable ASCII."""
    read = Challenge.parse(header)
    for told in (read.error, read.scope, read.resource_metadata):
        assert told.isascii()
        assert not told or told.isprintable()


def test_of_a_long_header_only_the_beginning_is_read() -> None:
    """Whatever stands in it takes no time that grows with the square of its length."""
    assert Challenge.parse('Bearer error="x"' + ", a=b" * 5_000 + ', scope="far"') == Challenge("x")
    assert Challenge.parse('Bearer a="b"' + " " * 200_000 + '"') == Challenge()


SCOPE = st.lists(st.text("abc:./", min_size=1, max_size=5), max_size=4).map(" ".join)


@given(SCOPE)
def test_what_is_asked_for_again_is_read_again(scope: str) -> None:
    assert Challenge.parse(Challenge(resource_metadata=META).header(scope)) == Challenge("", scope, META)


def test_scopes_are_joined_once_each_in_order() -> None:
    assert join_scopes("a b", "", "b c", "a") == "a b c"


def test_more_rights_come_on_top() -> None:
    challenge = Challenge("", "a", META)
    assert challenge.with_more("") is challenge
    assert challenge.with_more("b") == Challenge("insufficient_scope", "a b", META)
