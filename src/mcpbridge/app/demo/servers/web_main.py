"""The demo's server `web`: help pages of the shop, over streamable HTTP on a free port of this machine.

It prints its URL on a line, and serves until its standard input ends.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mcpbridge.app.demo.servers.mcp_server import Message, Server, ToolFailed, integer, text

server = Server("web", "Help pages of the shop.")

_SITE = "https://help.example.com"
_PAGES = {
    "returns": "# Returns\nGoods can be sent back within 30 days.\nWe pay the way back of what arrived damaged.\n",
    "shipping": "# Shipping\nWe ship to Germany, France and the United States.\nDesks come on two days a week.\n",
    "payment": "# Payment\nWe take cards and transfers.\nRefunds arrive within 5 working days.\n",
    "warranty": "# Warranty\nChairs and desks have 5 years, lamps 2.\nKeep the invoice.\n",
}
_URL = text("The address of the page.")


def _page(url: str) -> str:
    name = url.removeprefix(_SITE).strip("/")
    if name not in _PAGES:
        raise ToolFailed(f"there is no page {url}; there are: {', '.join(_PAGES)}")
    return _PAGES[name]


@server.tool(
    "Search the help pages for words. Returns addresses and the lines that have them.",
    reads=True,
    words=text("What to search for, in any case."),
    limit=integer("How many lines to return at most.", default=10, minimum=1),
)
def search_pages(words: str, limit: int) -> list[str]:
    """Lines that have the words."""
    found = [
        f"{_SITE}/{name}: {line}"
        for name, page in _PAGES.items()
        for line in page.splitlines()
        if words.lower() in line.lower()
    ]
    return found[:limit]


@server.tool("Read a help page as Markdown.", reads=True, url=_URL)
def read_page(url: str) -> str:
    """A page."""
    return _page(url)


@server.tool("List the addresses of all help pages.", reads=True)
def list_pages() -> list[str]:
    """All pages."""
    return [f"{_SITE}/{name}" for name in _PAGES]


@server.tool("Count the words and lines of a help page.", reads=True, url=_URL)
def count_words(url: str) -> dict[str, int]:
    """How long a page is."""
    page = _page(url)
    return {"words": len(page.split()), "lines": len(page.splitlines())}


class _Handler(BaseHTTPRequestHandler):
    """One message in a POST, one answer as JSON; there are no sessions and no streams."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a message."""
        message: Message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        answered = server.answer(message, lambda _: None)
        self._reply(202 if answered is None else 200, b"" if answered is None else json.dumps(answered).encode())

    def do_GET(self) -> None:
        """There is no stream to listen to."""
        self._reply(405, b"")

    def log_message(self, format: str, *_arguments: object) -> None:  # noqa: A002 - the name of the base class
        """Say nothing."""

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    front = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{front.server_address[1]}/mcp\n")
    sys.stdout.flush()
    front.serve_forever()
