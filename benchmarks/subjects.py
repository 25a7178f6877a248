"""What is measured: the bridge, the floor, no bridge at all, and the bridges that other people use.

A subject says how it is installed (each peer in a virtual environment of its own) and how it is started in front of
some upstreams; it knows nothing of what will be measured.
"""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

__all__ = ["Launch", "Site", "Subject", "Unsupported", "Upstream", "Wire", "subjects"]

Wire = Literal["stdio", "HTTP"]

_PROGRAMS = Path(__file__).parent / "programs"


class Unsupported(Exception):
    """This subject cannot do that; says why in a few words."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """One server to stand behind the bridge: a command or, when it listens already, a URL."""

    name: str
    argv: tuple[str, ...] = ()
    url: str = ""

    @staticmethod
    def stdio(name: str, tools: int = 2) -> "Upstream":
        return Upstream(name, (sys.executable, str(_PROGRAMS / "upstream_stdio.py"), str(tools)))

    @staticmethod
    def sick(name: str, how: Literal["crash", "mute"]) -> "Upstream":
        return Upstream(name, (sys.executable, str(_PROGRAMS / "upstream_sick.py"), how))

    @staticmethod
    def http_command(port: int) -> list[str]:
        return [sys.executable, str(_PROGRAMS / "upstream_http.py"), str(port)]


@dataclass(frozen=True, slots=True)
class Site:
    """Where one process is to be started: its folder, its front and, for HTTP, the port."""

    folder: Path
    front: Wire
    port: int


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a process and reach it. An empty `argv` means that it runs already."""

    argv: tuple[str, ...]
    url: str = ""
    env: dict[str, str] = field(default_factory=dict[str, str])


class Subject(Protocol):
    """One thing to measure."""

    name: str
    wraps: bool
    """It publishes a few tools of its own instead of the upstreams' tools."""

    def install(self) -> None:
        """Make it ready to start. Raises Unsupported."""
        ...

    def version(self) -> str: ...

    def launch(self, site: Site, upstreams: Sequence[Upstream]) -> Launch:
        """Raises Unsupported."""
        ...

    def call(self, published: Sequence[str], tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The params of tools/call that run `tool` of the first upstream, given the names that are published."""
        ...


def subjects(environments: Path, bridge: str, before: str = "") -> list[Subject]:
    """All of them, in the order of the tables. `bridge` is the command line of the bridge, `before` of an older one."""
    return [
        Direct(),
        Floor(),
        Bridge(shlex.split(bridge)),
        *([Bridge(shlex.split(before), name="before")] if before else []),
        Compressor(environments),
        FastMcp(environments),
        McpProxy(environments),
    ]


def _published(names: Sequence[str], tool: str) -> str:
    """`tool` itself, or else the first name that ends with it: bridges prefix."""
    for name in names:
        if name == tool:
            return name
    for name in names:
        if name.endswith(tool):
            return name
    raise Unsupported(f"publishes no tool named like {tool}")


class _Relay:
    """What most subjects share: they publish the upstream's tools under a name that ends with its own."""

    wraps = False

    def install(self) -> None:
        return

    def call(self, published: Sequence[str], tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"name": _published(published, tool), "arguments": arguments}


class Direct(_Relay):
    """No bridge: the client speaks to the upstream, over the upstream's transport."""

    name = "direct"

    def version(self) -> str:
        return ""

    def launch(self, site: Site, upstreams: Sequence[Upstream]) -> Launch:
        if len(upstreams) > 1:
            raise Unsupported("one upstream only")
        return Launch(upstreams[0].argv, upstreams[0].url)


class Floor(_Relay):
    """The least that a relay in Python can do."""

    name = "floor"

    def version(self) -> str:
        return ""

    def launch(self, site: Site, upstreams: Sequence[Upstream]) -> Launch:
        if len(upstreams) > 1:
            raise Unsupported("one upstream only")
        http = ("--http", str(site.port)) if site.front == "HTTP" else ()
        target = (upstreams[0].url,) if upstreams[0].url else upstreams[0].argv
        return Launch((sys.executable, str(_PROGRAMS / "floor_relay.py"), *http, *target), _endpoint(site))


class Bridge(_Relay):
    """This project, with its default settings."""

    name = "mcpbridge"

    def __init__(self, command: Sequence[str], *, sections: str = "", server: str = "", name: str = name) -> None:
        """`sections` of the configuration besides the servers', and lines of each server's own."""
        self._command, self._sections, self._server, self.name = tuple(command), sections, server, name

    def configured(self, *, sections: str, server: str = "") -> "Bridge":
        """The same with other settings."""
        return Bridge(self._command, sections=sections, server=server)

    def version(self) -> str:
        return _output([*self._command, "--version"]).rsplit(" ", 1)[-1]

    def launch(self, site: Site, upstreams: Sequence[Upstream]) -> Launch:
        sections: list[str] = []
        for upstream in upstreams:
            lines = [f"[servers.{upstream.name}]"]
            if upstream.url:
                lines.append(f"url = {json.dumps(upstream.url)}")
            else:
                lines += [f"command = {json.dumps(upstream.argv[0])}", f"args = {json.dumps(upstream.argv[1:])}"]
            sections.append("\n".join([*lines, self._server]))
        sections.append(self._sections)
        config = site.folder / "servers.toml"
        # The client is one that would be listed four tools in place of thousands; measured is a list of all.
        config.write_text("\n\n".join(['expose.mode = "all"', *sections]) + "\n")
        # The other subjects ask for no token either.
        http = ("--http", f"127.0.0.1:{site.port}", "--no-auth") if site.front == "HTTP" else ()
        # In the process that is started: the daemon's share of a call would be counted nowhere.
        env = {"MCPBRIDGE_STANDALONE": "1", "XDG_CACHE_HOME": str(self.cache_of(site.folder))}
        return Launch((*self._command, "serve", "--config", str(config), *http), _endpoint(site), env)

    @staticmethod
    def cache_of(folder: Path) -> Path:
        """Where it remembers what servers offered: not in the folder, which is new at each start."""
        return folder.with_name(f"{folder.name} remembers")


class _Installed(_Relay):
    """A package from PyPI, in an environment of its own."""

    package: str
    pinned: str

    def __init__(self, environments: Path) -> None:
        self._home = environments / self.package

    def install(self) -> None:
        stamp, wanted = self._home / "installed", f"{self.package}=={self.pinned}"
        if stamp.exists() and stamp.read_text() == wanted:
            return
        shutil.rmtree(self._home, ignore_errors=True)
        print(f"installing {wanted}", file=sys.stderr, flush=True)
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        # uvloop because uvicorn takes it where it finds it: a peer is measured at its best.
        extra = [] if sys.platform == "win32" else ["uvloop"]
        for command in (
            [sys.executable, "-m", "venv", str(self._home)],
            [self._program("python"), "-m", "pip", "install", *quiet, wanted, *extra],
        ):
            done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                raise Unsupported(f"cannot be installed: {last}")
        stamp.write_text(wanted)

    def version(self) -> str:
        return self.pinned

    def _program(self, name: str) -> str:
        return str(self._home / "bin" / name)


_FASTMCP = """\
import json, sys
from fastmcp.server import create_proxy

config, port = json.load(open(sys.argv[1])), int(sys.argv[2])
how = {"transport": "http", "host": "127.0.0.1", "port": port} if port else {"transport": "stdio"}
create_proxy(config, name="proxy").run(show_banner=False, **how)
"""


class FastMcp(_Installed):
    """FastMCP's proxy."""

    name, package, pinned = "fastmcp", "fastmcp", "4.1.2"

    def launch(self, site: Site, upstreams: Sequence[Upstream]) -> Launch:
        script = site.folder / "proxy.py"
        script.write_text(_FASTMCP)
        port = str(site.port if site.front == "HTTP" else 0)
        quiet = {"FASTMCP_LOG_LEVEL": "WARNING", "FASTMCP_CHECK_FOR_UPDATES": "off"}
        return Launch(
            (self._program("python"), str(script), _mcp_servers(site, upstreams), port), _endpoint(site), quiet
        )


class McpProxy(_Installed):
    """mcp-proxy: from HTTP to a command, or from stdio to a URL."""

    name, package, pinned = "mcp-proxy", "mcp-proxy", "0.13.0"

    def launch(self, site: Site, upstreams: Sequence[Upstream]) -> Launch:
        only = upstreams[0]
        if len(upstreams) > 1:
            raise Unsupported("one upstream only")
        if (site.front == "HTTP") == bool(only.url):
            raise Unsupported("goes from HTTP to stdio and from stdio to HTTP only")
        start = (self._program("mcp-proxy"), "--log-level", "WARNING")
        if only.url:
            return Launch((*start, "--transport", "streamablehttp", only.url))
        return Launch((*start, "--port", str(site.port), "--", *only.argv), _endpoint(site))


class Compressor(_Installed):
    """mcp-compressor (Rust). It has no plain mode: calls go through its own `invoke_tool`."""

    name, package, pinned = "mcp-compressor", "mcp-compressor", "0.38.2"
    wraps = True

    def launch(self, site: Site, upstreams: Sequence[Upstream]) -> Launch:
        http = ("--transport", "streamable-http", "--port", str(site.port)) if site.front == "HTTP" else ()
        start = (self._program("mcp-compressor"), *http)
        if len(upstreams) > 1:
            return Launch((*start, "--config", _mcp_servers(site, upstreams)), _endpoint(site))
        only = upstreams[0]
        # Without a header of ours it begins to sign in by OAuth, asked or not.
        target = (only.url, "-H", "Authorization=Bearer bench") if only.url else only.argv
        return Launch((*start, "--", *target), _endpoint(site))

    def call(self, published: Sequence[str], tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        wrapped = {"tool_name": tool, "tool_input": arguments}
        return {"name": _published(published, "invoke_tool"), "arguments": wrapped}


def _endpoint(site: Site) -> str:
    return f"http://127.0.0.1:{site.port}/mcp" if site.front == "HTTP" else ""


def _mcp_servers(site: Site, upstreams: Sequence[Upstream]) -> str:
    """Write the configuration that most bridges read; its path."""
    servers = {
        upstream.name: {"url": upstream.url}
        if upstream.url
        else {"command": upstream.argv[0], "args": list(upstream.argv[1:])}
        for upstream in upstreams
    }
    config = site.folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    return str(config)


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsupported(f"does not start: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Unsupported(f"does not start: {last}")
    return done.stdout.strip()
