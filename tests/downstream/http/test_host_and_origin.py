"""Which `Host`, `Origin` and `Sec-Fetch-Site` let a request in, on every way in."""

import asyncio
from contextlib import suppress

import pytest

from mcpbridge.downstream.http.exchange import Refused
from mcpbridge.downstream.http.host_and_origin import HostCheck, Reach, preflight_headers
from mcpbridge.downstream.settings import HttpSettings
from support.http_front import JSON, Http, request, serving

PORT = 8808
OWN = f"127.0.0.1:{PORT}"


def status_of(
    host: str | None = OWN,
    origin: str | None = None,
    site: str | None = None,
    *,
    reach: Reach = "loopback",
    hosts: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
    port: int | None = PORT,
) -> int:
    """200, or the status of the refusal."""
    check = HostCheck(reach=reach, allowed_hosts=hosts, allowed_origins=origins, address="127.0.0.1", port=port)
    named = {b"host": host, b"origin": origin, b"sec-fetch-site": site}
    headers = {name: value.encode("latin-1") for name, value in named.items() if value is not None}
    try:
        check.check(headers, len(headers), list(headers.items()))
    except Refused as refused:
        return refused.status
    return 200


@pytest.mark.parametrize(
    "host",
    [
        OWN,
        "localhost:8808",
        "LOCALHOST:8808",
        "LocalHost:8808",
        "[::1]:8808",
        "[0:0:0:0:0:0:0:1]:8808",
        "127.9.9.9:8808",
        " localhost:8808 ",
        "localhost",
        "127.0.0.1",
        "[::1]",
        "localhost:",
    ],
)
def test_a_host_that_names_this_machine_and_the_port_that_is_served_is_accepted(host: str) -> None:
    assert status_of(host) == 200


@pytest.mark.parametrize(
    "host",
    [
        *("localhost:80", "127.0.0.1:8809", "[::1]:80"),
        *(
            "localhost:0",
            "localhost:08808",
            "localhost:88080",
            "localhost:8808.",
            "localhost:+8808",
            "localhost:8808 x",
        ),
        *(
            "localhost:²8808",
            "localhost:8808,localhost:8808",
            "localhost:8808/",
            "localhost:8808/mcp",
            "localhost:8808#",
        ),
        *("http://localhost:8808", "user@localhost:8808", "evil.example@127.0.0.1:8808", "localhost:8808@evil.example"),
        *("localhost.:8808", "localhost..:8808", ".localhost:8808", "a.localhost:8808", "localhost.evil.example:8808"),
        *(
            "localhost:8808.evil.example",
            "127.0.0.1.nip.io:8808",
            "127.0.0.1.:8808",
            "evil.example",
            "evil.example:8808",
        ),
        *("127.1:8808", "0x7f000001:8808", "2130706433:8808", "017700000001:8808", "0.0.0.0:8808", "128.0.0.1:8808"),
        *("::1", "::1:8808", "[::1:8808", "::1]:8808", "[::]:8808", "[::1%lo]:8808", "[::1]x:8808", "[127.0.0.1]:8808"),
        *("[localhost]:8808", "[::ffff:7f00:1]:8809", "[fe80::1]:8808", "ⅼocalhost:8808".encode().decode("latin-1")),
        *("", " ", ":8808", "8808", "local host:8808", "localhost\t:8808", "localhost\\:8808", "%6cocalhost:8808"),
        *("xn--localhost:8808", "localhost%00:8808", "localhost;8808", "localhost:8808?x"),
    ],
)
def test_any_other_host_is_refused_on_loopback(host: str) -> None:
    """A rebound name reaches this machine, but the browser still says which name, and which port, it asked for."""
    assert status_of(host) == 421


def test_a_request_without_a_host_is_refused_on_loopback() -> None:
    assert status_of(None) == 421


@pytest.mark.parametrize(
    ("allowed", "host", "expected"),
    [
        ("bridge.example", "bridge.example", 200),
        ("bridge.example", "Bridge.Example:9999", 200),
        ("bridge.example:81", "bridge.example:81", 200),
        ("bridge.example:81", "bridge.example:82", 421),
        ("bridge.example:81", "bridge.example", 421),
        ("bridge.example", "bridge.example.", 421),
        ("bridge.example", "a.bridge.example", 421),
        ("bridge.example", "user@bridge.example", 421),
        ("localhost:9000", "localhost:9000", 200),
        ("localhost:9000", "localhost:9001", 421),
        ("localhost:9000", "127.0.0.1:9000", 421),
        ("localhost:9000", OWN, 200),
        ("[fd00::1]", "[fd00::1]:9000", 200),
        ("fd00::1", "[fd00::1]:9000", 200),
        ("[fd00::1]:9000", "[fd00::1]:9001", 421),
    ],
)
def test_a_host_that_is_listed_is_accepted_with_the_port_that_it_names_or_with_any(
    allowed: str, host: str, expected: int
) -> None:
    assert status_of(host, hosts=(allowed,)) == expected


@pytest.mark.parametrize(
    ("hosts", "host", "expected"),
    [
        ((), "bridge.lan", 200),
        ((), "evil.example:1", 200),
        (("bridge.lan",), "bridge.lan:7", 200),
        (("bridge.lan",), "evil.example", 421),
        (("bridge.lan",), "localhost:9000", 200),
    ],
)
def test_elsewhere_any_host_is_accepted_until_some_are_listed(hosts: tuple[str, ...], host: str, expected: int) -> None:
    assert status_of(host, reach="network", hosts=hosts) == expected


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (OWN, "http://127.0.0.1:8808"),
        (OWN, "http://localhost:8808"),
        ("localhost:8808", "http://localhost:8808"),
        ("localhost:8808", "http://127.0.0.1:8808"),
        ("localhost:8808", "HTTP://LocalHost:8808"),
        ("[::1]:8808", "http://[::1]:8808"),
        ("127.0.0.2:8808", "http://127.0.0.2:8808"),
    ],
)
def test_the_origin_that_is_served_is_accepted(host: str, origin: str) -> None:
    assert status_of(host, origin) == 200


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "http://localhost",
            "http://localhost:80",
            "http://localhost:8809",
            "http://127.0.0.1",
            "http://127.0.0.1:3000",
        ),
        *("https://localhost:8808", "https://127.0.0.1:8808", "ws://localhost:8808", "file://localhost:8808"),
        *("chrome-extension://localhost:8808", "vscode-webview://localhost:8808", "null", "", "NULL", "about:blank"),
        *(
            "http://localhost:8808.evil.example",
            "http://localhost:88080",
            "http://localhost:8808evil",
            "http://localhost:",
        ),
        *(
            "http://localhost.evil.example:8808",
            "http://localhost.:8808",
            "http://a.localhost:8808",
            "http://localhost8808",
        ),
        *("http://localhost:8808@evil.example", "http://user@localhost:8808", "http://u:p@localhost:8808"),
        *("http://evil.example#@localhost:8808", "http://evil.example/localhost:8808", "http://localhost:8808/"),
        *("http://localhost:8808/x", "http://localhost:8808?x", "http://localhost:8808#x", "http:/localhost:8808"),
        *("http:localhost:8808", "//localhost:8808", "localhost:8808", "http://", "http://[", "http://[::1:8808"),
        *("http://[::1]:8808", "http://127.0.0.2:8808", "http://[::1]:9", "http://0.0.0.0:8808", "http://127.1:8808"),
        *(
            "http://localhost:8808 http://evil.example",
            "http://evil.example http://localhost:8808",
            "http://localhost:08808",
        ),
        *("http://localhost:8808,http://evil.example", "http://localhost\\@evil.example:8808", "https://evil.example"),
        *("http://evil.example:8808", "http://localhost:8808\x00", "http://localhost:²8808", "http://2130706433:8808"),
    ],
)
def test_any_other_origin_is_refused_on_loopback(origin: str) -> None:
    """A page that another port of this machine serves is another program's, perhaps another user's."""
    assert status_of(OWN, origin) == 403


@pytest.mark.parametrize(
    ("allowed", "origin", "expected"),
    [
        ("https://app.example", "https://app.example", 200),
        ("https://app.example/", "https://app.example", 200),
        ("https://App.Example", "https://app.example", 200),
        ("https://app.example:443", "https://app.example", 200),
        ("https://app.example", "https://app.example:443", 200),
        ("http://app.example", "http://app.example:80", 200),
        ("https://app.example", "https://app.example:80", 403),
        ("https://app.example", "http://app.example", 403),
        ("https://app.example", "https://app.example:8443", 403),
        ("https://app.example", "https://app.example.evil", 403),
        ("https://app.example", "https://a.app.example", 403),
        ("http://localhost:6274", "http://localhost:6274", 200),
        ("http://localhost:6274", "http://localhost:62740", 403),
        ("http://localhost:6274", "http://127.0.0.1:6274", 403),
        ("null", "null", 200),
    ],
)
@pytest.mark.parametrize("reach", ["loopback", "network"])
def test_a_listed_origin_is_accepted_and_nothing_like_it(
    allowed: str, origin: str, expected: int, reach: Reach
) -> None:
    assert status_of(OWN, origin, reach=reach, origins=(allowed,)) == expected


@pytest.mark.parametrize("origin", ["http://localhost:8808", "http://127.0.0.1:8808", "http://bridge.lan:8808"])
def test_on_other_addresses_only_listed_origins_are_accepted(origin: str) -> None:
    assert status_of("bridge.lan:8808", origin, reach="network") == 403


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("localhost:9000", "http://localhost:9000", 200),
        ("localhost", "https://localhost", 200),
        ("localhost:9000", "http://localhost:9001", 403),
        ("bridge.example", "https://bridge.example", 403),
        ("evil.example", "http://localhost", 403),
    ],
)
def test_behind_a_socket_in_the_file_system_the_proxys_own_page_is_accepted(
    host: str, origin: str, expected: int
) -> None:
    assert status_of(host, origin, reach="path", port=None) == expected


@pytest.mark.parametrize(
    ("site", "origin", "expected"),
    [
        ("same-origin", None, 200),
        ("none", None, 200),
        ("None", None, 200),
        ("cross-site", None, 403),
        ("Cross-Site", None, 403),
        ("same-site", None, 403),
        ("", None, 403),
        ("same-origin, cross-site", None, 403),
        ("whatever", None, 403),
        ("same-origin", "http://127.0.0.1:8808", 200),
        ("cross-site", "http://127.0.0.1:8808", 403),
        ("same-site", "http://localhost:8808", 403),
        ("cross-site", "http://localhost:3000", 403),
        ("same-origin", "http://localhost:3000", 403),
        ("cross-site", "https://app.example", 200),
        ("same-site", "https://app.example", 200),
    ],
)
def test_what_the_browser_says_of_the_asking_site_counts(site: str, origin: str | None, expected: int) -> None:
    """Another port of this machine is the same site, and no more than that."""
    assert status_of(OWN, origin, site, origins=("https://app.example",)) == expected


def test_a_refused_host_names_the_port_that_is_served_and_the_setting_that_lets_it_in() -> None:
    check = HostCheck(reach="loopback", allowed_hosts=(), allowed_origins=(), address="127.0.0.1", port=PORT)
    with pytest.raises(Refused, match=r"localhost:9000.*port 8808.*`http\.allowed_hosts`"):
        check.check({b"host": b"localhost:9000"}, 1, [(b"host", b"localhost:9000")])


async def test_a_published_port_works_when_its_host_is_listed() -> None:
    async with serving(HttpSettings(allowed_hosts=["localhost:9000"])) as http:
        response = await http.post(request("initialize", protocolVersion="2025-06-18"), host="localhost:9000")
        assert response.status_code == 200


# -- every way in

WAYS = {
    "streamable": "POST /mcp",
    "stream": "GET /mcp",
    "end": "DELETE /mcp",
    "events": "GET /sse",
    "message": "POST /messages",
    "socket": "GET /ws",
    "health": "GET /healthz",
    "readiness": "GET /readyz",
    "question": "OPTIONS /mcp",
}


async def status_line(http: Http, method: str, target: str, lines: list[str]) -> int:
    """The status of what comes back for this very head."""
    port = int(http.root.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = [f"{method} {target} HTTP/1.1", *lines, "content-length: 0", "", ""]
        writer.write("\r\n".join(head).replace("PORT", str(port)).encode("latin-1"))
        async with asyncio.timeout(30):
            line = await reader.readline()
        return int(line.split()[1])
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


UPGRADE = [
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["host: localhost:1"], 421),
        (["host: evil.example:PORT"], 421),
        (["host: localhost:PORT", "host: evil.example"], 400),
        (["host: localhost:PORT", "host: localhost:PORT"], 400),
        ([], 421),
        (["host: localhost:PORT", "origin: http://localhost:1"], 403),
        (["host: localhost:PORT", "origin: https://localhost:PORT"], 403),
        (["host: localhost:PORT", "origin: http://localhost:PORT.evil.example"], 403),
        (["host: localhost:PORT", "origin: null"], 403),
        (["host: localhost:PORT", "sec-fetch-site: cross-site"], 403),
        (["host: localhost:PORT", "sec-fetch-site: same-site"], 403),
        (["host: localhost:PORT", "sec-fetch-site: none", "sec-fetch-site: cross-site"], 400),
        (["host: localhost:PORT", "origin: http://localhost:PORT", "origin: null"], 400),
    ],
)
async def test_the_same_rules_hold_on_every_way_in(way: str, lines: list[str], expected: int) -> None:
    method, target = WAYS[way].split()
    async with serving() as http:
        more = UPGRADE if way == "socket" else [f"{name}: {value}" for name, value in JSON.items()]
        assert await status_line(http, method, target, [*lines, *more]) == expected
        assert http.core.asked == []


@pytest.mark.parametrize("way", ["socket", "health"])
@pytest.mark.parametrize(
    ("target", "host", "expected"),
    [
        ("http://localhost:PORT", "localhost:PORT", 0),
        ("http://LOCALHOST:PORT", "LOCALHOST:PORT", 0),
        ("http://localhost:PORT", None, 0),
        ("http://evil.example", "localhost:PORT", 400),
        ("http://evil.example", "evil.example", 421),
        ("http://evil.example", None, 421),
        ("http://localhost:1", "localhost:PORT", 400),
        ("http://user@localhost:PORT", "localhost:PORT", 400),
        ("http://localhost:PORT", "evil.example", 400),
    ],
)
async def test_a_target_that_is_a_whole_url_is_held_to_the_same_rules(
    way: str, target: str, host: str | None, expected: int
) -> None:
    """RFC 9112, absolute-form: the host of the target counts, whatever `Host` says."""
    method, path = WAYS[way].split()
    async with serving() as http:
        lines = [f"host: {host}"] if host is not None else []
        more = UPGRADE if way == "socket" else []
        good = 101 if way == "socket" else 200
        assert await status_line(http, method, target + path, [*lines, *more]) == (expected or good)


@pytest.mark.parametrize(
    ("entry", "host", "status"),
    [
        ("example.org:65535", "example.org:65535", 200),
        ("example.org:65536", "example.org:65536", 421),
        ("example.org", "example.org:65536", 421),
        ("example.org", "example.org:8808", 200),
        ("example.org:1234", "example.org:1234", 200),
        ("example.org:1234", "example.org:1235", 421),
    ],
)
def test_a_port_is_a_port(entry: str, host: str, status: int) -> None:
    assert status_of(host, hosts=(entry,), reach="network") == status


@pytest.mark.parametrize(
    ("names", "is_one"),
    [
        ((), False),
        (("origin",), False),
        (("access-control-request-method",), False),
        (("access-control-request-headers",), False),
        (("origin", "access-control-request-headers"), False),
        (("origin", "access-control-request-method"), True),
        (("origin", "access-control-request-method", "access-control-request-headers"), True),
    ],
)
def test_a_browsers_question_beforehand_is_known_by_its_two_headers(names: tuple[str, ...], is_one: bool) -> None:
    """Fetch, CORS-preflight request: an OPTIONS without them is a request like any other."""
    found = preflight_headers({name.encode(): b"x-wanted" for name in names})
    assert (found is not None) is is_one
    if found is not None:
        wanted = b"x-wanted" if "access-control-request-headers" in names else b""
        assert dict(found)[b"access-control-allow-headers"] == wanted


@pytest.mark.parametrize("name", ["host", "origin", "authorization", "sec-fetch-site"])
def test_a_header_that_decides_may_come_once_only(name: str) -> None:
    """Of two, another program on the way may have looked at the other."""
    check = HostCheck(reach="loopback", allowed_hosts=(), allowed_origins=(), address="127.0.0.1", port=PORT)
    raw = [(b"host", OWN.encode()), (b"accept", b"a"), (b"accept", b"b"), (b"x-more", b"1")]
    own = {**dict(raw)}
    check.check(own, len(own), raw)
    twice = [*raw, (name.encode(), OWN.encode())]
    if name != "host":
        twice.append((name.encode(), OWN.encode()))
    with pytest.raises(Refused) as refused:
        check.check(dict(twice), len(dict(twice)), twice)
    assert refused.value.status == 400
    assert "more than once" in str(refused.value)
