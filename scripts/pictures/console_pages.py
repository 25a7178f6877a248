"""Take the pictures of the console: a daemon with the demo's servers, some calls, and each page in both themes.

    python scripts/pictures/console_pages.py docs/images

Needs Chromium (`chromium` on the PATH) and Playwright. Writes `console-PAGE.png` and `console-PAGE-dark.png`.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

PAGES = {"overview": "", "calls": "calls", "catalog": "catalog", "savings": "savings"}
"""By the name of the picture, the path below `/console`."""
_SERVERS = ("shop", "calendar")
_CALLS: tuple[tuple[str, dict[str, object]], ...] = (
    ("shop__list_products", {}),
    ("shop__list_orders", {}),
    ("shop__get_customer", {"name": "Ada Byron"}),
    ("shop__find_orders", {"state": "open"}),
    ("shop__get_order", {"number": 1}),
)
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


def main(arguments: list[str]) -> int:
    """Exit code 0; 2 for wrong arguments or without Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if len(arguments) != 1 or chromium is None:
        print(__doc__ if chromium else "Chromium is not installed: `make browser` installs Debian's.", file=sys.stderr)
        return 2
    folder = Path(tempfile.gettempdir()) / f"mcpb-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    env = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    program = [sys.executable, "-m", "mcpbridge"]
    config = folder / "servers.toml"
    tables = [
        f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\n"
        f'args = ["-m", "mcpbridge.app.demo.servers.{name}_main"]\n'
        for name in _SERVERS
    ]
    config.write_text("\n".join(tables))
    try:
        ui = [*program, "ui", "--json", "--config", str(config)]
        told = subprocess.run(ui, env=env, stdout=subprocess.PIPE, check=True)
        _call([*program, "serve", "--config", str(config)], env)
        _take(json.loads(told.stdout)["url"], chromium, Path(arguments[0]))
    finally:
        subprocess.run([*program, "down", "--all"], env=env, stdout=subprocess.DEVNULL, check=False)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _call(command: list[str], env: dict[str, str]) -> None:
    """Call some tools as an MCP client does, so that the pages have something to show."""
    info = {"name": "claude-code", "version": "2"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    asked = [("initialize", hello), *(("tools/call", {"name": name, "arguments": given}) for name, given in _CALLS)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for number, (method, params) in enumerate(asked):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                if json.loads(line).get("id") == number:
                    break
        process.stdin.close()
        process.wait(60)


def _take(link: str, chromium: str, folder: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(link)
        start = link.partition("/enter")[0]
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme="light" if theme == "light" else "dark")
            for name, path in PAGES.items():
                page.goto(f"{start}/{path}")
                page.locator("h1").wait_for()
                page.wait_for_timeout(1500)  # charts and live parts
                page.evaluate("document.querySelector('.where code').textContent = '~/servers.toml'")
                page.screenshot(path=folder / f"console-{name}{'' if theme == 'light' else '-dark'}.png")
        browser.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
