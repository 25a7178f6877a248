"""What proxies say counts where they are trusted, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.downstream.auth.trusted_proxies import TrustedProxies
from mcpbridge.downstream.settings import HttpSettings
from support.http_front import LEGACY, request, serving

PROXIES = TrustedProxies(["127.0.0.1", "10.0.0.0/8", "fd00::/8"])


# ruff: noqa: E501 - a table with one case a line
@pytest.mark.parametrize(
    ("peer", "headers", "expected"),
    [
        ("203.0.113.9", {"x-forwarded-for": "198.51.100.1"}, ("203.0.113.9", "", b"")),
        ("203.0.113.9", {"forwarded": "for=198.51.100.1;host=evil"}, ("203.0.113.9", "", b"")),
        ("127.0.0.1", {}, ("127.0.0.1", "", b"")),
        ("127.0.0.1", {"x-forwarded-for": "198.51.100.1"}, ("198.51.100.1", "", b"")),
        ("127.0.0.1", {"x-forwarded-for": "1.2.3.4, 198.51.100.1"}, ("198.51.100.1", "", b"")),
        ("127.0.0.1", {"x-forwarded-for": "1.2.3.4, 198.51.100.1, 10.1.1.1"}, ("198.51.100.1", "", b"")),
        ("127.0.0.1", {"x-forwarded-for": "10.2.2.2, 10.1.1.1"}, ("10.2.2.2", "", b"")),
        ("127.0.0.1", {"x-forwarded-for": "junk"}, ("127.0.0.1", "", b"")),
        ("127.0.0.1", {"x-forwarded-for": "1.2.3.4, unknown"}, ("127.0.0.1", "", b"")),
        ("127.0.0.1", {"x-forwarded-for": "198.51.100.1:4711"}, ("198.51.100.1", "", b"")),
        ("127.0.0.1", {"x-forwarded-for": "[2001:db8::1]:4711"}, ("2001:db8::1", "", b"")),
        ("::ffff:127.0.0.1", {"x-forwarded-for": "198.51.100.1"}, ("198.51.100.1", "", b"")),
        ("fd00::1", {"x-forwarded-for": "2001:db8::1"}, ("2001:db8::1", "", b"")),
        ("127.0.0.1", {"x-forwarded-proto": "https", "x-forwarded-host": "b.example"}, ("127.0.0.1", "https", b"b.example")),
        ("127.0.0.1", {"x-forwarded-proto": "gopher", "x-forwarded-host": "a b"}, ("127.0.0.1", "", b"")),
        ("127.0.0.1", {"forwarded": 'for="[2001:db8::1]:1";proto=https;host=b.example'}, ("2001:db8::1", "https", b"b.example")),
        ("127.0.0.1", {"forwarded": "for=1.2.3.4;host=evil, for=198.51.100.1;proto=http;host=b"}, ("198.51.100.1", "http", b"b")),
        ("127.0.0.1", {"forwarded": 'for=198.51.100.1;host="a,b"'}, ("198.51.100.1", "", b"")),
        ("127.0.0.1", {"forwarded": "for=_hidden"}, ("127.0.0.1", "", b"")),
        ("127.0.0.1", {"forwarded": "for=198.51.100.1", "x-forwarded-for": "1.2.3.4"}, ("198.51.100.1", "", b"")),
        ("", {"x-forwarded-for": "1.2.3.4"}, ("", "", b"")),
    ],
)  # fmt: skip
def test_of_a_chain_the_last_address_counts_that_is_no_proxy(
    peer: str, headers: dict[str, str], expected: tuple[str, str, bytes]
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    forwarded, _ = PROXIES.heed(peer, raw)
    assert (forwarded.client, forwarded.scheme, forwarded.host) == expected


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_header_can_be_read(standard: bytes, chain: bytes) -> None:
    PROXIES.heed("127.0.0.1", [(b"forwarded", standard)])
    PROXIES.heed("127.0.0.1", [(b"x-forwarded-for", chain), (b"x-forwarded-host", standard)])


@pytest.mark.parametrize("trusted", [["127.0.0.0/8"], []])
async def test_the_front_knows_the_address_of_its_client(trusted: list[str]) -> None:
    settings = HttpSettings(trusted_proxies=trusted, allowed_hosts=["b.example"])
    async with serving(settings) as http:
        opening = request("initialize", protocolVersion=LEGACY)
        said = {"x-forwarded-for": "198.51.100.1", "x-forwarded-host": "b.example"}
        assert (await http.post(opening, **said)).status_code == 200
        assert http.core.clients[-1].address == ("198.51.100.1" if trusted else "127.0.0.1")
        response = await http.post(opening, **(said | {"x-forwarded-host": "evil.example"}))
        assert response.status_code == (421 if trusted else 200)


@pytest.mark.parametrize("entry", ["proxy.example.com", "10.0.0.0/99", ""])
def test_what_is_no_network_is_said(entry: str) -> None:
    with pytest.raises(ValueError, match="addresses or networks"):
        HttpSettings(trusted_proxies=[entry])
