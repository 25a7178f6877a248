"""The lean HTTP transport: what a client may rely on about connections, bodies and errors."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import anyio
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcpbridge.protocol.http import connect as dial
from mcpbridge.protocol.http.client import LeanTransport
from mcpbridge.protocol.http.tls_and_proxy import Network
from support.upstreams.scripted_http import Ask, chunk, closed_port, deaf_socket, http_server, reply


async def echo(ask: Ask) -> bytes:
    return reply(ask.body)


async def test_requests_in_a_row_share_a_connection_and_those_at_once_do_not() -> None:
    gate = asyncio.Event()

    async def slow(ask: Ask) -> bytes:
        await gate.wait()
        return reply(ask.body)

    async with http_server(slow) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(client.post, server.url)
                await server.until("POST", 3)
                gate.set()
            assert server.connections == 3
            for number in range(5):
                assert (await client.post(server.url, content=b"%d" % number)).content == b"%d" % number
            assert server.connections == 3


async def test_the_transport_says_how_many_connections_it_has() -> None:
    async with http_server(echo) as server:
        transport = LeanTransport()
        async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
            with anyio.fail_after(30):
                assert transport.statistics() == {"connections": 0, "idle": 0}
                await client.post(server.url, content=b"1")
            assert transport.statistics() == {"connections": 1, "idle": 1}
            assert repr(transport) == "<LeanTransport 1 connections, 1 idle>"


async def test_a_connection_that_the_server_closed_while_idle_is_not_used_again() -> None:
    async with http_server(echo) as server:
        transport = LeanTransport()
        async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
            with anyio.fail_after(30):
                await client.post(server.url, content=b"1")
                server.asks[0].writer.close()
                while transport.connections:
                    await asyncio.sleep(0)
                assert (await client.post(server.url, content=b"2")).content == b"2"
        assert server.connections == 2


@pytest.mark.parametrize("header", [{"connection": "close"}, {"keep_alive": "timeout=1"}])
async def test_a_connection_that_the_server_wants_to_end_soon_is_not_kept(header: dict[str, str]) -> None:
    async def script(ask: Ask) -> bytes:
        return reply(b"x", **header)

    async with http_server(script) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with anyio.fail_after(30):
            await client.post(server.url)
            await client.post(server.url)
        assert server.connections == 2


async def test_an_answer_nobody_asked_for_is_not_taken_for_the_next_one() -> None:
    """Response smuggling: two answers to one request."""

    async def script(ask: Ask) -> bytes:
        return reply(b"mine") + reply(b"stray") if ask.body == b"1" else reply(ask.body)

    async with http_server(script) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with anyio.fail_after(30):
            assert (await client.post(server.url, content=b"1")).content == b"mine"
            assert (await client.post(server.url, content=b"2")).content == b"2"
        assert server.connections == 2


async def test_bodies_come_by_length_by_chunks_and_by_the_end_of_the_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    answers = {
        b"length": reply(b"whole"),
        b"chunks": head + b"transfer-encoding: chunked\r\n\r\n" + chunk(b"who") + chunk(b"le") + chunk(b""),
        b"end": head + b"\r\nwhole",
        b"interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + reply(b"whole"),
        b"padded": head + b"content-length: 5   \r\n\r\nwhole",
    }

    async def script(ask: Ask) -> bytes | None:
        await ask.say(answers[ask.body])
        if ask.body == b"end":
            ask.writer.close()
        return None

    async with http_server(script) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with anyio.fail_after(30):
            for kind in answers:
                assert (await client.post(server.url, content=kind)).content == b"whole", kind


async def test_a_body_is_streamed_in_both_directions() -> None:
    size = 3 << 20

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size >> 16):
            yield b"x" * (1 << 16)

    async with http_server(echo) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with anyio.fail_after(60):
            got = 0
            headers = {"content-length": str(size)}
            async with client.stream("POST", server.url, content=pieces(), headers=headers) as answer:
                async for piece in answer.aiter_bytes():
                    got += len(piece)
                    assert len(piece) <= 2 << 20  # the reader sets the pace: no more than about a MiB is held
        assert got == size


async def test_a_request_body_of_unknown_length_goes_out_in_chunks() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async def script(ask: Ask) -> bytes:
        assert ask.headers["transfer-encoding"] == "chunked"
        return reply(await ask.reader.readuntil(b"0\r\n\r\n"))

    async with http_server(script) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with anyio.fail_after(30):
            answer = await client.post(server.url, content=pieces())
    assert answer.content == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", httpx2.ReadError),
        (b"HTTP/1.1 200 OK\r\ncontent-le", httpx2.ReadError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", httpx2.ReadError),
        (b"SSH-2.0-OpenSSH_9.9\r\n", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * (1 << 20), httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", httpx2.RemoteProtocolError),
    ],
)
async def test_an_answer_that_breaks_off_or_is_no_http_is_an_error(said: bytes, error: type[Exception]) -> None:
    async def script(ask: Ask) -> None:
        await ask.say(said)
        ask.writer.close()

    async with http_server(script) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with anyio.fail_after(30), pytest.raises(error):
            await client.post(server.url)


async def test_a_header_with_a_line_break_is_refused_unsent() -> None:
    async with http_server(echo) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with pytest.raises(httpx2.LocalProtocolError):
            await client.post(server.url, headers=[(b"x", b"a\r\nhost: evil")])
        assert server.connections == 0


async def test_silence_ends_with_the_time_limit_of_the_request() -> None:
    async def script(ask: Ask) -> None:
        await ask.gone()

    async with http_server(script) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with anyio.fail_after(30), pytest.raises(httpx2.ReadTimeout):
            await client.post(server.url, timeout=httpx2.Timeout(None, read=0.01))


async def test_giving_up_a_body_cuts_its_connection() -> None:
    async with (
        http_server(gone_after_head) as server,
        httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client,
    ):
        with anyio.fail_after(30):
            async with client.stream("POST", server.url):
                pass
            await client.get(server.url)
    assert server.connections == 2


async def gone_after_head(ask: Ask) -> bytes | None:
    if ask.method == "GET":
        return reply(b"")
    await ask.say(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
    await ask.gone()
    ask.writer.close()
    return None


async def test_nobody_listening_is_a_connect_error_in_plain_words() -> None:
    with closed_port() as port:
        async with httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
            refused = r"^connection refused: 127\.0\.0\.1:\d+$"
            with anyio.fail_after(30), pytest.raises(httpx2.ConnectError, match=refused):
                await client.post(f"http://127.0.0.1:{port}/")
    async with httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with pytest.raises(httpx2.UnsupportedProtocol):
            await client.get("ftp://127.0.0.1/")


async def test_a_name_with_several_addresses_is_reached_by_the_one_that_answers() -> None:
    async with http_server(echo) as server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        with anyio.fail_after(30):
            answer = await client.post(server.url.replace("127.0.0.1", "localhost"), content=b"1")
    assert answer.content == b"1"


async def test_an_address_that_stays_silent_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What RFC 8305 promises."""
    async with http_server(echo) as server:
        port = int(server.url.split(":")[2].partition("/")[0])
        with deaf_socket() as deaf:
            addresses = [(deaf.family, deaf.getsockname()), (deaf.family, ("127.0.0.1", port))]
            monkeypatch.setattr(dial, "_STAGGER", 0.01)
            with anyio.fail_after(30):
                sock = await dial._race(addresses)
            assert sock.getpeername()[1] == port
            sock.close()


async def test_when_no_address_answers_the_first_error_is_told() -> None:
    with closed_port() as port:
        address = ("127.0.0.1", port)
        with anyio.fail_after(30), pytest.raises(ConnectionRefusedError):
            await dial._race([(socket.AF_INET, address), (socket.AF_INET, address)])


async def test_a_connection_that_is_not_made_in_time_is_given_up() -> None:
    with deaf_socket() as deaf:
        timeouts = httpx2.Timeout(None, connect=0.01)
        async with httpx2.AsyncClient(transport=LeanTransport(), timeout=timeouts) as client:
            with anyio.fail_after(30), pytest.raises(httpx2.ConnectTimeout):
                await client.get(f"http://127.0.0.1:{deaf.getsockname()[1]}/")


async def test_an_answer_counts_though_the_server_reads_no_more_of_the_request() -> None:
    """A body over a server's limit: it says 413 and leaves the rest unread."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply(b"too large", 413))
        await over.wait()
        writer.transport.abort()

    over = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        transport = LeanTransport()
        async with httpx2.AsyncClient(transport=transport, timeout=60) as client:
            with anyio.fail_after(30):
                url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
                answer = await client.post(url, content=b"x" * (16 << 20))
                assert (answer.status_code, answer.content) == (413, b"too large")
                while transport.connections:
                    await asyncio.sleep(0)
                over.set()


async def test_a_body_in_many_pieces_waits_for_a_slow_reader() -> None:
    produced = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal produced
        for _ in range(256):
            produced += 1
            yield b"x" * (1 << 16)

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        reading.set()
        await resume.wait()
        while not (await reader.read(1 << 20)).endswith(b"0\r\n\r\n"):
            pass
        writer.write(reply(b"done"))
        writer.close()

    reading, resume = asyncio.Event(), asyncio.Event()
    server = await asyncio.start_server(stall, "127.0.0.1", 0, limit=1 << 16)
    async with server, httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with anyio.fail_after(60):
            sending = asyncio.ensure_future(client.post(url, content=pieces(), timeout=None))
            await reading.wait()
            before = -1
            while before != produced:  # until the system's buffers are full
                before = produced
                for _ in range(100):
                    await asyncio.sleep(0)
            assert produced < 256
            resume.set()
            assert (await sending).content == b"done"


async def test_tls_is_checked_and_works(tmp_path: Path) -> None:
    certificate = _certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    async with http_server(echo, ssl=serving) as server:
        trusting = ssl.create_default_context(cafile=certificate)
        async with httpx2.AsyncClient(transport=LeanTransport(ssl_context=trusting), timeout=60) as client:
            with anyio.fail_after(30):
                assert (await client.post(server.url, content=b"1")).content == b"1"
                assert (await client.post(server.url, content=b"2")).content == b"2"
        assert server.connections == 1
        async with httpx2.AsyncClient(transport=LeanTransport(), timeout=60) as client:
            with anyio.fail_after(30), pytest.raises(httpx2.ConnectError, match="certificate is not trusted"):
                await client.post(server.url)


def _certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + certificate.public_bytes(pem))
    return file


@pytest.mark.parametrize(
    ("url", "environment", "wanted"),
    [
        ("https://mcp.example.com/", {}, False),
        ("https://mcp.example.com/", {"https_proxy": "http://proxy:3128"}, True),
        ("http://mcp.example.com/", {"https_proxy": "http://proxy:3128"}, False),
        ("https://mcp.example.com/", {"all_proxy": "http://proxy:3128"}, True),
        ("https://mcp.example.com/", {"https_proxy": "http://proxy:3128", "no_proxy": "example.com"}, False),
        ("http://127.0.0.1:80/", {"http_proxy": "http://proxy:3128"}, False),
        ("http://localhost:80/", {"http_proxy": "http://proxy:3128"}, False),
    ],
)
def test_a_proxy_is_used_where_the_environment_says_so(
    url: str, environment: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert bool(Network().proxy_for(httpx2.URL(url))) is wanted
