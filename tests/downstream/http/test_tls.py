"""TLS of the front: over it all works as without, files that change are read anew, and errors name the file."""

import asyncio
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trustme
from websockets.asyncio.client import connect

from mcpbridge.base.errors import ConfigError
from mcpbridge.downstream.http.server import bind_port, serve_http
from mcpbridge.downstream.http.tls import Certificate
from mcpbridge.downstream.settings import HttpSettings, HttpTlsSettings
from support.http_front import LEGACY, ScriptedBridge, ScriptedCore, request

HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def write(authority: trustme.CA, directory: Path, host: str = "localhost") -> HttpTlsSettings:
    leaf = authority.issue_cert(host)
    cert, key = directory / "cert.pem", directory / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    return HttpTlsSettings(cert=str(cert), key=str(key))


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_each_front_is_served_over_it(tmp_path: Path) -> None:
    authority = trustme.CA()
    settings = HttpSettings(tls=write(authority, tmp_path))
    core = ScriptedCore()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with bind_port(settings, host="127.0.0.1", port=0, no_auth=True) as at:
        front = asyncio.create_task(serve_http(ScriptedBridge(core), settings, at, on_ready=ready.set_result))
        url = (await ready).replace("127.0.0.1", "localhost")
        assert url.startswith("https://localhost:")
        root = url.removesuffix("/mcp")
        try:
            async with asyncio.timeout(60), httpx2.AsyncClient(verify=trusting(authority), trust_env=False) as client:
                opening = request("initialize", protocolVersion=LEGACY)
                assert (await client.post(url, json=opening, headers=HEADERS)).status_code == 200
                own = HEADERS | {"origin": root}
                assert (await client.post(url, json=opening, headers=own)).status_code == 200
                foreign = HEADERS | {"origin": root.replace("https", "http")}
                assert (await client.post(url, json=opening, headers=foreign)).status_code == 403
                async with client.stream("GET", f"{root}/sse", headers={"accept": "text/event-stream"}) as stream:
                    assert stream.status_code == 200
                async with connect(
                    f"{root.replace('https', 'wss')}/ws", ssl=trusting(authority), proxy=None
                ) as websocket:
                    await websocket.send(json.dumps(opening))
                    assert json.loads(await websocket.recv())["result"]
                assert {client.address for client in core.clients} == {"127.0.0.1"}
                with pytest.raises(httpx2.HTTPError):
                    await client.get(f"{root.replace('https', 'http')}/healthz")
                for version in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                    is_taken = await asyncio.to_thread(speaks, at.port or 0, version)
                    assert is_taken is (version > ssl.TLSVersion.TLSv1_1)
        finally:
            front.cancel()
            await asyncio.wait([front])


def speaks(port: int, version: ssl.TLSVersion) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    import warnings

    with warnings.catch_warnings(action="ignore"):
        context.minimum_version, context.maximum_version = version, version
    try:
        with socket.create_connection(("127.0.0.1", port)) as raw, context.wrap_socket(raw) as made:
            return made.version() is not None
    except (ssl.SSLError, OSError):
        return False


def certificate_at(certificate: Certificate, authority: trustme.CA, host: str) -> Any:
    """Whether a handshake in memory succeeds, with a client that trusts this authority."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certificate.context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting(authority).wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(10):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
    return client.version() is not None


def test_files_that_change_are_read_anew_and_broken_ones_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = trustme.CA(), trustme.CA()
    certificate = Certificate(write(first, tmp_path))
    assert certificate_at(certificate, first, "localhost")
    write(second, tmp_path)
    certificate.look()
    assert certificate_at(certificate, second, "localhost")
    assert not certificate_at(certificate, first, "localhost")
    key = (tmp_path / "key.pem").read_bytes()
    write(first, tmp_path)
    (tmp_path / "key.pem").write_bytes(key)
    certificate.look()  # the certificate is there, and its key is not yet
    assert certificate_at(certificate, second, "localhost")
    assert str(tmp_path / "cert.pem") in capsys.readouterr().out
    write(first, tmp_path)
    certificate.look()
    assert certificate_at(certificate, first, "localhost")
    (tmp_path / "cert.pem").unlink()
    certificate.look()
    assert certificate_at(certificate, first, "localhost")


@pytest.mark.parametrize(
    ("break_it", "what"),
    [
        (lambda place: (place / "cert.pem").unlink(), "cert.pem cannot be read"),
        (lambda place: (place / "key.pem").unlink(), "key.pem cannot be read"),
        (lambda place: (place / "cert.pem").write_text("junk"), "cert.pem holds no certificate"),
        (lambda place: (place / "key.pem").replace(place / "cert.pem"), "cert.pem holds no certificate"),
        (lambda place: (place / "key.pem").write_text("junk"), "key.pem holds no private key"),
        (lambda place: (place / "key.pem").write_bytes(other_key()), "do not go together"),
        (lambda place: (place / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\n"), "do not go together"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, break_it: Any, what: str) -> None:
    settings = write(trustme.CA(), tmp_path)
    break_it(tmp_path)
    with pytest.raises(ConfigError, match=what) as raised:
        Certificate(settings)
    assert str(tmp_path) in str(raised.value)


def other_key() -> bytes:
    return trustme.CA().issue_cert("localhost").private_key_pem.bytes()
