"""Servers in the sandbox with a list of hosts: what real programs reach through it, and every other way out.

The hosts are names that lead to a server of this test, whose address is on the list too: a private address is refused
otherwise.
"""

import asyncio
import shutil
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import trustme
from pydantic import ValidationError

from mcpbridge.sandbox.egress import proxy
from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from mcpbridge.upstream.transports.factory import TransportMaker
from mcpbridge.upstream.transports.sandboxed_stdio import SandboxedTransport
from support.upstreams.scripted_upstream import Watcher, call_of

SERVERS = Path(__file__).parents[2] / "servers"
NODE, CURL = shutil.which("node"), shutil.which("curl")
_SANDBOX = Isolation(SandboxSettings(mode="bubblewrap"))

WITH_URLLIB = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"
WITH_NOTHING = """
import socket, ssl, sys
host, port = sys.argv[1].removeprefix("https://").rstrip("/").rsplit(":", 1)
name = sys.argv[2] if len(sys.argv) > 2 else host
with socket.create_connection((host, int(port)), 20) as plain:
    with ssl.create_default_context().wrap_socket(plain, server_hostname=name) as tls:
        tls.sendall(f"GET / HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n".encode())
        print(tls.makefile().read().rpartition("\\n")[2])
"""
"""Neither proxies nor HTTP: what knows only names, ports and TLS."""
WITH_FETCH = """
fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t))
  .catch(e => { console.log(e.message, e.cause?.code ?? ''); process.exitCode = 1 })
"""
WITH_HTTPS_GET = """
require('https').get(process.argv[1], r => r.on('data', d => process.stdout.write(d)))
  .on('error', e => { console.log(e.code); process.exitCode = 1 })
"""


@pytest.fixture(scope="module")
async def ready() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("there is no sandbox elsewhere")
    if (missing := await _SANDBOX.why_none()) is not None:
        pytest.skip(f"bubblewrap does not work here: {missing[0]}")


@pytest.fixture
def authority(tmp_path: Path) -> tuple[trustme.CA, Path]:
    authority = trustme.CA()
    tmp_path.chmod(0o755)
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    file.chmod(0o644)
    return authority, file


@asynccontextmanager
async def https_server(authority: trustme.CA, *names: str) -> AsyncIterator[int]:
    """Answers `reached` to whatever it is asked, on 127.0.0.1."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    async with plain_server(context) as port:
        yield port


@asynccontextmanager
async def plain_server(context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nreached")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def started(network: Sequence[str], certificates: Path | None = None, **env: str) -> AsyncIterator[Upstream]:
    """The prying server, with this list of hosts."""
    files = [str(SERVERS), *([str(certificates)] if certificates else [])]
    sandbox = {"network": list(network), "allow_fs": {"read_only": files}}
    if certificates is not None:
        env |= dict.fromkeys(("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE"), str(certificates))
    how = {"command": sys.executable, "args": ["-ES", str(SERVERS / "prying.py")], "sandbox": sandbox, "env": env}
    servers = {"up": ServerSettings.model_validate({**how, "start": "eager"})}
    watcher, make = Watcher(), TransportMaker(max_bytes=1 << 20, redact=str, runner=lambda: _SANDBOX)
    pool = Pool(servers, make, watcher, client_info={"name": "b", "version": "1"})
    with anyio.fail_after(120):
        async with pool.running():
            await watcher.reaches("ready")
            yield pool.upstreams["up"]


async def ran(up: Upstream, *line: str) -> str:
    """What a program in the sandbox printed, after its exit code."""
    call = call_of("run")
    call.params.put("arguments", {"line": list(line)})
    return (await up.request(call)).value()["content"][0]["text"]


async def python(up: Upstream, source: str, *arguments: str) -> str:
    return await ran(up, sys.executable, "-I", "-c", source, *arguments)


def refused(up: Upstream) -> dict[str, int]:
    assert isinstance(up.transport, SandboxedTransport)
    assert up.transport.egress is not None
    return dict(up.transport.egress.refused)


needs_bubblewrap = pytest.mark.usefixtures("ready")


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch, ready: None) -> dict[str, list[str]]:
    """The addresses of names, as the bridge resolves them."""
    answers: dict[str, list[str]] = {}

    async def resolve(host: str, _port: int) -> list[str]:
        if host not in answers:
            raise socket.gaierror(f"{host} is not known")
        return answers[host]

    monkeypatch.setattr(proxy, "resolved", resolve)
    return answers


async def test_programs_reach_a_host_on_the_list(
    resolves: dict[str, list[str]], authority: tuple[trustme.CA, Path]
) -> None:
    """Those that read proxy variables, and those that ignore them."""
    ca, file = authority
    resolves["api.example.test"] = resolves["deep.in.wild.test"] = ["127.0.0.1"]
    async with https_server(ca, "api.example.test", "deep.in.wild.test") as port:
        network = [f"api.example.test:{port}", f"*.wild.test:{port}", f"127.0.0.1:{port}"]
        async with started(network, file) as up:
            for host in ("api.example.test", "deep.in.wild.test"):
                url = f"https://{host}:{port}/"
                assert await python(up, WITH_URLLIB, url) == "0 reached"
                assert await python(up, WITH_NOTHING, url) == "0 reached"
                if NODE:
                    assert await ran(up, NODE, "-e", WITH_FETCH, url) == "0 reached"
                    assert await ran(up, NODE, "-e", WITH_HTTPS_GET, url) == "0 reached"
                if CURL:
                    assert await ran(up, CURL, "-sS", url) == "0 reached"
                    assert await ran(up, CURL, "-sS", "--noproxy", "*", url) == "0 reached"
            assert refused(up) == {}
            assert isinstance(up.transport, SandboxedTransport)
            assert up.transport.egress is not None
            assert up.transport.egress.connections >= 4


async def test_plain_http_reaches_it_too(resolves: dict[str, list[str]]) -> None:
    resolves["api.example.test"] = ["127.0.0.1"]
    async with plain_server() as port, started([f"api.example.test:{port}", f"127.0.0.1:{port}"]) as up:
        for host in ("api.example.test", "127.0.0.1"):
            assert await python(up, WITH_URLLIB, f"http://{host}:{port}/") == "0 reached"
        if NODE:
            assert await ran(up, NODE, "-e", WITH_FETCH, f"http://api.example.test:{port}/") == "0 reached"
        if CURL:
            fronted = [CURL, "-sS", "-H", "Host: other.example.test"]
            url = f"http://api.example.test:{port}/"
            assert "is for another host" in await ran(up, *fronted, "--noproxy", "*", url)
            assert refused(up) == {"other.example.test:80": 1} or refused(up) == {f"other.example.test:{port}": 1}


async def test_other_hosts_and_ports_are_refused_and_counted(
    resolves: dict[str, list[str]], authority: tuple[trustme.CA, Path]
) -> None:
    ca, file = authority
    resolves["api.example.test"] = resolves["other.example.test"] = ["127.0.0.1"]
    async with (
        https_server(ca, "api.example.test", "other.example.test") as port,
        plain_server() as elsewhere,
        started([f"api.example.test:{port}", f"127.0.0.1:{port}"], file) as up,
    ):
        answer = await python(up, WITH_URLLIB, f"https://other.example.test:{port}/")
        assert answer.startswith("1 ")
        assert "403" in answer
        assert (await python(up, WITH_NOTHING, f"https://other.example.test:{port}/")).startswith("1 ")
        assert (await python(up, WITH_NOTHING, f"https://api.example.test:{elsewhere}/")).startswith("1 ")
        assert (await python(up, WITH_NOTHING, f"https://127.0.0.1:{elsewhere}/")).startswith("1 ")
        counted = refused(up)
        assert counted[f"other.example.test:{port}"] == 1
        assert counted["other.example.test"] >= 1, "it was asked for the name"
        if CURL:
            answer = await ran(up, CURL, "-sS", "-v", f"https://other.example.test:{port}/")
            assert "403" in answer


async def test_tls_for_another_host_is_refused(
    resolves: dict[str, list[str]], authority: tuple[trustme.CA, Path]
) -> None:
    """Domain fronting: a connection to a host on the list that asks for another one behind it."""
    ca, file = authority
    resolves["api.example.test"] = ["127.0.0.1"]
    async with (
        https_server(ca, "api.example.test", "other.example.test") as port,
        started([f"api.example.test:{port}", f"127.0.0.1:{port}"], file) as up,
    ):
        answer = await python(up, WITH_NOTHING, f"https://api.example.test:{port}/", "other.example.test")
        assert answer.startswith("1 ")
        assert "UNRECOGNIZED_NAME" in answer
        assert refused(up) == {f"other.example.test:{port}": 1}


@pytest.mark.parametrize("address", ["10.1.2.3", "127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1"])
async def test_a_name_that_leads_to_a_private_address_is_refused(resolves: dict[str, list[str]], address: str) -> None:
    """Whoever answers for the name decides where it leads: also to an address that is public, and one that is not."""
    resolves["api.example.test"] = ["93.184.216.34", address]
    async with started(["api.example.test:443"]) as up:
        answer = await python(up, WITH_URLLIB, "https://api.example.test/")
        assert "403" in answer
        assert refused(up) == {"api.example.test:443": 1}


DIRECT = """
import socket, sys
family, kind, address, port = getattr(socket, sys.argv[1]), getattr(socket, sys.argv[2]), sys.argv[3], int(sys.argv[4])
with socket.socket(family, kind) as opened:
    opened.settimeout(5)
    opened.connect((address, port))
    opened.send(b"x")
    print("sent", opened.recv(10))
"""


@needs_bubblewrap
@pytest.mark.parametrize(
    ("family", "kind", "address", "port"),
    [
        ("AF_INET", "SOCK_STREAM", "8.8.8.8", 443),
        ("AF_INET", "SOCK_DGRAM", "8.8.8.8", 53),
        ("AF_INET", "SOCK_STREAM", "8.8.8.8", 53),
        ("AF_INET", "SOCK_DGRAM", "8.8.8.8", 443),
        ("AF_INET6", "SOCK_STREAM", "2606:4700::1111", 443),
        ("AF_INET6", "SOCK_DGRAM", "2606:4700::1111", 443),
        ("AF_INET", "SOCK_STREAM", "10.0.0.1", 443),
        ("AF_INET", "SOCK_STREAM", "169.254.169.254", 80),
    ],
)
async def test_nothing_is_reached_by_address(family: str, kind: str, address: str, port: int) -> None:
    async with started(["api.example.test:443", "api.example.test:53"]) as up:
        answer = await python(up, DIRECT, family, kind, address, str(port))
        assert answer.startswith("1 "), answer
        assert "unreachable" in answer or "Cannot assign" in answer, answer


@needs_bubblewrap
async def test_services_of_this_machine_are_not_reached(tmp_path: Path) -> None:
    """Neither by address, though the port is on the list for another host, nor by a Unix socket."""
    tmp_path.chmod(0o755)
    async with plain_server() as port, started([f"api.example.test:{port}"]) as up:
        assert (await python(up, WITH_URLLIB, f"http://127.0.0.1:{port}/")).startswith("1 ")
        assert (await python(up, WITH_NOTHING, f"https://localhost:{port}/")).startswith("1 ")
        assert refused(up)[f"127.0.0.1:{port}"] >= 1
        source = "import socket; socket.socket(socket.AF_UNIX)"
        assert "Operation not permitted" in await python(up, source)


@needs_bubblewrap
async def test_names_resolve_to_nothing_outside() -> None:
    source = "import socket, sys; print(sorted({a[4][0] for a in socket.getaddrinfo(sys.argv[1], 443)}))"
    async with started(["api.example.test:443", "*.wild.test:443"]) as up:
        for name in ("api.example.test", "a.wild.test", "b.c.wild.test"):
            assert "'33.64." in await python(up, source, name)
        for name in ("wild.test", "example.test", "secret.attacker.test"):
            answer = await python(up, source, name)
            assert answer.startswith("1 ")
            assert "gaierror" in answer
        assert set(refused(up)) == {"wild.test", "example.test", "secret.attacker.test"}


@needs_bubblewrap
async def test_an_address_on_the_list_is_reached_without_a_name() -> None:
    async with plain_server() as port, started([f"127.0.0.1:{port}"]) as up:
        assert await python(up, WITH_URLLIB, f"http://127.0.0.1:{port}/") == "0 reached"


@needs_bubblewrap
async def test_its_own_loopback_is_its_own() -> None:
    """A program may serve its own parts (a browser that it drives)."""
    source = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname());"
        "print(s.accept()[1][0])"
    )
    async with started([]) as up:
        assert await python(up, source) == "0 127.0.0.1"


@needs_bubblewrap
async def test_no_rights_are_left_in_its_network() -> None:
    async with started(["api.example.test:443"]) as up:
        status = await python(up, "print(open('/proc/self/status').read())")
        assert "CapEff:\t0000000000000000" in status
        assert "CapBnd:\t0000000000000000" in status
        assert "Seccomp:\t2" in status
        source = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])"
        assert await python(up, source) == "0 [0, 1, 2, 3]", "the last one is of the directory"
        assert "Permission" in await python(up, "import socket; socket.create_server(('127.0.0.1', 80))")


async def test_without_bubblewrap_it_is_not_started() -> None:
    alone = Isolation(SandboxSettings(mode="launcher"))
    if await alone.why_none() is not None:
        pytest.skip("the launcher does not work here")
    how = {"command": sys.executable, "args": ["-ES", str(SERVERS / "prying.py")], "start": "eager"}
    sandbox = {"network": ["api.example.test:443"], "allow_fs": {"read_only": [str(SERVERS)]}}
    servers = {"up": ServerSettings.model_validate({**how, "sandbox": sandbox})}
    watcher, make = Watcher(), TransportMaker(max_bytes=1 << 20, redact=str, runner=lambda: alone)
    with anyio.fail_after(120):
        async with (pool := Pool(servers, make, watcher, client_info={"name": "b", "version": "1"})).running():
            await watcher.reaches("retrying")
            assert "needs bubblewrap" in pool.upstreams["up"].connection.state_text


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("api.github.com", "api.github.com:443"),
        ("https://api.github.com", "HOST:PORT"),
        ("localhost:80", "127.0.0.1:80"),
        ("*:443", "neither a host name"),
        ("*.com:443", "too much"),
        ("x:0", "no port 0"),
    ],
)
def test_a_mistake_on_the_list_is_an_error(entry: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message.replace("*", r"\*")):
        ServerSettings.model_validate({"command": "x", "sandbox": {"network": [entry]}})
