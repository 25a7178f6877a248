"""Which addresses a server may send us to: credentials go to its own origin alone (RFC 6454, section 4)."""

import httpx2
import pytest

from mcpbridge.protocol.http.same_origin import is_same_origin, redirect_target

STATUSES = frozenset({307, 308})


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("https://a.example/x", "https://a.example/y?z", True),
        ("https://a.example/", "https://a.example:443/", True),
        ("http://a.example/", "http://a.example:80/", True),
        ("ws://a.example/", "ws://a.example:80/", True),
        ("wss://a.example/", "wss://a.example:443/", True),
        ("https://A.example/", "https://a.EXAMPLE/", True),
        ("https://a.example:8443/", "https://a.example:8443/x", True),
        ("https://u:p@a.example/", "https://a.example/", True),
        ("http://[::1]:1/", "http://[::1]:1/x", True),
        ("https://a.example/", "http://a.example/", False),
        ("https://a.example:80/", "http://a.example:80/", False),
        ("https://a.example/", "https://a.example:8443/", False),
        ("https://a.example/", "https://a.example:80/", False),
        ("http://a.example/", "http://a.example:443/", False),
        ("ws://a.example/", "wss://a.example/", False),
        ("ws://a.example/", "ws://a.example:443/", False),
        ("wss://a.example/", "wss://a.example:80/", False),
        ("http://a.example/", "ws://a.example/", False),
        ("https://a.example:1/", "https://a.example:2/", False),
        ("https://a.example/", "https://b.example/", False),
        ("https://a.example/", "https://x.a.example/", False),
        ("https://a.example/", "https://a.example.evil/", False),
        ("https://a.example/", "https://a.example@evil/", False),
        ("https://a.example/", "https://a.example:0/", False),
        ("http://127.0.0.1/", "http://localhost/", False),
    ],
)
def test_scheme_host_and_port_make_an_origin(one: str, other: str, is_same: bool) -> None:
    assert is_same_origin(httpx2.URL(one), httpx2.URL(other)) is is_same
    assert is_same_origin(httpx2.URL(other), httpx2.URL(one)) is is_same


@pytest.mark.parametrize(
    ("status", "location", "target"),
    [
        (307, "/other", "https://a.example:8443/other"),
        (308, "https://a.example:8443/other?q=1", "https://a.example:8443/other?q=1"),
        (307, "there", "https://a.example:8443/mcp/there"),
        (307, "//a.example:8443/x", "https://a.example:8443/x"),
        (307, "?q", "https://a.example:8443/mcp/?q"),
        (302, "/other", None),
        (200, "/other", None),
        (307, "", None),
        (307, None, None),
        (307, "https://a.example/other", None),
        (307, "http://a.example:8443/other", None),
        (307, "https://evil.example:8443/", None),
        (307, "//evil.example/", None),
        (307, "https://a.example:8443@evil.example/", None),
        (307, "https://[", None),
        (307, "javascript:alert(1)", None),
    ],
)
def test_a_redirect_is_followed_on_the_same_origin_only(status: int, location: str | None, target: str | None) -> None:
    request = httpx2.Request("POST", "https://a.example:8443/mcp/")
    headers = {} if location is None else {"location": location}
    found = redirect_target(httpx2.Response(status, headers=headers, request=request), STATUSES)
    assert (None if found is None else str(found)) == target
