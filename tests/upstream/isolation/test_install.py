"""Installing what `npx` and `uvx` run: how, from where, and with the real `npx` from a registry of this test."""

import base64
import hashlib
import io
import json
import shutil
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest

from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.upstream.isolation.install import plan_for, registries, variables_of_installation, why_not_before
from mcpbridge.upstream.isolation.packages import package_of
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports.factory import TransportMaker
from support.upstreams.scripted_upstream import Watcher

NPM, PYTHON = ("registry.npmjs.org:443",), ("pypi.org:443", "files.pythonhosted.org:443")


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("npx -y @a/b@1 x", "--yes --package=@a/b@1 --call true"),
        ("npx b", "--yes --package=b --call true"),
        ("npx --package=@a/b -- bin x", "--yes --package=@a/b --call true"),
        ("npm exec -y b", "exec --yes --package=b --call true"),
        ("uvx mcp-server-time --x y", "--from mcp-server-time python -c "),
        ("uvx --python 3.12 --from a==1 b", "--python 3.12 --from a==1 python -c "),
        ("uv tool run a", "tool run --from a python -c "),
        ("uv run --with a --python 3.12 serve x", "run --no-project --with a --python 3.12 python -c "),
        ("uv run --no-project -w a serve", "run --no-project -w a python -c "),
    ],
)
def test_the_package_is_installed_and_nothing_of_it_runs(line: str, args: str) -> None:
    command, *rest = line.split()
    plan = plan_for(package_of(command, rest), {})
    assert plan is not None
    assert " ".join(plan.args) == args


@pytest.mark.parametrize(
    "line",
    [
        "npx -c x",
        "npx -p a --call b",
        "bunx a",
        "pipx run a",
        "uv run a.py",
        "node a.js",
        "npx",
        "uv run --with a -m b",
    ],
)
def test_what_cannot_be_installed_alone_is_not(line: str) -> None:
    command, *rest = line.split()
    assert plan_for(package_of(command, rest), {}) is None


def test_a_project_of_uv_is_left_to_its_user() -> None:
    package = package_of("uv", ["run", "--with", "a", "serve"])
    assert plan_for(package, {}, "/srv/project") is None
    assert plan_for(package_of("uv", ["run", "--no-project", "--with", "a", "b"]), {}, "/srv/project") is not None


@pytest.mark.parametrize(
    ("line", "is_possible"),
    [
        ("npx a", True),
        ("uvx a", True),
        ("uv run --with a b", True),
        ("node a.js", True),
        ("bunx a", False),
        ("pipx run a", False),
        ("uv run b.py", False),
        ("npx -c a", False),
    ],
)
def test_what_cannot_be_installed_before_is_known_with_the_reason(line: str, is_possible: bool) -> None:
    command, *rest = line.split()
    assert (why_not_before(package_of(command, rest)) == "") is is_possible


@pytest.mark.parametrize("name", ["npm_config_cache", "NPM_CONFIG_CACHE", "UV_CACHE_DIR"])
def test_a_cache_elsewhere_is_left_to_its_user(name: str) -> None:
    assert plan_for(package_of("npx", ["a"]), {name: "/srv/cache"}) is None


@pytest.mark.parametrize(
    ("line", "env", "hosts"),
    [
        ("npx a", {}, NPM),
        ("uvx a", {}, PYTHON),
        ("npx a", {"npm_config_registry": "http://10.0.0.1:4873/"}, ("10.0.0.1:4873",)),
        ("npx a", {"npm_config_@x:registry": "https://npm.x.test/"}, (*NPM, "npm.x.test:443")),
        ("npx --registry=https://r.test a", {}, ("r.test:443",)),
        ("uvx a", {"UV_DEFAULT_INDEX": "https://i.test/simple"}, ("i.test:443",)),
        ("uvx a", {"UV_INDEX": "x=https://i.test/simple https://[::1]:8/s"}, (*PYTHON, "i.test:443", "[::1]:8")),
        ("uvx --from git+https://github.com/a/b c", {}, (*PYTHON, "github.com:443")),
    ],
)
def test_packages_come_from_where_the_environment_says(line: str, env: dict[str, str], hosts: tuple[str, ...]) -> None:
    command, *rest = line.split()
    assert registries(package_of(command, rest), env) == hosts


def test_the_installation_gets_no_secrets_of_the_server() -> None:
    env = {"PATH": "/bin", "TOKEN": "s", "npm_config_registry": "r", "UV_INDEX": "i"}
    own = {"TOKEN": "s", "npm_config_registry": "r", "UV_INDEX": "i"}
    assert variables_of_installation(env, own) == {"PATH": "/bin", "npm_config_registry": "r", "UV_INDEX": "i"}


SERVER = """#!/usr/bin/env node
require('readline').createInterface({ input: process.stdin }).on('line', line => {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) return
  const result = method === 'initialize'
    ? { protocolVersion: params.protocolVersion, capabilities: {}, serverInfo: { name: 'tiny', version: '1' } } : {}
  console.log(JSON.stringify({ jsonrpc: '2.0', id, result }))
})
"""


@contextmanager
def npm_registry() -> Iterator[tuple[int, list[str]]]:
    """A registry with one package, `tiny-server`; the paths that it was asked for."""
    packed = io.BytesIO()
    manifest = {"name": "tiny-server", "version": "1.0.0", "bin": {"tiny-server": "server.js"}}
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (("package.json", json.dumps(manifest)), ("server.js", SERVER)):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    tarball, asked = packed.getvalue(), list[str]()

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            address = f"http://127.0.0.1:{self.server.server_address[1]}/tiny-server/-/tiny-server-1.0.0.tgz"
            digest = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
            version = {**manifest, "dist": {"tarball": address, "integrity": f"sha512-{digest}"}}
            document = {"name": "tiny-server", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            is_known = self.path.startswith("/tiny-server")
            body = tarball if self.path.endswith(".tgz") else json.dumps(document).encode()
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1], asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no sandbox elsewhere")
@pytest.mark.skipif(shutil.which("npx") is None, reason="npx is not installed")
async def test_npx_installs_before_the_start_and_runs_without_a_network(tmp_path: Path) -> None:
    sandbox = Isolation(SandboxSettings(mode="bubblewrap"))
    if (missing := await sandbox.why_none()) is not None:
        pytest.skip(f"bubblewrap does not work here: {missing[0]}")
    name = f"tiny_{tmp_path.name}"
    with npm_registry() as (port, asked):
        env = {"npm_config_registry": f"http://127.0.0.1:{port}/", "npm_config_audit": "false"}
        how = {"command": "npx", "args": ["-y", "tiny-server"], "env": env, "sandbox": True, "start": "eager"}
        for _ in range(2):
            servers = {name: ServerSettings.model_validate(how)}
            watcher, make = Watcher(), TransportMaker(max_bytes=1 << 20, redact=str, runner=lambda: sandbox)
            pool = Pool(servers, make, watcher, client_info={"name": "b", "version": "1"})
            with anyio.fail_after(180):
                async with pool.running():
                    await watcher.reaches("ready")
            assert sum(path.endswith(".tgz") for path in asked) == 1, "the second start installs nothing"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no sandbox elsewhere")
@pytest.mark.skipif(shutil.which("npx") is None, reason="npx is not installed")
async def test_a_registry_that_is_not_on_the_list_is_named(tmp_path: Path) -> None:
    sandbox = Isolation(SandboxSettings(mode="bubblewrap"))
    if (missing := await sandbox.why_none()) is not None:
        pytest.skip(f"bubblewrap does not work here: {missing[0]}")
    name = f"bad_{tmp_path.name}"
    env = {"npm_config_registry": "http://packages.example.test:4873/", "npm_config_fetch_retries": "0"}
    own = {"network": "none", "install_network": ["registry.example.test:443"]}
    how = {"command": "npx", "args": ["-y", "tiny-server"], "env": env, "sandbox": own, "start": "eager"}
    servers = {name: ServerSettings.model_validate(how)}
    watcher, make = Watcher(), TransportMaker(max_bytes=1 << 20, redact=str, runner=lambda: sandbox)
    pool = Pool(servers, make, watcher, client_info={"name": "b", "version": "1"})
    with anyio.fail_after(180):
        async with pool.running():
            await watcher.reaches("retrying")
            said = pool.upstreams[name].connection.state_text
    assert "its packages cannot be installed" in said
    assert f'add "packages.example.test:4873" to `servers.{name}.sandbox.install_network`' in said
