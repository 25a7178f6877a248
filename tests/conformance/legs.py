"""What is run: the fixture reached in every way, with the bridge between, and the bridge as a client of the suite."""

import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tomlkit

from conformance.fixture.serving import Era
from conformance.fleet import behind_a_balancer
from conformance.processes import TESTS, environment, running, wait_until_ready
from conformance.suite import PREFIX, REVISIONS, Suite
from support.ports import free_port

__all__ = ["CLIENT", "DIRECT", "FLEET_LEGS", "FURTHER_LEGS", "LEGS", "ClientLeg", "ServerLeg"]

Reached = Literal["stdio", "http", "sse", "websocket"]


@dataclass(frozen=True)
class ServerLeg:
    """The suite as the client, the fixture as the server."""

    name: str
    upstream: Reached | None
    """How the bridge reaches the fixture; None: no bridge between."""
    era: Era = "both"
    revisions: tuple[str, ...] = tuple(REVISIONS)
    of_fleet: bool = False
    """Several bridges behind a balancer instead of one."""

    def run(self, suite: Suite, folder: Path) -> None:
        """The results of each revision lie in a folder of its name."""
        with tempfile.TemporaryDirectory() as home, self._serving(Path(home), folder) as url:
            for revision in self.revisions:
                suite.ask_server(url, revision, folder / revision, prefixed=self.upstream is not None)

    @contextmanager
    def _serving(self, home: Path, folder: Path) -> Iterator[str]:
        env = environment(home, XDG_RUNTIME_DIR=str(home))
        fixture = [sys.executable, "-m", "conformance.fixture", "--era", self.era]
        with ExitStack() as stack:

            def start(command: list[str], port: int, ready: str, number: int = 1) -> None:
                log = folder / (f"{ready}.log" if number == 1 else f"{ready}{number}.log")
                child = stack.enter_context(running(command, log, env, home))
                wait_until_ready(f"http://127.0.0.1:{port}/{ready}", child, log)

            folder.mkdir(parents=True)
            server: dict[str, Any] = {"command": fixture[0], "args": fixture[1:], "env": {"PYTHONPATH": str(TESTS)}}
            if self.upstream != "stdio":
                port = free_port()
                start([*fixture, "--port", str(port)], port, "health")
                url, settings = _addresses(port)[self.upstream or "http"]
                if self.upstream is None:
                    yield url
                    return
                server = {"url": url, **settings}
            settings = {"servers": {PREFIX.rstrip("_"): server}}
            if self.of_fleet:
                port, places = stack.enter_context(behind_a_balancer(home, folder, settings))
            else:
                port, config = free_port(), folder / "servers.toml"
                config.write_text(tomlkit.dumps(settings), "utf-8")
                places = [(home, config, port)]
            for number, (place, config, at) in enumerate(places, 1):
                env = environment(place, XDG_RUNTIME_DIR=str(place))
                bridge = [sys.executable, "-m", "mcpbridge", "serve", "--config", str(config)]
                # The suite sends no headers of its own, so it cannot have a token.
                start([*bridge, "--http", f"127.0.0.1:{at}", "--no-auth"], at, "readyz", number)
                if (self.upstream, self.era) == ("stdio", "legacy"):
                    for capabilities in ({"elicitation": {}}, {}) if self.of_fleet else ({"elicitation": {}},):
                        _call_once(f"http://127.0.0.1:{at}/mcp", capabilities)
            yield f"http://127.0.0.1:{port}/mcp"


def _call_once(url: str, capabilities: dict[str, Any]) -> None:
    """Call a tool as a client that can be asked so much.

    For each kind of client the bridge starts a legacy fixture once more, which takes a second or two of Python's
    imports. One scenario gives the first frame 0.6 seconds, and is about other things. Of one bridge its first requests
    start what the later ones need; of several each gets some of them.
    """
    prefix = "io.modelcontextprotocol/"
    meta = {prefix + "protocolVersion": "2026-07-28", prefix + "clientCapabilities": capabilities}
    name = PREFIX + "test_simple_text"
    params = {"name": name, "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    mirrored = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}
    request = urllib.request.Request(url, body, {**headers, **mirrored})
    urllib.request.urlopen(request, timeout=60).read()


def _addresses(port: int) -> dict[Reached, tuple[str, dict[str, str]]]:
    at = f"127.0.0.1:{port}"
    return {
        "http": (f"http://{at}/mcp", {"transport": "streamable-http"}),
        "sse": (f"http://{at}/sse", {"transport": "sse"}),
        "websocket": (f"ws://{at}/ws", {"transport": "websocket"}),
    }


@dataclass(frozen=True)
class ClientLeg:
    """The suite as the server (and authorization server), the bridge as its client."""

    name: str
    bridged: bool = True
    """False: the official SDK's client in the bridge's place."""
    revisions: tuple[str, ...] = ("2025-11-25", "2026-07-28")

    def scenarios(self, suite: Suite, revision: str) -> list[str]:
        """Those of the frozen set, and the one beside it that needs no extension."""
        return [*suite.scored(revision, "client"), "json-schema-2020-12-preservation"]

    def run(self, suite: Suite, client: list[str], folder: Path, revision: str, scenario: str) -> None:
        """Run one scenario with that command (`client.py`); its results lie in the folder of the revision's name."""
        command = [*client, *([] if self.bridged else ["--direct"])]
        suite.ask_client(command, scenario, revision, folder / revision / scenario.replace("/", "-"))


DIRECT = ServerLeg("directly", None)
_HANDSHAKE = ("2025-06-18", "2025-11-25")
LEGS = [
    ServerLeg("stdio", "stdio"),
    ServerLeg("http", "http"),
    ServerLeg("stdio legacy", "stdio", "legacy", ("2026-07-28",)),
    ServerLeg("http legacy", "http", "legacy", ("2026-07-28",)),
    ServerLeg("stdio modern", "stdio", "modern", _HANDSHAKE),
    ServerLeg("http modern", "http", "modern", _HANDSHAKE),
]
"""What the project promises."""
FURTHER_LEGS = [
    ServerLeg("sse legacy", "sse", "legacy"),
    ServerLeg("websocket", "websocket"),
    ServerLeg("websocket legacy", "websocket", "legacy", ("2026-07-28",)),
    ServerLeg("websocket modern", "websocket", "modern", _HANDSHAKE),
]
"""What no requirement set knows of, so not with every change."""
FLEET_LEGS = [
    ServerLeg("fleet stdio", "stdio", of_fleet=True),
    ServerLeg("fleet http", "http", of_fleet=True),
    ServerLeg("fleet stdio legacy", "stdio", "legacy", ("2026-07-28",), of_fleet=True),
    ServerLeg("fleet http modern", "http", "modern", _HANDSHAKE, of_fleet=True),
]
"""Several bridges that act as one must not differ from one."""
CLIENT = ClientLeg("bridge as client")
