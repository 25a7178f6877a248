"""Take the pictures of the console: a daemon with the demo's servers, some calls, and each page in both themes.

    python scripts/pictures/console_pages.py docs/images

Needs Chromium (`chromium` on the PATH), Playwright and Pillow. Writes `console-PAGE.png` and `console-PAGE-dark.png`,
with few colours, so that they are small.
"""

import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

_SERVERS = ("shop", "calendar", "notes")
_CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("shop__list_products", {}),
    ("shop__list_customers", {}),
    ("shop__get_order", {"order_id": "48200259"}),
    ("shop__monthly_report", {"month": "2026-03"}),
    ("shop__get_order", {"order_id": 99999}),
    ("shop__monthly_report", {"month": "March"}),
    ("shop__find_orders", {"state": "shipped", "limit": 100}),
    ("shop__find_orders", {"state": "open", "limit": 100}),
)
"""The last one is shown: the one before it loads what the first large result needs."""
_REFUNDS = (
    {"order_id": 48200259, "amount": 2.5, "reason": "It came late"},
    {"order_id": 48200444, "amount": 9.0, "reason": "It came late"},
)
"""The first is approved, the second waits while the pictures are taken."""
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_SIZE: ViewportSize = {"width": 1200, "height": 800}
_COLOURS = 48
_RENAMED = """
(names) => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    for (const [before, after] of names) walk.currentNode.data = walk.currentNode.data.replaceAll(before, after);
  }
}
"""
"""Paths of this machine are those of no reader."""


def main(arguments: list[str]) -> int:
    """Exit code 0; 2 for wrong arguments or without Chromium."""
    names = ("chromium", "chromium-browser", "chromium-headless-shell")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if len(arguments) != 1 or chromium is None:
        print(__doc__ if chromium else "Chromium is not installed: `make browser` installs Debian's.", file=sys.stderr)
        return 2
    folder = Path(tempfile.gettempdir()) / f"mcpb-{secrets.token_hex(4)}"  # a socket's path must be short
    folder.mkdir(mode=0o700)
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    program = [sys.executable, "-m", "mcpbridge"]
    config = folder / "servers.toml"
    tables = [
        f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\n"
        f'args = ["-m", "mcpbridge.app.demo.servers.{name}_main", {json.dumps(str(folder))}]\n'
        for name in _SERVERS
    ]
    rule = '[[permissions]]\ntools = "shop/refund_order"\npermission = "require_approval"\nreason = "it moves money"\n'
    config.write_text("\n".join([*tables, rule, '[expose]\nmode = "search"\nslim = "slim"\n']))
    try:
        ui = [*program, "ui", "--json", "--config", str(config)]
        answer = subprocess.run(ui, env=env, cwd=folder, stdout=subprocess.PIPE, check=True)
        renamed = [[f"{folder}/", "~/"], [str(folder), "~"], [sys.executable, "python"]]
        with _client([*program, "serve", "--config", str(config)], env, folder) as client:
            _take(json.loads(answer.stdout)["url"], chromium, Path(arguments[0]), client, renamed)
    finally:
        subprocess.run([*program, "down", "--all"], env=env, stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


class _Client:
    """An MCP client, as a program of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process, self._number = process, 0
        info = {"name": "claude-code", "version": "2"}
        self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self.request("tools/list", {})

    def request(self, method: str, params: dict[str, Any]) -> None:
        """Ask, and wait for the answer."""
        self.begin(method, params)
        self.finish()

    def begin(self, method: str, params: dict[str, Any]) -> None:
        """Ask."""
        assert self._process.stdin
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        """Wait for the answer to what was asked last."""
        assert self._process.stdout
        for line in self._process.stdout:
            if json.loads(line).get("id") == self._number:
                return


@contextmanager
def _client(command: list[str], env: dict[str, str], folder: Path) -> Generator[_Client]:
    with subprocess.Popen(
        command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _Client(process)
        finally:
            process.terminate()


def _take(link: str, chromium: str, folder: Path, client: _Client, renamed: list[list[str]]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        page = browser.new_context(viewport=_SIZE).new_page()
        page.goto(link)
        start = link.partition("/enter")[0]
        for name, given in _CALLS:
            client.request("tools/call", {"name": name, "arguments": given})
        page.goto(f"{start}/approvals")
        refunds = [{"name": "shop__refund_order", "arguments": given} for given in _REFUNDS]
        client.begin("tools/call", refunds[0])
        page.get_by_role("button", name="Approve once").click()
        client.finish()
        client.begin("tools/call", refunds[1])
        page.get_by_role("region", name="What is new").wait_for()
        page.goto(f"{start}/calls?tool=find_orders")
        call = page.locator("#calls td.name a").first.get_attribute("href")
        page.goto(f"{start}/results")
        result = page.locator("main table a").first.get_attribute("href")
        pages = {
            "overview": f"{start}/",
            "calls": f"{start}/calls",
            "call": f"{start.removesuffix('/console')}{call}",
            "catalog": f"{start}/catalog?q=give+a+customer+their+money+back",
            "approvals": f"{start}/approvals",
            "result": f"{start.removesuffix('/console')}{result}",
            "servers": f"{start}/servers",
            "savings": f"{start}/savings",
            "settings": f"{start}/settings",
        }
        for name, address in pages.items():
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme="light" if theme == "light" else "dark")
                page.goto(address)
                page.locator("h1").wait_for()
                page.wait_for_timeout(1500)  # charts, and parts that are asked for
                page.evaluate(_RENAMED, renamed)
                _write(page, folder / f"console-{name}{'' if theme == 'light' else '-dark'}.png")
        browser.close()


def _write(page: Page, path: Path) -> None:
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
