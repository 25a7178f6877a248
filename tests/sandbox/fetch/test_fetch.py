"""The fetcher against real servers: redirects, rebinding, TLS, size, time, codings (issue 8, address guard).

The servers are on this machine. One address of it, 127.0.0.1, is allowed and stands for the internet; another,
127.0.0.2, stands for what is inside.
"""

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.base.errors import (
    AddressRefused,
    UpstreamError,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.sandbox.fetch.fetch import AnswerTooLong, Fetcher, FetchLimits, FetchTooLarge, read_body
from mcpbridge.sandbox.fetch.settings import GuardSettings
from support.upstreams.scripted_http import Ask, HttpServer, Script, chunk, closed_port, http_server, reply

OUTSIDE, INSIDE = "127.0.0.1", "127.0.0.2"


class Resolver:
    """Answers from a table; where there are several answers for a host, each in turn."""

    def __init__(self, answers: Mapping[str, Sequence[Sequence[str]]] | None = None) -> None:
        self.answers = {host: list(each) for host, each in (answers or {}).items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self.answers.get(host, [[OUTSIDE]])
        return answers.pop(0) if len(answers) > 1 else answers[0]


def port_of(server: HttpServer) -> int:
    return int(server.url.rpartition(":")[2].partition("/")[0])


def fetcher(*servers: HttpServer, resolver: Resolver | None = None, **more: Any) -> Fetcher:
    ports = [80, 443, *map(port_of, servers)]
    rules = GuardSettings(allow=[OUTSIDE], ports=ports)
    return Fetcher(rules, resolve=resolver or Resolver(), is_own=lambda address: False, **more)


def at(server: HttpServer, path: str = "/", host: str = "site.example.com", scheme: str = "http") -> str:
    return f"{scheme}://{host}:{port_of(server)}{path}"


@asynccontextmanager
async def inside_server(port: int) -> AsyncIterator[list[bytes]]:
    """Something inside that nobody may reach, on the same port; yields what it was sent."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(1000))
        writer.write(reply(b"secret"))
        writer.close()

    server = await asyncio.start_server(serve, INSIDE, port)
    async with server:
        yield seen


async def page(ask: Ask) -> bytes:
    return reply(f"{ask.method} {ask.path} for {ask.headers['host']}".encode(), content_type="text/plain")


def leads(*locations: str, status: int = 302) -> Script:
    """A server whose page /0 redirects to the first, /1 to the second, and so on."""

    async def script(ask: Ask) -> bytes:
        step = ask.path.strip("/").partition("?")[0]
        if step.isdigit() and int(step) < len(locations):
            return reply(b"moved", status, location=locations[int(step)])
        return await page(ask)

    return script


async def test_a_page_is_fetched_by_name_from_the_address_that_was_judged() -> None:
    resolver = Resolver()
    async with http_server(page) as server:
        with anyio.fail_after(60):
            fetched = await fetcher(server, resolver=resolver).fetch(at(server, "/a?b=c#d"))
        assert (fetched.status, fetched.redirects) == (200, 0)
        assert fetched.body == f"GET /a?b=c for site.example.com:{port_of(server)}".encode()
        assert fetched.headers["content-type"] == "text/plain"
        assert resolver.asked == ["site.example.com"]
        assert server.asks[0].headers["accept-encoding"] == "gzip"
        assert "mcpbridge/" in server.asks[0].headers["user-agent"]


async def test_a_host_that_is_rebound_is_reached_at_the_first_answer_alone() -> None:
    """Checking a name and then fetching by name would reach the second answer."""
    resolver = Resolver({"rebound.example.com": [[OUTSIDE], [INSIDE]]})
    async with http_server(page) as server, inside_server(port_of(server)) as seen:
        with anyio.fail_after(60):
            fetches = fetcher(server, resolver=resolver)
            fetched = await fetches.fetch(at(server, host="rebound.example.com"))
            assert fetched.body.startswith(b"GET / for rebound.example.com")
            with pytest.raises(AddressRefused):
                await fetches.fetch(at(server, host="rebound.example.com"))
        assert seen == []
        assert resolver.asked == ["rebound.example.com"] * 2


async def test_a_host_that_is_rebound_between_two_redirects_is_judged_again() -> None:
    resolver = Resolver({"rebound.example.com": [[OUTSIDE], [INSIDE]]})
    async with http_server(leads("/1", "/2")) as server, inside_server(port_of(server)) as seen:
        with anyio.fail_after(60), pytest.raises(AddressRefused):
            await fetcher(server, resolver=resolver).fetch(at(server, "/0", host="rebound.example.com"))
        assert len(server.asks) == 1
        assert seen == []


@pytest.mark.parametrize(
    "answers", [[OUTSIDE, INSIDE], [INSIDE, OUTSIDE], [OUTSIDE, "169.254.169.254"], ["::1", OUTSIDE]]
)
async def test_one_bad_answer_refuses_all(answers: list[str]) -> None:
    async with http_server(page) as server, inside_server(port_of(server)) as seen:
        with anyio.fail_after(60), pytest.raises(AddressRefused):
            await fetcher(server, resolver=Resolver({"site.example.com": [answers]})).fetch(at(server))
        assert server.asks == []
        assert seen == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.2:PORT/",
        "http://inside.example.com:PORT/",
        "//inside.example.com:PORT/",
        "http://localhost:PORT/",
        "http://0x7f.2:PORT/",
        "http://[::ffff:127.0.0.2]:PORT/",
        "file:///etc/passwd",
        "http://u:p@site.example.com:PORT/",
        "http://site.example.com:22/",
        "http://metadata.google.internal/",
    ],
)
async def test_a_redirect_inside_is_not_followed(status: int, target: str) -> None:
    resolver = Resolver({"inside.example.com": [[INSIDE]]})
    locations: list[str] = ["/1", "http://other.example.com:PORT/2", target]

    async def script(ask: Ask) -> bytes:
        location = locations[int(ask.path[1:])].replace("PORT", str(port_of(server)))
        return reply(b"", status, location=location)

    async with http_server(script) as server, inside_server(port_of(server)) as seen:
        with anyio.fail_after(60), pytest.raises(AddressRefused, match="redirects"):
            await fetcher(server, resolver=resolver).fetch(at(server, "/0"))
        assert [ask.path for ask in server.asks] == ["/0", "/1", "/2"]
        assert seen == []


async def test_honest_redirects_are_followed_up_to_the_limit() -> None:
    async with http_server(leads("/1", "./2?x=y", "3", "/4", "/5", "/6")) as server:
        with anyio.fail_after(60):
            fetched = await fetcher(server).fetch(at(server, "/1"))
            assert (fetched.redirects, fetched.url) == (5, at(server, "/6"))
            with pytest.raises(UpstreamGarbled, match="more than 5"):
                await fetcher(server).fetch(at(server, "/0"))
            unfollowed = await fetcher(server, limits=FetchLimits(redirects=0)).fetch(at(server, "/0"))
        assert unfollowed.status == 302


@pytest.mark.parametrize("location", ["/Stra\u00dfe?q=\u00e4", "/Stra%C3%9Fe?q=%C3%A4"])
async def test_a_redirect_may_be_written_with_any_letters(location: str) -> None:
    async def script(ask: Ask) -> bytes:
        moved = f"HTTP/1.1 302 Found\r\ncontent-length: 0\r\nlocation: {location}\r\n\r\n"
        return moved.encode() if ask.path == "/" else await page(ask)

    async with http_server(script) as server:
        with anyio.fail_after(60):
            fetched = await fetcher(server).fetch(at(server))
        assert fetched.body.startswith(b"GET /Stra%C3%9Fe?q=%C3%A4 for")


async def test_a_redirect_loop_ends() -> None:
    async with http_server(leads("/0")) as server:
        with anyio.fail_after(60), pytest.raises(UpstreamGarbled, match="redirects"):
            await fetcher(server).fetch(at(server, "/0"))
        assert len(server.asks) == 6


async def test_credentials_stay_with_the_origin_they_were_for() -> None:
    locations = ["/1"]

    async def script(ask: Ask) -> bytes:
        return reply(b"", 302, location=locations[int(ask.path[1:])])

    async with http_server(page) as other, http_server(script) as first:
        locations.append(at(other, "/x", host="other.example.com"))
        headers = {"Authorization": "Bearer t", "X-Api-Key": "k", "Cookie": "c=d", "Accept": "text/html"}
        with anyio.fail_after(60):
            fetched = await fetcher(first, other).fetch(at(first, "/0"), headers=headers)
        assert fetched.url == locations[1]
        assert all(ask.headers["authorization"] == "Bearer t" for ask in first.asks)
        assert len(first.asks) == 2
        assert other.asks[0].headers["accept"] == "text/html"
        assert not {"authorization", "x-api-key", "cookie"} & other.asks[0].headers.keys()


async def test_what_was_posted_is_not_sent_to_another_server() -> None:
    async with http_server(page) as other:
        for status, path in ((307, "/0"), (308, "/0")):
            async with http_server(leads(at(other), status=status)) as server:
                with anyio.fail_after(60), pytest.raises(AddressRefused, match="was sent"):
                    await fetcher(server, other).fetch(at(server, path), method="POST", content=b"secret")
        async with http_server(leads("/1", status=307)) as server:
            with anyio.fail_after(60):
                await fetcher(server).fetch(at(server, "/0"), method="POST", content=b"body")
            assert [(ask.method, ask.body) for ask in server.asks] == [("POST", b"body")] * 2
        async with http_server(leads(at(other), status=303)) as server:
            headers = {"content-type": "application/json"}
            with anyio.fail_after(60):
                await fetcher(server, other).fetch(at(server, "/0"), method="POST", content=b"secret", headers=headers)
        assert [(ask.method, ask.body) for ask in other.asks] == [("GET", b"")]
        assert "content-type" not in other.asks[0].headers


async def test_a_head_request_has_no_body_to_wait_for() -> None:
    async def script(ask: Ask) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"

    async with http_server(script) as server:
        with anyio.fail_after(60):
            fetched = await fetcher(server).fetch(at(server), method="HEAD")
        assert (fetched.headers["content-length"], fetched.body) == ("1000000", b"")


async def test_tls_is_with_the_name_and_not_with_the_address() -> None:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("site.example.com").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    asked_for: list[str | None] = []
    serving.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    async with http_server(page, ssl=serving) as server:
        with anyio.fail_after(20):
            fetches = fetcher(server, ssl_context=lambda: trusting)
            fetched = await fetches.fetch(at(server, scheme="https"))
            assert fetched.body == f"GET / for site.example.com:{port_of(server)}".encode()
            with pytest.raises(UpstreamUnavailable, match="certificate"):
                await fetches.fetch(at(server, scheme="https", host="other.example.com"))
            with pytest.raises(UpstreamUnavailable, match="certificate"):
                await fetcher(server).fetch(at(server, scheme="https"))
        assert asked_for[:2] == ["site.example.com", "other.example.com"]
        assert len(server.asks) == 1


async def test_an_encrypted_page_does_not_lead_to_one_that_is_not() -> None:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("site.example.com").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with http_server(page) as plain, http_server(leads(at(plain)), ssl=serving) as server:
        with anyio.fail_after(20):
            with pytest.raises(AddressRefused, match="not encrypted"):
                await fetcher(server, plain, ssl_context=lambda: trusting).fetch(at(server, "/0", scheme="https"))
            assert plain.asks == []
            async with http_server(leads(at(server, "/x", scheme="https"))) as first:
                fetched = await fetcher(first, server, ssl_context=lambda: trusting).fetch(at(first, "/0"))
        assert fetched.url == at(server, "/x", scheme="https")


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_server(page) as proxy, http_server(page) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        with anyio.fail_after(60):
            await fetcher(server).fetch(at(server))
        assert (len(server.asks), proxy.asks) == (1, [])


async def test_connections_are_not_shared_between_fetches() -> None:
    async with http_server(page) as server:
        fetches = fetcher(server)
        with anyio.fail_after(60):
            for host in ("a.example.com", "b.example.com", "a.example.com"):
                await fetches.fetch(at(server, host=host))
        assert server.connections == 3


async def test_an_answer_over_the_limit_is_not_taken() -> None:
    most = 10_000

    async def declared(ask: Ask) -> bytes:
        return reply(b"x" * 10_001)

    async def endless(ask: Ask) -> None:
        await ask.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await ask.say(chunk(b"x" * 1000))

    async def unbounded(ask: Ask) -> None:
        await ask.say(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await ask.say(b"x" * 1000)

    for script in (declared, endless, unbounded):
        async with http_server(script) as server:
            with anyio.fail_after(60), pytest.raises(FetchTooLarge):
                await fetcher(server, limits=FetchLimits(most=most)).fetch(at(server))

    async def fits(ask: Ask) -> bytes:
        return reply(b"x" * most)

    async with http_server(fits) as server:
        with anyio.fail_after(60):
            assert len((await fetcher(server, limits=FetchLimits(most=most)).fetch(at(server))).body) == most


async def test_a_bomb_is_stopped_while_it_unfolds() -> None:
    bomb = gzip.compress(bytes(200 << 20), 1)
    twice = gzip.compress(bytes(2 << 20)) * 60
    nothing = gzip.compress(b"") * 300

    for body in (bomb, twice, nothing):

        async def script(ask: Ask, body: bytes = body) -> bytes:
            return reply(body, content_encoding="gzip")

        async with http_server(script) as server:
            with anyio.fail_after(20), pytest.raises(FetchTooLarge):
                await fetcher(server).fetch(at(server))


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip", "x-unknown", "gzip, identity"])
async def test_a_coding_that_was_not_asked_for_is_not_taken(coding: str) -> None:
    async def script(ask: Ask) -> bytes:
        return reply(gzip.compress(b"x"), content_encoding=coding)

    async with http_server(script) as server:
        with anyio.fail_after(60), pytest.raises(UpstreamGarbled, match="coding"):
            await fetcher(server).fetch(at(server))


@pytest.mark.parametrize(
    "broken",
    [b"not gzip", gzip.compress(b"x" * 1000)[:-9], gzip.compress(b"abc")[:10] + b"\xff" * 9],
    ids=["none", "cut", "spoiled"],  # what is compressed has the time in it
)
async def test_a_broken_body_is_an_error_and_not_half_a_page(broken: bytes) -> None:
    async def script(ask: Ask) -> bytes:
        return reply(broken, content_encoding="gzip")

    async with http_server(script) as server:
        with anyio.fail_after(60), pytest.raises(UpstreamGarbled):
            await fetcher(server).fetch(at(server))


async def pieces_of(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.integers(min_value=1, max_value=50), st.integers(min_value=1, max_value=500))
async def test_a_body_is_whole_or_refused_however_it_is_cut_and_packed(data: bytes, size: int, most: int) -> None:
    half = len(data) // 2
    packed = {
        "": data,
        "identity": data,
        "gzip": gzip.compress(data[:half]) + gzip.compress(data[half:]) + b"\0\0",
        "x-gzip": gzip.compress(data),
        "deflate": zlib.compress(data),
    }
    for coding, body in packed.items():
        try:
            read = await read_body(pieces_of(body, size), {"content-encoding": coding}, most)
        except AnswerTooLong:
            assert max(len(data), len(body)) > most
        else:
            assert read == data
            assert len(data) <= most


async def test_deflate_without_its_header_is_read_as_well() -> None:
    body = raw_deflate(b"hello " * 100)
    assert await read_body(pieces_of(body, 7), {"content-encoding": "deflate"}, 5000) == b"hello " * 100
    with pytest.raises(httpx2.DecodingError):
        await read_body(pieces_of(b"\xff\xff" * 9, 7), {"content-encoding": "deflate"}, 5000)


@pytest.mark.parametrize("where", ["head", "body", "connection", "name"])
async def test_a_server_that_drips_is_left_in_time(where: str) -> None:
    """The time is for all of it: bytes that keep coming do not lengthen it."""
    released = asyncio.Event()

    async def script(ask: Ask) -> None:
        if where == "body":
            await ask.say(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not released.is_set():
            await ask.say(b"x" if where == "body" else b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await asyncio.sleep(0.01)

    async def never(host: str, port: int) -> Sequence[str]:
        await released.wait()
        return []

    async with http_server(script) as server:
        limits = FetchLimits(seconds=0.15)
        fetches = fetcher(server, limits=limits)
        if where == "name":
            fetches = Fetcher(GuardSettings(ports=[port_of(server)]), limits=limits, resolve=never)
        with anyio.fail_after(60), pytest.raises(UpstreamTimeout) as late:
            await fetches.fetch(at(server))
        assert "site.example.com" in str(late.value)
        released.set()


async def test_what_is_not_there_is_told_with_where_it_was_sought() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("nobody")

    with closed_port() as port, anyio.fail_after(60):
        rules = GuardSettings(allow=[OUTSIDE], ports=[port])
        with pytest.raises(UpstreamUnavailable, match=r"refused: http://site\.example\.com"):
            await Fetcher(rules, resolve=Resolver()).fetch(f"http://site.example.com:{port}/?key=hidden")
        with pytest.raises(UpstreamUnavailable, match="not known") as unavailable:
            await Fetcher(rules, resolve=unknown, who="shop").fetch(f"http://site.example.com:{port}/?key=hidden")
    assert unavailable.value.upstream == "shop"
    assert "hidden" not in unavailable.value.full_message()


async def test_a_host_without_an_address_is_told() -> None:
    with anyio.fail_after(60), pytest.raises(UpstreamUnavailable, match="no address"):
        await Fetcher(resolve=Resolver({"site.example.com": [[]]})).fetch("http://site.example.com/")


async def test_headers_in_the_letters_of_old_are_read() -> None:
    async def script(ask: Ask) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-name: \xe9\r\nx-name: b\r\n\r\n"

    async with http_server(script) as server:
        with anyio.fail_after(60):
            assert (await fetcher(server).fetch(at(server))).headers["x-name"] == "é, b"


async def test_a_head_request_stays_one_through_redirects() -> None:
    async with http_server(leads("/1", status=303)) as server:
        with anyio.fail_after(60):
            await fetcher(server).fetch(at(server, "/0"), method="HEAD")
        assert [ask.method for ask in server.asks] == ["HEAD", "HEAD"]


async def test_the_next_address_is_tried_where_one_takes_no_connection() -> None:
    async with http_server(page) as server:
        rules = GuardSettings(allow=["127.0.0.0/8"], ports=[port_of(server)])
        resolver = Resolver({"site.example.com": [["127.0.0.3", OUTSIDE]]})
        with anyio.fail_after(60):
            fetched = await Fetcher(rules, resolve=resolver).fetch(at(server))
        assert fetched.status == 200


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
        b"\0" * 100,
        b"HTTP/9 x\r\n\r\n",
    ],
)
async def test_what_is_no_answer_is_an_error(answer: bytes) -> None:
    async def script(ask: Ask) -> None:
        await ask.say(answer)
        ask.writer.close()

    async with http_server(script) as server:
        with anyio.fail_after(60), pytest.raises(UpstreamError) as failed:
            await fetcher(server).fetch(at(server))
        assert isinstance(failed.value, UpstreamGone | UpstreamGarbled)


@pytest.mark.parametrize("headers", [{"x": "a\r\nhost: b"}, {"x\n": "y"}, {"x": "a\0"}])
async def test_headers_cannot_smuggle_others_in(headers: dict[str, str]) -> None:
    async with http_server(page) as server:
        with anyio.fail_after(60), pytest.raises(AddressRefused):
            await fetcher(server).fetch(at(server), headers=headers)
        assert server.asks == []


async def test_headers_of_the_connection_are_not_the_callers() -> None:
    async with http_server(page) as server:
        with anyio.fail_after(60):
            headers = {"Host": "evil", "Connection": "keep-alive", "Content-Length": "9", "Accept-Encoding": "br"}
            await fetcher(server).fetch(at(server), headers=headers)
        seen = server.asks[0].headers
        assert seen["host"].startswith("site.example.com")
        assert (seen["connection"], seen["accept-encoding"]) == ("close", "gzip")
        assert "content-length" not in seen


async def test_what_people_wrote_may_be_inside_but_not_what_it_redirects_to() -> None:
    async with http_server(leads("/1")) as server, http_server(page) as other:
        fetches = Fetcher(is_trusted=True)
        with anyio.fail_after(60):
            fetched = await fetches.fetch(f"http://127.0.0.1:{port_of(server)}/0")
            assert (fetched.status, fetched.redirects) == (200, 1)
            async with http_server(leads(f"http://127.0.0.1:{port_of(other)}/")) as first:
                with pytest.raises(AddressRefused):
                    await fetches.fetch(f"http://127.0.0.1:{port_of(first)}/0")
        assert other.asks == []


async def test_cancelling_a_fetch_closes_its_connection() -> None:
    async def script(ask: Ask) -> None:
        await ask.gone()

    async with http_server(script) as server:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fetcher(server).fetch, at(server))
                await server.until("GET")
                tasks.cancel_scope.cancel()
            await server.asks[0].left.wait()
