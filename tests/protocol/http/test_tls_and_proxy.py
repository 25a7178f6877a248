"""TLS options and proxies, over every transport that reaches remote servers, with real certificates and proxies."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import trustme
import websockets.asyncio.server
from cryptography.hazmat.primitives import serialization
from websockets.asyncio.server import ServerConnection

from mcpbridge.base.errors import BridgeError, ConfigError, UpstreamUnavailable
from mcpbridge.protocol.http.proxy_tunnel import open_tunnel
from mcpbridge.protocol.http.tls_and_proxy import Network, TlsOptions
from mcpbridge.protocol.jsonrpc import Frame
from mcpbridge.protocol.transport import Transport
from mcpbridge.upstream.transports.sse import SseTransport
from mcpbridge.upstream.transports.streamable_http import StreamableHttpTransport
from mcpbridge.upstream.transports.websocket import WebSocketTransport
from support.upstreams.scripted_http import (
    Ask,
    Failed,
    Recorder,
    answer_to,
    chunk,
    event,
    events_head,
    http_server,
    request,
    tcp_server,
)

REMOTE = {"streamable-http": StreamableHttpTransport, "sse": SseTransport, "websocket": WebSocketTransport}

kinds = pytest.mark.parametrize("kind", REMOTE)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@dataclass
class Files:
    """Certificates, as files."""

    ca: str
    other_ca: str
    cert: str
    key: str
    locked_key: str
    both: str


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    client = authority.issue_cert("client@example.com")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    client.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    client.private_key_pem.write_to_path(folder / "key.pem")
    client.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    key = serialization.load_pem_private_key(client.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"open sesame"),
    )
    (folder / "locked.pem").write_bytes(locked)
    names = ("ca", "other", "cert", "key", "locked", "both")
    return Files(*(str(folder / f"{name}.pem") for name in names))


def server_context(authority: trustme.CA, *, wants_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    if wants_certificate:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@asynccontextmanager
async def serving(kind: str, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a server that answers each request with `{}`."""
    options = {"ssl": context} if context is not None else {}
    if kind == "websocket":

        async def answer(connection: ServerConnection) -> None:
            async for _ in connection:
                await connection.send('{"jsonrpc":"2.0","id":1,"result":{}}')

        async with websockets.asyncio.server.serve(
            answer, "127.0.0.1", 0, subprotocols=["mcp"], logger=_quiet(), **options
        ) as server:  # type: ignore[list-item]
            yield f"{'wss' if context else 'ws'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        return
    streams: list[Ask] = []

    async def script(ask: Ask) -> bytes | None:
        if kind == "streamable-http":
            return answer_to(ask)
        if ask.method == "GET":
            streams.append(ask)
            await ask.say(events_head(), chunk(b"event: endpoint\ndata: /post\n\n"))
            await ask.gone()
            return None
        await streams[-1].say(event({"jsonrpc": "2.0", "id": 1, "result": {}}))
        return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"

    async with http_server(script, **options) as http:
        yield http.url


def _quiet() -> Any:
    import logging

    return logging.Logger("quiet", 100)


async def trouble(kind: str, url: str, network: Network) -> BridgeError | None:
    """Make one request; returns why that failed, None when it was answered."""
    transport: Transport = REMOTE[kind]("up", url, headers={}, network=network)
    got = Recorder()
    try:
        with anyio.fail_after(60):
            async with transport.connect(got) as channel:
                channel.send(request(1))
                outcome = await got.outcome(b"1")
    except BridgeError as error:
        return error
    if isinstance(outcome, Failed):
        return outcome.error
    assert isinstance(outcome, Frame)
    return None


# -- TLS


@kinds
async def test_an_authority_of_ones_own_is_trusted(kind: str, authority: trustme.CA, files: Files) -> None:
    async with serving(kind, server_context(authority)) as url:
        assert await trouble(kind, url, Network(TlsOptions(ca=files.ca))) is None
        assert await trouble(kind, url, Network(TlsOptions(verify=False))) is None


@kinds
async def test_a_certificate_of_nobody_we_trust_is_refused_and_said_so(
    kind: str, authority: trustme.CA, files: Files
) -> None:
    async with serving(kind, server_context(authority)) as url:
        for options in (TlsOptions(), TlsOptions(ca=files.other_ca)):
            error = await trouble(kind, url, Network(options))
            assert isinstance(error, UpstreamUnavailable)
            assert "its TLS certificate is not trusted: " in error.what


@kinds
async def test_a_certificate_for_another_name_is_refused_and_said_so(
    kind: str, authority: trustme.CA, files: Files
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("example.com").configure_cert(context)
    async with serving(kind, context) as url:
        error = await trouble(kind, url, Network(TlsOptions(ca=files.ca)))
        assert "is not trusted: " in str(error)
        assert "127.0.0.1" in str(error)


@kinds
async def test_the_client_shows_its_certificate(kind: str, authority: trustme.CA, files: Files) -> None:
    async with serving(kind, server_context(authority, wants_certificate=True)) as url:
        for shown in (
            TlsOptions(ca=files.ca, cert=files.cert, key=files.key),
            TlsOptions(ca=files.ca, cert=files.both),
            TlsOptions(ca=files.ca, cert=files.cert, key=files.locked_key, key_password="open sesame"),
        ):
            assert await trouble(kind, url, Network(shown)) is None
        assert await trouble(kind, url, Network(TlsOptions(ca=files.ca))) is not None


@kinds
async def test_files_that_cannot_be_used_are_named(kind: str, files: Files, tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    url = "wss://127.0.0.1:1/" if kind == "websocket" else "https://127.0.0.1:1/"
    for options, said in [
        (TlsOptions(ca="/no/such"), "tls.ca: no certificates can be read from /no/such: no such file"),
        (TlsOptions(ca=str(junk)), f"tls.ca: no certificates can be read from {junk}: no certificate or crl found"),
        (TlsOptions(cert="/no/such"), "tls.cert: /no/such: no such file"),
        (TlsOptions(cert=files.cert, key="/no/such"), "tls.key: /no/such: no such file"),
        (TlsOptions(cert=files.cert, key=files.locked_key), "tls.cert: the certificate cannot be used: "),
        (TlsOptions(cert=files.cert, key=files.ca), "tls.cert: the certificate cannot be used: "),
    ]:
        error = await trouble(kind, url, Network(options))
        assert isinstance(error, ConfigError)
        assert str(error).startswith(said)


async def test_a_directory_of_certificates_is_searched(authority: trustme.CA, tmp_path: Path) -> None:
    assert TlsOptions(ca=str(tmp_path)).ssl_context().verify_mode is ssl.CERT_REQUIRED


# -- proxies


@dataclass
class Proxy:
    """A forward proxy, and what it was asked."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, first: bytes) -> None:
    far_reader, far_writer = await asyncio.open_connection(host, port)
    far_writer.write(first)
    await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer), return_exceptions=True)


@asynccontextmanager
async def http_proxy(status: bytes = b"200 OK") -> AsyncIterator[Proxy]:
    """`CONNECT`, and plain requests by absolute URL."""
    proxy = Proxy()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        proxy.asked.append(f"{method} {target}")
        for line in head.decode().split("\r\n"):
            if line.lower().startswith("proxy-authorization:"):
                proxy.credentials.append(base64.b64decode(line.split()[-1]).decode())
        if not status.startswith(b"2"):
            writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")
            await reader.read()
        elif method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            host, _, port = target.rpartition(":")
            await _join(reader, writer, host, int(port), b"")
        else:
            url = httpx2.URL(target)
            await _join(reader, writer, url.host, url.port or 80, head.replace(target.encode(), url.raw_path, 1))

    async with tcp_server(talk) as proxy.port:
        yield proxy


@asynccontextmanager
async def socks_proxy() -> AsyncIterator[Proxy]:
    """SOCKS5 (RFC 1928), with user and password."""
    proxy = Proxy()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        if 2 in methods:
            writer.write(b"\x05\x02")
            _, size = await reader.readexactly(2)
            user = await reader.readexactly(size)
            (size,) = await reader.readexactly(1)
            proxy.credentials.append(f"{user.decode()}:{(await reader.readexactly(size)).decode()}")
            writer.write(b"\x01\x00")
        else:
            writer.write(b"\x05\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 1:
            host = ".".join(str(part) for part in await reader.readexactly(4))
        else:
            (size,) = await reader.readexactly(1)
            host = (await reader.readexactly(size)).decode()
        port = int.from_bytes(await reader.readexactly(2))
        proxy.asked.append(f"{host}:{port}")
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        await _join(reader, writer, host, port, b"")

    async with tcp_server(talk) as proxy.port:
        yield proxy


@kinds
async def test_an_http_proxy_stands_between(kind: str, authority: trustme.CA, files: Files) -> None:
    """Stated, it is used even for this machine; with TLS it sees only the name."""
    async with http_proxy() as proxy, serving(kind, server_context(authority)) as url:
        network = Network(TlsOptions(ca=files.ca), f"http://ada:hunter%402@127.0.0.1:{proxy.port}")
        assert await trouble(kind, url, network) is None
        assert set(proxy.asked) == {f"CONNECT {httpx2.URL(url).netloc.decode()}"}
        assert set(proxy.credentials) == {"ada:hunter@2"}


@kinds
async def test_a_certificate_that_is_not_trusted_is_said_so_through_a_proxy_too(
    kind: str, authority: trustme.CA, files: Files
) -> None:
    async with http_proxy() as proxy, serving(kind, server_context(authority)) as url:
        network = Network(TlsOptions(ca=files.other_ca), f"http://127.0.0.1:{proxy.port}")
        assert "its TLS certificate is not trusted: " in str(await trouble(kind, url, network))


@kinds
async def test_an_http_proxy_stands_between_without_tls_too(kind: str) -> None:
    async with http_proxy() as proxy, serving(kind) as url:
        assert await trouble(kind, url, Network(proxy=f"http://127.0.0.1:{proxy.port}")) is None
        assert proxy.asked


@kinds
async def test_a_socks_proxy_stands_between(kind: str, authority: trustme.CA, files: Files) -> None:
    async with socks_proxy() as proxy, serving(kind, server_context(authority)) as url:
        network = Network(TlsOptions(ca=files.ca), f"socks5://ada:hunter2@127.0.0.1:{proxy.port}")
        assert await trouble(kind, url, network) is None
        assert set(proxy.asked) == {httpx2.URL(url).netloc.decode()}
        assert set(proxy.credentials) == {"ada:hunter2"}


@kinds
async def test_a_proxy_that_refuses_or_is_not_there_is_told(kind: str) -> None:
    url = "wss://mcp.invalid/" if kind == "websocket" else "https://mcp.invalid/"
    async with http_proxy(b"407 Proxy Authentication Required") as proxy:
        error = await trouble(kind, url, Network(proxy=f"http://u:hunter2@127.0.0.1:{proxy.port}"))
        assert isinstance(error, UpstreamUnavailable)
        assert "407" in error.what
        assert "hunter2" not in str(error)
    assert isinstance(await trouble(kind, url, Network(proxy="http://127.0.0.1:1")), UpstreamUnavailable)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\x05\xff", "requires a user and a password"),
        (b"\x05\x00\x05\x05\x00\x01", "refused: connection refused"),
        (b"\x04\x00", "does not speak SOCKS5"),
        (b"", "closed the connection"),
    ],
)
async def test_a_socks_proxy_that_refuses_is_told(answer: bytes, said: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        if len(answer) > 2:
            await reader.read(100)

    async with tcp_server(talk) as port:
        with pytest.raises(OSError, match=said), anyio.fail_after(30):
            await open_tunnel(f"socks5://127.0.0.1:{port}", "example.com", 443)


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://example.com/", "http://secure:1"),
        ("wss://example.com/", "http://secure:1"),
        ("http://example.com/", "http://plain:1"),
        ("ws://example.com/", "http://plain:1"),
        ("https://inner.example.org/", ""),
        ("https://localhost/", ""),
        ("wss://127.0.0.9/", ""),
        ("https://[::1]/", ""),
    ],
)
def test_the_environment_names_proxies(url: str, proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("https_proxy", "secure:1")
    monkeypatch.setenv("http_proxy", "http://plain:1")
    monkeypatch.setenv("no_proxy", "example.org")
    assert Network().proxy_for(httpx2.URL(url)) == proxy
    assert Network(proxy="http://mine:1").proxy_for(httpx2.URL(url)) == "http://mine:1"
