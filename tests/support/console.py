"""A daemon with a home of its own and its console in a real browser, for tests that do what a person would."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomlkit

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
PATIENCE = 30_000
"""Milliseconds that a page may take for anything, on a busy machine."""


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
            [sys.executable, "-m", "mcpbridge", *args],
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
