"""What proxies say counts where they are trusted, and nowhere else."""

import time
from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.downstream.auth.trusted_proxies import TrustedProxies
from mcpbridge.downstream.settings import HttpSettings
from support.http_front import LEGACY, request, serving

NETWORKS = ["127.0.0.1", "10.0.0.0/8", "fd00::/8"]
USUAL = TrustedProxies(NETWORKS, sets_host=True)
STANDARD = TrustedProxies(NETWORKS, family="forwarded", sets_host=True)


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
        ("127.0.0.1", {"forwarded": 'for="1.2.3.4, for=198.51.100.1;host=b'}, ("198.51.100.1", "", b"b")),
        ("127.0.0.1", {"forwarded": 'for="1.2.3.4;x="\\", for=198.51.100.1;host="b:1"'}, ("198.51.100.1", "", b"b:1")),
        ("127.0.0.1", {"forwarded": 'for=198.51.100.1;x="\\";host=b;y="'}, ("127.0.0.1", "", b"")),
        ("127.0.0.1", {"forwarded": "for=198.51.100.1;host=b;host=evil"}, ("127.0.0.1", "", b"")),
        ("127.0.0.1", {"forwarded": "for=198.51.100.1; PROTO=https;;"}, ("198.51.100.1", "https", b"")),
        ("127.0.0.1", {"x-forwarded-for": "fe80::1%evil"}, ("127.0.0.1", "", b"")),
        ("", {"x-forwarded-for": "1.2.3.4"}, ("", "", b"")),
    ],
)  # fmt: skip
def test_of_a_chain_the_last_address_counts_that_is_no_proxy(
    peer: str, headers: dict[str, str], expected: tuple[str, str, bytes]
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    proxies = STANDARD if "forwarded" in headers else USUAL
    forwarded, _ = proxies.heed(peer, raw)
    assert (forwarded.client, forwarded.scheme, forwarded.host) == expected


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_header_can_be_read(standard: bytes, chain: bytes) -> None:
    STANDARD.heed("127.0.0.1", [(b"forwarded", standard)])
    USUAL.heed("127.0.0.1", [(b"x-forwarded-for", chain), (b"x-forwarded-host", standard)])


def test_only_the_headers_count_that_the_proxies_set() -> None:
    """A proxy that sets `X-Forwarded-For` passes on a `Forwarded` of its client's, and the other way round."""
    said = [
        (b"host", b"b.example"),
        (b"forwarded", b"for=1.1.1.1;host=one.example;proto=http"),
        (b"x-forwarded-for", b"2.2.2.2"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"two.example"),
    ]
    usual, seen = USUAL.heed("127.0.0.1", said)
    assert (usual.client, usual.scheme, seen[0]) == ("2.2.2.2", "https", (b"host", b"two.example"))
    standard, seen = STANDARD.heed("127.0.0.1", said)
    assert (standard.client, standard.scheme, seen[0]) == ("1.1.1.1", "http", (b"host", b"one.example"))


@pytest.mark.parametrize("family", ["x-forwarded", "forwarded"])
def test_the_host_stays_unless_the_proxies_set_it(family: Literal["x-forwarded", "forwarded"]) -> None:
    said = [
        (b"host", b"b.example"),
        (b"x-forwarded-host", b"evil.example"),
        (b"forwarded", b"for=_a;host=evil.example"),
    ]
    forwarded, seen = TrustedProxies(NETWORKS, family=family).heed("127.0.0.1", said)
    assert forwarded.host == b""
    assert seen is said


@given(st.binary(max_size=9000), st.booleans())
def test_what_a_client_writes_before_does_not_count(padding: bytes, is_own_line: bool) -> None:
    """However long it is, and whatever quotes it leaves open."""
    for proxies, name, own in (
        (STANDARD, b"forwarded", b'for="[2001:db8::1]:47";host=b.example;proto=https'),
        (USUAL, b"x-forwarded-for", b"2001:db8::1"),
    ):
        said = [(name, padding), (name, own)] if is_own_line else [(name, padding + b", " + own)]
        forwarded, _ = proxies.heed("127.0.0.1", said)
        assert forwarded.client == "2001:db8::1"
        assert (forwarded.scheme, forwarded.host) == (("https", b"b.example") if proxies is STANDARD else ("", b""))


@pytest.mark.parametrize("padding", [b"a", b'"', b",", b"for=10.0.0.1,", b"for=1.1.1.1;host=evil.example,", b'\\"'])
def test_a_full_header_of_a_client_does_not_count(padding: bytes) -> None:
    own = b"for=203.0.113.9;host=b.example"
    forwarded, _ = STANDARD.heed("127.0.0.1", [(b"forwarded", padding * (4096 // len(padding))), (b"forwarded", own)])
    assert (forwarded.client, forwarded.host) == ("203.0.113.9", b"b.example")


@pytest.mark.parametrize("pattern", [b"a", b'"', b"a=", b";", b",", b'="', b" ", b"\\", b"a=b;", b"for=10.0.0.1,"])
def test_a_long_header_costs_in_proportion(pattern: bytes) -> None:
    """Before anything of the request was checked, and in the event loop."""

    def seconds(size: int) -> float:
        header = [(b"forwarded", pattern * (size // len(pattern)))]
        return min(cpu_time(lambda: STANDARD.heed("127.0.0.1", header)) for _ in range(5))

    assert seconds(4000) < max(seconds(500) * 30, 0.01)  # a quadratic one: 64 times, 0.1 s


def cpu_time(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.mark.parametrize("trusted", [["127.0.0.0/8"], []])
async def test_the_front_knows_the_address_of_its_client(trusted: list[str]) -> None:
    settings = HttpSettings(trusted_proxies=trusted, proxy_sets_host=True, allowed_hosts=["b.example"])
    async with serving(settings) as http:
        opening = request("initialize", protocolVersion=LEGACY)
        said = {"x-forwarded-for": "198.51.100.1", "x-forwarded-host": "b.example"}
        assert (await http.post(opening, **said)).status_code == 200
        assert http.core.clients[-1].address == ("198.51.100.1" if trusted else "127.0.0.1")
        response = await http.post(opening, **(said | {"x-forwarded-host": "evil.example"}))
        assert response.status_code == (421 if trusted else 200)


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_the_host_that_a_proxy_sends_must_be_allowed_besides_the_one_that_it_names(method: str) -> None:
    settings = HttpSettings(trusted_proxies=["127.0.0.0/8"], proxy_sets_host=True, allowed_hosts=["b.example"])
    async with serving(settings) as http:
        said = {"x-forwarded-host": "b.example", "host": "evil.example"}
        if method == "POST":
            response = await http.post(request("initialize", protocolVersion=LEGACY), **said)
        else:
            response = await http.client.get(f"{http.root}/healthz", headers=said)
        assert response.status_code == 421


@pytest.mark.parametrize("entry", ["proxy.example.com", "10.0.0.0/99", ""])
def test_what_is_no_network_is_said(entry: str) -> None:
    with pytest.raises(ValueError, match="addresses or networks"):
        HttpSettings(trusted_proxies=[entry])
