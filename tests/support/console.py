"""A daemon with a home of its own and its console in a real browser, for tests that do what a person would."""

import json
import os
import queue
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomlkit

from support.programs import preloaded_bridge

if TYPE_CHECKING:
    from playwright.sync_api import Page

WHOLE_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), "")
CHROMIUM = shutil.which("chromium-headless-shell") or WHOLE_CHROMIUM
"""Without windows a page costs half as much; but nobody can let it show notifications."""
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
PATIENCE = 120_000
"""Milliseconds that a page may take for anything, on a busy machine."""

NARROW: Any = {"viewport": {"width": 390, "height": 800}, "bypass_csp": True, "reduced_motion": "reduce"}
"""A telephone. Axe is put into its pages; colours change at once with the theme."""


class Home:
    """A user's home with one `servers.toml`, and the daemon of it."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder = folder
        self.config = folder / "servers.toml"
        self.write(config)
        runtime = folder / "run"
        runtime.mkdir(mode=0o700, exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "PYTHONPATH") if name in os.environ}
        self.env = {**kept, "HOME": str(folder), "XDG_RUNTIME_DIR": str(runtime)}

    def write(self, config: Mapping[str, Any]) -> None:
        """Write the configuration: tables by name."""
        self.config.write_text(tomlkit.dumps({name: value for name, value in config.items() if value}))

    def run(self, *args: str, within: float = 90.0, code: int | None = 0) -> str:
        """`mcpbridge ARGS`; what it prints, or its error where that is all. `code`: the exit code that it must have."""
        done = subprocess.run(
            [*preloaded_bridge.command(), *args],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )
        assert code is None or done.returncode == code, (
            f"{args}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout or done.stderr

    def link(self) -> str:
        """A one-time link to the console, as `mcpbridge ui` prints it; starts the daemon if none runs."""
        return json.loads(self.run("ui", "--json", "--config", str(self.config)))["url"]

    def call(self, tool: str, *arguments: str, code: int | None = 0) -> str:
        """Call a tool through the daemon; what the command prints."""
        return self.run("call", tool, *arguments, "--config", str(self.config), code=code)


@contextmanager
def home(config: Mapping[str, Any]) -> Iterator[Home]:
    """A home with this configuration, as tables. Its daemon is stopped at the end."""
    folder = Path(tempfile.gettempdir()) / f"mcpb-{secrets.token_hex(4)}"  # a socket's path must be short
    folder.mkdir(mode=0o700)
    one = Home(folder, config)
    try:
        one.run("up", "--config", str(one.config))
        yield one
    finally:
        one.run("down", "--all", code=None)
        shutil.rmtree(folder, ignore_errors=True)


class Desk:
    """A client named `desk`, as a program of its own: it asks one thing after another, and may wait for a person."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process, self._last = process, 0
        self._answers: queue.Queue[Mapping[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        info = {"name": "desk", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        self.answer()
        self._send(method="notifications/initialized")

    def ask(self, method: str, **params: Any) -> None:
        """Send a request."""
        self._last += 1
        self._send(id=self._last, method=method, params=params)

    def call(self, tool: str, **arguments: Any) -> None:
        """Begin a call."""
        self.ask("tools/call", name=tool, arguments=arguments)

    def answer(self) -> Any:
        """What came of the last request."""
        while True:
            answer = self._answers.get(timeout=2 * PATIENCE / 1000)
            if answer.get("id") == self._last:
                return answer["result"]

    def text(self) -> str:
        """What the last call was answered; it must have done its work."""
        result = self.answer()
        assert not result.get("isError"), result
        return result["content"][0]["text"]

    def _send(self, **message: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(json.loads(line))


@contextmanager
def desk_of(home: Home) -> Iterator[Desk]:
    """A client of the daemon of this home."""
    command = [*preloaded_bridge.command(), "serve", "--config", str(home.config)]
    with subprocess.Popen(
        command,
        env=home.env,
        cwd=home.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield Desk(process)
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait(30)


def violations(page: "Page") -> list[str]:
    """What axe-core finds in both themes, and whether the page fits; with where."""
    from axe_playwright_python.sync_playwright import Axe

    page.get_by_role("heading", level=1).wait_for()
    found: list[Any] = []
    axe: Any = Axe()
    for scheme, options in (("dark", None), ("light", {"runOnly": ["color-contrast"]})):  # a theme changes colours only
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type] - a Literal
        found += axe.run(page, options=options).response["violations"]
    wide = [] if page.evaluate("document.documentElement.scrollWidth <= window.innerWidth") else ["it is too wide"]
    return [f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in found] + wide
