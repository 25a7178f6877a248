"""What a call costs in a fleet: `python -m benchmarks.fleet [--calls N] [--rounds N]`.

Bridges as processes of this machine with one `redis-server`, which is needed. A client sends calls one after another,
each to the next bridge, as a balancer without stickiness does. Printed are

- the CPU time of all bridges for a call, less what they take in as much time without calls, for one bridge without a
  fleet and for fleets of 1, 2 and 3, in turns, so that what else the machine does meets all of them; and its ratio to
  the bridge alone. With a session, all calls but one of N go over the link; those of revision 2026-07-28 have none;
- the same for calls of one session at the bridge that has it, and by way of another bridge, one after another and 16 at
  once: what the link costs, without what it costs that calls are spread; and the time of a call, if the machine has
  nothing else to do;
- commands and bytes that the Redis server sees for a call of each kind, from `INFO`, less what it sees in as much time
  without calls. Commands within a script count one by one.
"""

import argparse
import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

__all__ = ["main"]

_UPSTREAM = Path(__file__).parent / "programs" / "upstream_stdio.py"
_TOKEN = secrets.token_hex(16)
_PREFIX = "io.modelcontextprotocol/"
_TRIES = 600
_KINDS: Mapping[str, tuple[str, int]] = {
    "plain": ("", 10),
    "on a stream": ("", 10),
    "kept result": ("", 40_000),
    "rate limit": ("[servers.up]\nrate_limit = '100000/1m'\n", 10),
    "budget": ("[calls]\nmax_calls = 1000000\n", 10),
    "not cached yet": ("[servers.up]\ntool.echo.cache = '10min'\n", 10),
    "cached": ("[servers.up]\ntool.echo.cache = '10min'\n", 0),
    "approval": ("[[permissions]]\ntools = ['up/echo']\npermission = 'require_approval'\n", 10),
}
"""By kind of call: what the configuration says, and letters of the argument, which comes back as the result."""

_APPROVED = 60
"""Calls that wait for an approval: each takes a second, as a bridge looks once a second for what others answered."""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class _Redis:
    """A server on a socket."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise SystemExit("redis-server is needed: `make redis` installs Debian's")
        self.path = directory / "redis.sock"
        where = ["--port", "0", "--unixsocket", str(self.path), "--save", "", "--dir", str(directory)]
        self.process = subprocess.Popen([program, *where], stdout=subprocess.DEVNULL)
        for _ in range(_TRIES):
            if self.path.exists():
                return
            time.sleep(0.05)
        raise SystemExit("redis-server does not start")

    def info(self) -> tuple[int, int, int]:
        """Commands, bytes in, bytes out."""
        command = ["redis-cli", "-s", str(self.path), "INFO", "stats"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        values = dict(line.strip().split(":", 1) for line in text.splitlines() if ":" in line)
        names = ("total_commands_processed", "total_net_input_bytes", "total_net_output_bytes")
        commands, received, sent = (int(values[name]) for name in names)
        return commands, received, sent


class _Bridge:
    """A bridge that serves HTTP."""

    def __init__(self, directory: Path, config: str) -> None:
        directory.mkdir()
        self.port, link = _free_port(), _free_port()
        file = directory / "servers.toml"
        file.write_text(config.replace("LINK", f"127.0.0.1:{link}"), "utf-8")
        command = [
            sys.executable,
            "-m",
            "mcpbridge",
            "serve",
            "--http",
            f"127.0.0.1:{self.port}",
            "--config",
            str(file),
        ]
        kinds = ("STATE_HOME", "DATA_HOME", "CONFIG_HOME", "CACHE_HOME", "RUNTIME_DIR")
        homes = {"HOME": str(directory), **{f"XDG_{kind}": str(directory) for kind in kinds}}
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **homes}, stdout=log, stderr=log)
        for _ in range(_TRIES):
            try:
                self.connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
                self.connection.request("GET", "/healthz/ready")
                if json.loads(self.connection.getresponse().read())["status"] == "ready":
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit((directory / "log").read_text())

    def ask(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[str, str]:
        """The session that the answer names, and its text."""
        self.connection.request("POST", "/mcp", json.dumps(body), dict(headers))
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status not in (200, 202) or '"error"' in text:
            raise SystemExit(f"HTTP {answer.status}: {text}")
        return answer.headers.get("mcp-session-id", ""), text

    def api(self, method: str, path: str, headers: Mapping[str, str], body: Mapping[str, Any] | None = None) -> Any:
        """What the HTTP API answers."""
        self.connection.request(method, path, None if body is None else json.dumps(body), dict(headers))
        answer = self.connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise SystemExit(f"HTTP {answer.status}: {text}")
        return json.loads(text)

    def seconds(self) -> float:
        """CPU time so far, without its servers."""
        return time.clock_gettime((~self.process.pid << 3) | 2)  # the kernel's CPU clock of that process


class _Fleet:
    """Bridges that act as one, or one that is alone."""

    def __init__(self, stack: ExitStack, directory: Path, redis: _Redis | None, size: int, more: str) -> None:
        store = "" if redis is None else f'[store]\nkind = "redis"\nurl = "unix://{redis.path}"\n'
        store += "" if redis is None else f'prefix = "{directory.name}"\n[fleet]\nlisten = "LINK"\nkey = "{_TOKEN}"\n'
        token = f'[[http.tokens]]\nname = "bench"\nadmin = true\nsha256 = "{sha256(_TOKEN.encode()).hexdigest()}"\n'
        up = f'[servers.up]\ncommand = "{sys.executable}"\nargs = ["{_UPSTREAM}"]\n'
        is_of_server = "[servers.up]" in more
        more = more.replace("[servers.up]\n", "")
        config = (f"{more}\n" if not is_of_server else "") + store + token + up + (more if is_of_server else "")
        directory.mkdir()
        self.bridges: list[_Bridge] = []
        for number in range(size):
            self.bridges.append(_Bridge(directory / f"b{number}", config))
            stack.callback(self.bridges[-1].process.send_signal, signal.SIGKILL)
        self._headers = {
            "authorization": f"Bearer {_TOKEN}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
        self._session, _ = self.bridges[0].ask(begin, self._headers)
        self._count = 0
        self._waits = "require_approval" in more

    def calls(self, count: int, *, letters: int = 10, has_session: bool = True, has_progress: bool = False) -> None:
        """So many calls, each at the next bridge. `has_progress`: so that the answers come on streams of events."""
        params: dict[str, Any] = {"name": "up__echo"}
        headers = {**self._headers, "mcp-session-id": self._session}
        if not has_session:
            params["_meta"] = {_PREFIX + "protocolVersion": "2026-07-28", _PREFIX + "clientCapabilities": {}}
            more = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "up__echo"}
            headers = {**self._headers, **more}
        for _ in range(count):
            self._count += 1
            arguments: dict[str, Any] = {"text": secrets.token_hex(letters // 2)}  # kept anew: none is like another
            params["arguments"] = arguments
            if has_progress:
                arguments["progress"] = True
                params["_meta"] = {"progressToken": self._count}
            body = {"jsonrpc": "2.0", "id": self._count, "method": "tools/call", "params": params}
            self._call(self.bridges[self._count % len(self.bridges)], body, headers)

    def _call(self, bridge: _Bridge, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """A call, which is approved by way of another bridge if it has to be."""
        if not self._waits:
            bridge.ask(body, headers)
            return
        other = next(one for one in self.bridges if one is not bridge)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(bridge.ask, body, headers)
            for _ in range(_TRIES):
                time.sleep(0.1)  # each look costs commands, and is nearly always the only one
                if waiting := other.api("GET", "/api/approvals", self._headers)["approvals"]:
                    other.api("POST", f"/api/approvals/{waiting[0]['id']}", self._headers, {"decision": "approve"})
                    break
            answer.result()

    def request(self, id_: int) -> bytes:
        """One call of the session, whole."""
        params = {"name": "up__echo", "arguments": {"text": "hello"}}
        body = json.dumps({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}).encode()
        headers = {
            **self._headers,
            "mcp-session-id": self._session,
            "content-length": str(len(body)),
            "host": "localhost",
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body

    def cpu(self, count: int, *, has_session: bool) -> float:
        """CPU time of all bridges for a call, µs."""
        began, before = time.monotonic(), sum(one.seconds() for one in self.bridges)
        self.calls(count, has_session=has_session)
        after, took = sum(one.seconds() for one in self.bridges), time.monotonic() - began
        time.sleep(took)
        idle = sum(one.seconds() for one in self.bridges) - after
        return (after - before - idle) / count * 1e6


@contextmanager
def _redis(directory: Path) -> Generator[_Redis]:
    redis = _Redis(directory)
    try:
        yield redis
    finally:
        redis.process.kill()
        redis.process.wait()


def _growth(directory: Path, redis: _Redis, calls: int, rounds: int) -> None:
    with ExitStack() as stack:
        fleets = {"alone": _Fleet(stack, directory / "alone", None, 1, "")}
        fleets |= {f"fleet of {n}": _Fleet(stack, directory / f"fleet{n}", redis, n, "") for n in (1, 2, 3)}
        for has_session in (True, False):
            took: dict[str, list[float]] = {name: [] for name in fleets}
            for number in range(rounds + 1):
                for name, one in fleets.items():
                    spent = one.cpu(calls, has_session=has_session)
                    if number:  # the first is for warming up
                        took[name].append(spent)
            print("with a session" if has_session else "without a session (2026-07-28)")
            for name, spent in took.items():
                ratios = [mine / alone for mine, alone in zip(spent, took["alone"], strict=True)]
                print(f"  {name:<12} {statistics.median(spent):6.0f} µs CPU a call  {statistics.median(ratios):.2f} ×")


async def _side_by_side(port: int, requests: Sequence[bytes], count: int) -> list[float]:
    """Seconds of each call: so many in all, each request on a connection of its own at the same time."""
    took: list[float] = []

    async def one(request: bytes, calls: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(calls):
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = await reader.readexactly(int(length.partition(b":")[2]))
            took.append(time.perf_counter() - began)
            if not head.startswith(b"HTTP/1.1 200") or b'"error"' in body:
                raise SystemExit((head + body).decode())
        writer.close()

    await asyncio.gather(*(one(request, count // len(requests)) for request in requests))
    return took


def _link(directory: Path, redis: _Redis, calls: int, rounds: int) -> None:
    with ExitStack() as stack:
        fleet = _Fleet(stack, directory / "link", redis, 2, "")
        ways = ("at its bridge", "by way of another")
        print("calls of one session")
        for connections in (1, 16):
            requests = [fleet.request(1 + number) for number in range(connections)]
            spent: dict[str, list[float]] = {way: [] for way in ways}
            took: dict[str, list[float]] = {way: [] for way in ways}
            for number in range(rounds + 1):
                for way, bridge in zip(ways, fleet.bridges, strict=True):
                    before = sum(one.seconds() for one in fleet.bridges)
                    times = asyncio.run(_side_by_side(bridge.port, requests, calls))
                    after = sum(one.seconds() for one in fleet.bridges)
                    if number:
                        spent[way].append((after - before) / len(times) * 1e6)
                        took[way].append(statistics.median(times) * 1e6)
            for way in ways:
                ratios = [mine / own for mine, own in zip(spent[way], spent[ways[0]], strict=True)]
                cpu, ratio = statistics.median(spent[way]), statistics.median(ratios)
                print(f"  {connections:>2} in flight, {way:<17} {cpu:4.0f} µs CPU {ratio:.2f} ×", end="")
                print(f"  {statistics.median(took[way]):5.0f} µs p50")


def _operations(directory: Path, redis: _Redis, calls: int) -> None:
    print("commands and bytes at the Redis server for a call")
    for number, (kind, (more, letters)) in enumerate(_KINDS.items()):
        with ExitStack() as stack:
            fleet = _Fleet(stack, directory / f"kind{number}", redis, 2, more)
            has_progress = kind == "on a stream"
            made = min(calls, _APPROVED) if kind == "approval" else calls
            fleet.calls(10, letters=letters, has_progress=has_progress)
            began, before = time.monotonic(), redis.info()
            fleet.calls(made, letters=letters, has_progress=has_progress)
            after, seconds = redis.info(), time.monotonic() - began
            time.sleep(seconds)
            idle = redis.info()
            spent = [(two - one - (three - two)) / made for one, two, three in zip(before, after, idle, strict=True)]
            print(f"  {kind:<12} {spent[0]:6.2f} commands, {spent[1]:8.0f} bytes in, {spent[2]:8.0f} bytes out")
            beat = (idle[0] - after[0]) / seconds / 2
            print(f"  {'':<12} {beat:6.2f} commands a second of each bridge without calls")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=400, help="calls of a batch")
    parser.add_argument("--rounds", type=int, default=9, help="batches of each fleet")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the bridges and the server end as well
    with tempfile.TemporaryDirectory(prefix="fl-") as found, _redis(Path(found)) as redis:
        _link(Path(found), redis, options.calls, options.rounds)
        _growth(Path(found), redis, options.calls, options.rounds)
        _operations(Path(found), redis, options.calls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
