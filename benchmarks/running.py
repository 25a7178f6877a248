"""Processes under measurement: started, made ready, and ended with all that they started."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.clients import CallFailed, Client, HttpClient, StdioClient, handshake
from benchmarks.readings import cpu_seconds, memory_mib
from benchmarks.subjects import Launch, Site, Subject, Unsupported, Upstream, Wire

__all__ = ["Running", "Starting", "start", "start_http_upstream"]

_READY = 60.0
"""Seconds until a server that still is not ready counts as failed."""


class Started:
    """A process, and a folder for what it writes. `pid` is 0 where nothing had to be started."""

    def __init__(self, launch: Launch, folder: Path, *, pipes: bool) -> None:
        self._log = folder / "stderr.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.pid = 0
        if not launch.argv:
            return
        pipe = subprocess.PIPE if pipes else subprocess.DEVNULL
        # A home of its own: what a peer keeps there (tokens, caches) neither comes from nor goes to the user's.
        env = {**os.environ, **launch.env, "HOME": str(folder)}
        with self._log.open("wb") as log:
            try:
                self.process = subprocess.Popen(
                    launch.argv, stdin=pipe, stdout=pipe, stderr=log, bufsize=0, env=env, start_new_session=True
                )
            except OSError as error:
                raise Unsupported(f"does not start: {error.strerror}") from error
        self.pid = self.process.pid

    def last_words(self) -> str:
        """The end of its stderr, on one line; for error messages."""
        with suppress(OSError):
            lines = self._log.read_text(errors="replace").strip().splitlines()
            return lines[-1][:200] if lines else ""
        return ""

    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def stop(self) -> None:
        """Close its input, then SIGTERM, then SIGKILL to its group."""
        if self.process is None:
            return
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with suppress(OSError):
                    pipe.close()
        # A server on stdio goes when its input ends; give it the time to end its children in order.
        waits = ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0))
        if self.process.stdin:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(3)
        for number, seconds in waits:
            if self.process.poll() is not None:
                break
            self.process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class Running:
    """A subject that answers, with one client connected to it."""

    def __init__(self, subject: Subject, started: Started, client: Client) -> None:
        self.subject, self.client, self._started = subject, client, started
        self.pid = started.pid
        self.row = ""
        self.label = subject.name
        """The name under which its figures are noted."""
        self.tools: list[str] = []

    def list_tools(self) -> list[str]:
        """The names of all pages."""
        names: list[str] = []
        params: dict[str, str] = {}
        while True:
            result = self.client.request("tools/list", params)
            names += [tool["name"] for tool in result["tools"]]
            if not result.get("nextCursor"):
                return names
            params = {"cursor": result["nextCursor"]}

    def await_tools(self, count: int) -> None:
        """Until it lists as many tools as the upstreams have (any, if it wraps them)."""
        wanted = 1 if self.subject.wraps else count
        end = time.perf_counter() + _READY
        while len(names := self.list_tools()) < wanted:
            if time.perf_counter() > end:
                raise CallFailed(f"lists {len(names)} tools of {wanted} after {_READY:g} s")
            time.sleep(0.01)
        self.tools = names

    def params(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.subject.call(self.tools, tool, arguments)

    def cpu(self) -> float | None:
        """Seconds of its own process; None when there is none between client and upstream."""
        return cpu_seconds(self.pid) if self.pid and self.subject.name != "direct" else None

    def memory(self) -> dict[str, float]:
        return memory_mib(self.pid) if self.pid else {}

    def stop(self) -> None:
        with suppress(OSError):
            self.client.close()
        self._started.stop()


class Starting:
    """A subject whose process is under way. Raises Unsupported."""

    def __init__(self, subject: Subject, front: Wire, upstreams: Sequence[Upstream], folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._subject = subject
        self._launch = subject.launch(Site(folder, front, free_port()), upstreams)
        self._started = Started(self._launch, folder, pipes=not self._launch.url)

    def greet(self) -> Running:
        """Connect and shake hands. Raises CallFailed, having stopped it."""
        started, url = self._started, self._launch.url
        try:
            if url:
                await_port(url, started)
                client: Client = HttpClient(url)
            else:
                assert started.process
                client = StdioClient(started.process)
            handshake(client)
        except (CallFailed, OSError) as error:
            words = started.last_words()
            started.stop()
            raise CallFailed(f"{error}; it wrote: {words}" if words else str(error)) from error
        return Running(self._subject, started, client)

    def stop(self) -> None:
        self._started.stop()


def start(subject: Subject, front: Wire, upstreams: Sequence[Upstream], folder: Path) -> Running:
    """Start it and shake hands. Raises Unsupported, CallFailed."""
    return Starting(subject, front, upstreams, folder).greet()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_port(url: str, started: Started) -> None:
    """Until something listens there. Raises CallFailed when the process ends first."""
    port = int(url.split(":")[2].split("/")[0])
    end = time.perf_counter() + _READY
    while time.perf_counter() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if started.ended():
            raise CallFailed("ended before it listened")
        time.sleep(0.02)
    raise CallFailed(f"did not listen within {_READY:g} s")


def start_http_upstream(folder: Path) -> tuple[Started, Upstream]:
    """One server on HTTP, for all subjects."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    started = Started(Launch(tuple(Upstream.http_command(port)), url), folder, pipes=False)
    await_port(url, started)
    return started, Upstream("up", url=url)
