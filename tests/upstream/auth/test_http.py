"""Where a sign-in may lead: every address in it was named by a server."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import trustme

from mcpbridge.base.errors import ConfigError, UpstreamUnavailable
from mcpbridge.protocol.http.tls_and_proxy import Network, TlsOptions
from mcpbridge.upstream.auth.http import SignInRefused, check_page, open_oauth_http
from support.upstreams.scripted_http import Ask, http_server, reply

PUBLIC = "https://8.8.8.8/mcp"


async def fetch(url: str, *, server: str = PUBLIC, issuer: str | None = None, network: Network | None = None) -> bytes:
    with anyio.fail_after(20):
        async with open_oauth_http("up", server, issuer, network or Network()) as http:
            return (await http.send(httpx2.Request("GET", url))).content


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/x",
        "http://127.0.0.1/x",
        "https://localhost/x",
        "https://[::1]/x",
        "https://[::ffff:127.0.0.1]/x",
        "https://10.0.0.1/x",
        "https://192.168.1.1/x",
        "https://169.254.169.254/latest/meta-data",
        "https://[fd00:ec2::254]/latest",
        "https://0.0.0.0/x",
        "https://2130706433/x",
        "https://0x7f.1/x",
        "https://127.1/x",
        "http://as.example/x",
        "ftp://as.example/x",
        "file:///etc/passwd",
        "https://user@as.example/x",
        "https://as.example:0/x",
    ],
)
async def test_a_public_server_leads_nowhere_inside(url: str) -> None:
    with pytest.raises(UpstreamUnavailable) as refused:
        await fetch(url)
    # What the resolver does not know was not visited either.
    assert isinstance(refused.value, SignInRefused) or "not known" in str(refused.value)


async def test_a_server_of_this_machine_may_name_this_machine_but_no_metadata_service() -> None:
    async def answer(ask: Ask) -> None:
        await ask.say(reply(b"{}", 200))

    async with http_server(answer) as web:
        assert await fetch(web.url, server="http://127.0.0.1:1/mcp") == b"{}"
        assert await fetch(web.url, server=PUBLIC, issuer="http://127.0.0.1:2") == b"{}"
    with pytest.raises(SignInRefused):
        await fetch("https://169.254.169.254/x", server="http://127.0.0.1:1/mcp")


async def test_a_name_is_resolved_once_and_all_its_addresses_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebinding: a second look at the name would lead elsewhere."""
    asked: list[str] = []
    turns = [["8.8.8.8", "127.0.0.1"], ["127.0.0.1"]]

    async def getaddrinfo(self: Any, host: str, port: int, **_: Any) -> list[Any]:
        if host != "as.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in turns[len(asked) - 1]]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    with pytest.raises(SignInRefused, match="this machine"):
        await fetch("https://as.example/x")
    assert asked == ["as.example"]


async def test_the_checked_address_is_dialled_under_its_own_name() -> None:
    hosts: list[str] = []

    async def answer(ask: Ask) -> None:
        hosts.append(ask.headers["host"])
        await ask.say(reply(b"{}", 200))

    async with http_server(answer) as web:
        port = httpx2.URL(web.url).port
        assert await fetch(f"http://localhost:{port}/x", server="http://127.0.0.1:1/mcp") == b"{}"
        assert hosts == [f"localhost:{port}"]


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        (reply(b"x" * (2 << 20), 200), "too large"),
        (reply(b"x", 200, content_encoding="gzip"), "encoding"),
        (b"nonsense\r\n\r\n", "no answer"),
    ],
    ids=["large", "encoded", "nonsense"],
)
async def test_an_answer_must_be_small_and_plain(answer: bytes, fact: str) -> None:
    async def say(ask: Ask) -> None:
        await ask.say(answer)

    async with http_server(say) as web:
        with pytest.raises(UpstreamUnavailable, match=fact):
            await fetch(web.url, server="http://127.0.0.1:1/mcp")


async def test_a_redirect_is_not_followed() -> None:
    async def say(ask: Ask) -> None:
        await ask.say(reply(b"moved", 302, location="http://127.0.0.1:1/elsewhere"))

    async with http_server(say) as web:
        assert await fetch(web.url, server="http://127.0.0.1:1/mcp") == b"moved"


@pytest.mark.parametrize("url", ["https://as.example/authorize?a=b", "http://127.0.0.1:80/a", "http://localhost/a"])
def test_pages_that_may_be_opened(url: str) -> None:
    check_page("up", url)


@pytest.mark.parametrize(
    "url",
    [
        "http://as.example/authorize",
        "http://10.0.0.1/authorize",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "vscode://x/y",
        "https://",
        "https://user:pass@as.example/",
        "https://as.example/$(id)`id`",
        "https://as.example/a b",
        "https://as.example/\u202e",
    ],
)
def test_pages_that_may_not_be_opened(url: str) -> None:
    """CVE-2025-6514: what a server names ends up as the argument of a program."""
    with pytest.raises(SignInRefused):
        check_page("up", url)


@pytest.mark.parametrize("trusts", ["nobody checked", "one authority"])
async def test_what_people_said_of_the_servers_tls_does_not_hold_where_it_sends_the_sign_in(
    trusts: str, tmp_path: Path
) -> None:
    """The secrets of the sign-in go there; an authority of their own is trusted there beside the system's."""
    authority, cert = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        finally:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as web:
        port = web.sockets[0].getsockname()[1]
        own, other = f"https://127.0.0.1:{port}/", f"https://localhost:{port}/token"
        tls = TlsOptions(verify=False) if trusts == "nobody checked" else TlsOptions(ca=str(cert))
        assert await fetch(own, server=own, network=Network(tls)) == b"ok"
        if not tls.verify:
            with pytest.raises(UpstreamUnavailable, match=r"(?i)certificate"):
                await fetch(other, server=own, network=Network(tls))
        else:
            assert await fetch(other, server=own, network=Network(tls)) == b"ok"
            trusted = {str(one["issuer"]) for one in tls.elsewhere().get_ca_certs()}
            assert trusted > {str(one["issuer"]) for one in tls.ssl_context().get_ca_certs()}


def test_our_certificate_is_shown_to_the_server_alone(tmp_path: Path) -> None:
    nowhere = TlsOptions(cert=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError):
        nowhere.ssl_context()
    assert nowhere.elsewhere().verify_mode is ssl.CERT_REQUIRED
