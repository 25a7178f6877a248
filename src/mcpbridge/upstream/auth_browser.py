"""Opens a page in the user's browser. Never through a shell, and nothing but http and https (CVE-2025-6514)."""

import os
import sys
import webbrowser
from collections.abc import Mapping
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

__all__ = ["has_browser", "open_page"]

_SECONDS = 20.0
"""A browser may be slow to start; one that has not come by then is not waited for."""


def has_browser(environ: Mapping[str, str]) -> bool:
    """Whether there is a browser with a screen. One in a terminal would take the terminal that the bridge runs in."""
    if sys.platform in ("darwin", "win32"):
        return True
    return any(environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


async def open_page(url: str) -> bool:
    """Show the page. False when there is no browser to show it in."""
    if urlsplit(url).scheme not in ("http", "https") or not has_browser(os.environ):
        return False
    with anyio.move_on_after(_SECONDS):
        # On a thread: some browsers are waited for until they are closed.
        return await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
    return False
