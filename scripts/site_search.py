"""Ask the search of the built site what newcomers ask, in their words, and see whether it shows them the right page.

    python scripts/site_search.py            builds the site into a temporary directory, and asks there
    python scripts/site_search.py --site DIR asks a site that is built

A browser types each question into the search of the site; the page that answers it must be among the first three hits.
Needs Chromium and Playwright. The exit code is 1 if a question finds no answer, or a page loads something from another
host.
"""

import argparse
import functools
import importlib.util
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

QUESTIONS = {
    "too many tokens": ["how-to/cut-the-token-bill.html"],
    "block delete": ["how-to/stop-a-dangerous-call.html"],
    "swagger api": ["how-to/tool-openapi.html"],
    "wrap a shell script as a tool": ["how-to/tool-command.html"],
    "oauth login": ["how-to/sign-in-to-a-server.html"],
    "docker compose": ["how-to/run-in-docker.html"],
    "start at boot": ["how-to/run-under-systemd.html"],
    "share servers between claude and cursor": ["how-to/share-one-daemon.html"],
    "api key in config file": ["how-to/keep-secrets-out.html"],
    "mock servers in pytest": ["how-to/record-and-replay.html"],
    "tool call failed timeout": ["how-to/find-out-why-a-call-failed.html"],
    "migrate from mcp-proxy": ["how-to/move-from-another-proxy.html"],
    "python function as tool": ["how-to/tools.html"],
    "remote access for my team": ["how-to/serve-http.html"],
    "ask before running a tool": ["how-to/stop-a-dangerous-call.html"],
    "connect cursor": ["start/clients.html", "start/clients-by-hand.html"],
    "server does not start": ["how-to/doctor.html", "explanation/reliability.html"],
    "web dashboard": ["how-to/console.html"],
    "uninstall": ["start/install.html"],
}
"""What newcomers type, and the pages of which one answers it."""
AMONG = 3
"""The answer is among so many pages, the first ones."""
FIELD = 'input[aria-controls$="-results"]'
HITS = "a[role=option]"
"""Both are in a shadow root of the theme's."""


@contextmanager
def served(folder: Path) -> Generator[str]:
    """The site at an address of this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def pages_found(page: Any, question: str) -> list[str]:
    """Type a question into the search; returns the pages that it shows, the best first."""
    field = page.locator(FIELD)
    field.fill("")
    page.wait_for_timeout(100)
    field.press_sequentially(question, delay=5)
    last: list[str] = []
    until = time.monotonic() + 10
    while time.monotonic() < until:  # results come while one types: they are final once they stay
        page.wait_for_timeout(150)
        links = page.eval_on_selector_all(HITS, "all => all.map(one => one.getAttribute('href'))")
        found = list(dict.fromkeys(str(link).split("#")[0].split("?")[0] for link in links))
        if found and found == last:
            return found
        last = found
    return last


def ask(site: Path, chromium: str) -> list[str]:
    """Ask every question; returns what is wrong, a line each."""
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with served(site) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        loaded: list[str] = []
        page.on("request", lambda request: loaded.append(request.url))
        page.goto(address)
        page.locator(FIELD).wait_for(state="attached")
        page.locator(".md-search__button").click()
        for question, answers in QUESTIONS.items():
            found = [one.removeprefix(address) for one in pages_found(page, question)]
            place = next((place for place, one in enumerate(found, 1) if one in answers), 0)
            if not 1 <= place <= AMONG:
                wrong.append(f"{question!r}: {' or '.join(answers)} is not among the first {AMONG}: {found[:6]}")
            else:
                print(f"{place}  {question}: {found[place - 1]}")
        browser.close()
        wrong += [f"loads {url}" for url in dict.fromkeys(loaded) if not url.startswith((address, "data:", "blob:"))]
    return wrong


def build(out: Path) -> None:
    """Build the site, as `make docs` does."""
    spec = importlib.util.spec_from_file_location("site_of_docs", Path(__file__).with_name("site.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build(out)


def main() -> int:
    """Ask, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--site", type=Path)
    options = parser.parse_args()
    names = ("chromium", "chromium-browser", "chromium-headless-shell")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        print("chromium is not installed: `make browser` installs Debian's", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as near:
        site = options.site
        if site is None:
            site = Path(near) / "site"
            build(site)
        wrong = ask(site, chromium)
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
