"""How a bridge that serves brings an authorization page before its user: in the browser, if there is one."""

import os

from mcpbridge.upstream.auth_account import Page, Show
from mcpbridge.upstream.auth_browser import has_browser, open_page

__all__ = ["open_in_browser"]


def open_in_browser() -> Show | None:
    """Opens pages in the browser of this desktop; None where there is none."""
    if not has_browser(os.environ):
        return None

    async def show(page: Page) -> bool:
        return await open_page(page.url)

    return show
