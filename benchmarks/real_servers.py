"""Measure the daemon before twenty real servers: python -m benchmarks.real_servers [--rounds N] [--json FILE]

The servers come from npm and PyPI, pinned in `real/`, and are installed under `.bench/` at the first run. None of them
needs a network to list its tools. Measured is what a client waits for, from the start of its `mcpbridge serve` to the
answer of `tools/list`; how many processes ten clients at once take; and what is left when all is over. Linux only.
"""

import argparse
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.clients import CallFailed, StdioClient, handshake
from benchmarks.readings import foreign_seconds, memory_mib

__all__ = ["Figures", "main"]

_ROOT = Path(__file__).resolve().parent.parent
_PINNED = Path(__file__).with_name("real")

_NODE = {
    "everything": ("mcp-server-everything", [], {}),
    "files": ("mcp-server-filesystem", ["."], {}),
    "memory": ("mcp-server-memory", [], {}),
    "thinking": ("mcp-server-sequential-thinking", [], {}),
    "github": ("mcp-server-github", [], {}),
    "gitlab": ("mcp-server-gitlab", [], {"GITLAB_PERSONAL_ACCESS_TOKEN": "none"}),
    "slack": ("mcp-server-slack", [], {"SLACK_BOT_TOKEN": "none", "SLACK_TEAM_ID": "none"}),
    "maps": ("mcp-server-google-maps", [], {"GOOGLE_MAPS_API_KEY": "none"}),
    "brave": ("mcp-server-brave-search", [], {"BRAVE_API_KEY": "none"}),
    "postgres": ("mcp-server-postgres", ["postgresql://127.0.0.1:1/none"], {}),
    "notion": ("notion-mcp-server", [], {"NOTION_TOKEN": "none"}),
    "tavily": ("tavily-mcp", [], {"TAVILY_API_KEY": "none"}),
    "context7": ("context7-mcp", [], {}),
    "chart": ("mcp-server-chart", [], {}),
    "drawio": ("drawio-mcp", [], {}),
    "shortcut": ("mcp-server-shortcut", [], {"SHORTCUT_API_TOKEN": "none"}),
}
_PYTHON = {
    "git": ("mcp-server-git", [], {}),
    "time": ("mcp-server-time", ["--local-timezone", "Etc/UTC"], {}),
    "fetch": ("mcp-server-fetch", [], {}),
    "excel": ("excel-mcp-server", ["stdio"], {}),
}
_ALL_LISTED_IN = 120.0
"""Seconds for twenty servers to boot, on a busy machine with two cores."""
_COOKIE = "MCPBRIDGE_BENCH_COOKIE"


@dataclass(slots=True)
class Figures:
    """Milliseconds of each round, and counts."""

    first_ever: list[float] = field(default_factory=list[float])
    """Nothing is known and nothing runs: to the first listing, which waits 3 s at most for the servers."""
    all_listed: list[float] = field(default_factory=list[float])
    """The same, to a listing that has all tools."""
    running: list[float] = field(default_factory=list[float])
    """To the listing where the daemon runs."""
    known: list[float] = field(default_factory=list[float])
    """To the listing where the daemon does not run, and the manifest knows all servers."""
    standalone: list[float] = field(default_factory=list[float])
    """The same with `--standalone`."""
    tools: int = 0
    first_tools: list[int] = field(default_factory=list[int])
    """How many tools the very first listing had."""
    per_server: dict[str, int] = field(default_factory=dict[str, int])
    """Processes of each server while ten clients are there."""
    left: int = 0
    """Processes that were left at the end of a round, all rounds together."""
    daemon_mib: float = 0.0
    shim_mib: float = 0.0


class _World:
    """Directories of their own, and every process marked."""

    def __init__(self, work: Path, bridge: Sequence[str]) -> None:
        self.cookie = secrets.token_hex(8)
        self._bridge = list(bridge)
        self._home = work / "home"
        self._runtime = Path(f"/tmp/mcpb-{self.cookie}")  # a socket's path must be short
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir(parents=True)
        self._runtime.mkdir(mode=0o700)
        self.config = self._home / "servers.toml"
        self.config.write_text(_configuration(work, self.cookie), "utf-8")

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        return {**kept, "HOME": str(self._home), "XDG_RUNTIME_DIR": str(self._runtime), _COOKIE: self.cookie}

    @contextmanager
    def client(self, *options: str) -> Generator[tuple[StdioClient, int, float]]:
        """A client of `mcpbridge serve`, after the handshake; the process, and when it was started."""
        began = time.perf_counter()
        with (self._home / "stderr.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._bridge, "serve", "--config", str(self.config), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=self._home,
                env=self.environment(),
            )
        client = StdioClient(process)
        try:
            handshake(client)
            yield client, process.pid, began
        finally:
            client.close()
            process.wait(20)

    def command(self, *words: str) -> str:
        """What a command prints."""
        argv = [*self._bridge, *words]
        done = subprocess.run(argv, env=self.environment(), cwd=self._home, capture_output=True, text=True, check=False)
        return done.stdout

    def processes(self) -> dict[int, str]:
        """Everything that carries our mark, with its command line."""
        mark = f"{_COOKIE}={self.cookie}".encode()
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes():
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
        return found

    def emptied(self, seconds: float = 15) -> int:
        """Processes that are left; 0 as soon as there are none."""
        end = time.perf_counter() + seconds
        while (left := len(self.processes())) and time.perf_counter() < end:
            time.sleep(0.05)
        return left

    def forget(self) -> None:
        """As on the first day."""
        for kept in (".cache", ".local"):  # what servers offered, and what clients were answered
            shutil.rmtree(self._home / kept, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self._runtime, ignore_errors=True)


def _configuration(work: Path, cookie: str) -> str:
    lines = ['[expose]\nmode = "all"\n']
    for servers, bin_ in ((_NODE, work / "node_modules" / ".bin"), (_PYTHON, work / "venv" / "bin")):
        for name, (program, args, env) in servers.items():
            environment = {_COOKIE: cookie, **env}
            shown = ", ".join(f"{key} = {json.dumps(value)}" for key, value in environment.items())
            lines.append(f"[servers.{name}]\ncommand = {json.dumps(str(bin_ / program))}")
            lines.append(f"args = {json.dumps(args)}\nenv = {{ {shown} }}\n")
    return "\n".join(lines)


def _install(work: Path) -> None:
    stamp = work / ".ready"
    wanted = "".join(path.read_text("utf-8") for path in sorted(_PINNED.iterdir()))
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return
    print(f"installing {len(_NODE) + len(_PYTHON)} servers into {work} (once) …", file=sys.stderr)
    work.mkdir(parents=True, exist_ok=True)
    shutil.copy(_PINNED / "package.json", work)
    npm = ["npm", "install", "--prefix", str(work), "--silent", "--no-audit", "--no-fund", "--no-package-lock"]
    subprocess.run(npm, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(work / "venv")], check=True)
    pip = [str(work / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(_PINNED / "requirements.txt")], check=True)
    stamp.write_text(wanted, "utf-8")


def _listed(client: StdioClient) -> int:
    return len(client.request("tools/list", {})["tools"])


def _to_listing(world: _World, *options: str) -> tuple[float, int]:
    """Milliseconds to the first listing, and how many tools it had."""
    with world.client(*options) as (client, _, began):
        count = _listed(client)
        return (time.perf_counter() - began) * 1000, count


def _first_ever(world: _World, figures: Figures) -> None:
    with world.client() as (client, _, began):
        figures.first_tools.append(_listed(client))
        figures.first_ever.append((time.perf_counter() - began) * 1000)
        end, last_change, count = time.perf_counter() + _ALL_LISTED_IN, time.perf_counter(), -1
        while time.perf_counter() < end and (count < figures.tools or not figures.tools):
            if (now := _listed(client)) != count:
                count, last_change = now, time.perf_counter()
            elif not figures.tools and time.perf_counter() - last_change > 15:
                break  # the first round finds out how many there are
            time.sleep(0.05)
        figures.tools = max(figures.tools, count)
        figures.all_listed.append((last_change - began) * 1000)


def _ten_at_once(world: _World, figures: Figures) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(10) as pool:
        begun = list(pool.map(lambda _: stack.enter_context(world.client()), range(10)))
        counts = set(pool.map(lambda one: _listed(one[0]), begun))
        if counts != {figures.tools}:
            raise CallFailed(f"ten clients saw {sorted(counts)} tools, not {figures.tools}")
        lines = list(world.processes().values())
        programs = {name: program for servers in (_NODE, _PYTHON) for name, (program, _, _) in servers.items()}
        for name, program in programs.items():
            figures.per_server[name] = sum(f"/{program} " in f"{line} " for line in lines)
        figures.shim_mib = statistics.median(memory_mib(pid)["pss"] for _, pid, _ in begun)
        daemon = [pid for pid, line in world.processes().items() if " daemon " in line]
        figures.daemon_mib = memory_mib(daemon[0])["rss"] if daemon else 0.0


def _round(world: _World, figures: Figures) -> None:
    world.forget()
    _first_ever(world, figures)
    for _ in range(3):
        milliseconds, _count = _to_listing(world)
        figures.running.append(milliseconds)
    _ten_at_once(world, figures)
    world.command("down", "--config", str(world.config))
    figures.left += world.emptied()
    milliseconds, count = _to_listing(world)
    figures.known.append(milliseconds)
    if count != figures.tools:
        raise CallFailed(f"from the manifest {count} tools are listed, not {figures.tools}")
    world.command("down", "--config", str(world.config))
    figures.left += world.emptied()
    figures.standalone.append(_to_listing(world, "--standalone")[0])
    figures.left += world.emptied()


def _shown(figures: Figures) -> str:
    rows = [
        ("first start ever, to the first listing", figures.first_ever),
        ("… to a listing with all tools", figures.all_listed),
        ("no daemon, servers known, to the listing", figures.known),
        ("the same with --standalone", figures.standalone),
        ("daemon running, to the listing", figures.running),
    ]
    lines = ["| from the start of `mcpbridge serve` | median ms | fastest | slowest |", "|:--|--:|--:|--:|"]
    for title, values in rows:
        if values:
            low, middle, high = min(values), statistics.median(values), max(values)
            lines.append(f"| {title} | {middle:,.0f} | {low:,.0f} | {high:,.0f} |")
    several = {name: count for name, count in figures.per_server.items() if count > 1}
    started = sum(figures.per_server.values())
    twice = f"more than one of {', '.join(several)}" if several else "never more than one of a server"
    counts = ", ".join(map(str, figures.first_tools))
    words = [
        f"{len(figures.per_server)} servers, {figures.tools} tools; the very first listing had {counts}.",
        f"Ten clients at once: {started} server processes, {twice}.",
        f"Daemon {figures.daemon_mib:.0f} MiB resident, a shim {figures.shim_mib:.1f} MiB of its own share.",
        f"Processes left at the end: {figures.left}.",
    ]
    return "\n".join([*lines, "", " ".join(words)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 when something was left or started twice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_servers", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bridge", default=f"{sys.executable} -m mcpbridge", help="the command line of the bridge")
    parser.add_argument("--work", type=Path, default=_ROOT / ".bench" / "real")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    _install(options.work)
    world, figures = _World(options.work, options.bridge.split()), Figures()
    begin, foreign = time.perf_counter(), foreign_seconds()
    try:
        for number in range(options.rounds):
            print(f"round {number + 1} …", file=sys.stderr)
            _round(world, figures)
    finally:
        world.command("down", "--config", str(world.config))
        world.close()
    print(_shown(figures))
    print(
        f"\n{time.perf_counter() - begin:.0f} s; CPU of others, servers included: {foreign_seconds() - foreign:.0f} s."
    )
    if options.json:
        document: dict[str, Any] = {name: getattr(figures, name) for name in Figures.__slots__}
        options.json.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return 1 if figures.left or any(count > 1 for count in figures.per_server.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
