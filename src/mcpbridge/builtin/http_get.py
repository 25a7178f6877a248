"""`http-get`: reads a page or another text from the web, wherever on the internet a model asks for.

Nothing inside is fetched: see `sandbox/addresses.py`. What comes is the text of whoever runs the site.
"""

import asyncio
import re
from typing import TYPE_CHECKING, Any

import msgspec

from mcpbridge.builtin.fetch_settings import HttpGetSettings
from mcpbridge.conduct import CallSettings
from mcpbridge.errors import ArgumentsRefused
from mcpbridge.model import Call
from mcpbridge.wire.body import Body
from mcpbridge.wire.frame import encode

if TYPE_CHECKING:  # loaded with the first call
    from mcpbridge.builtin.page_text import Page
    from mcpbridge.sandbox.fetching import Fetched, Fetcher

__all__ = ["HttpGet"]

_DEFINITION: dict[str, Any] = {
    "name": "http-get",
    "title": "Read a web page",
    "description": (
        "Fetch a URL (http or https) and read it: HTML as Markdown with its links, JSON and plain text as they are. "
        "Only public addresses; other types of files are named, not shown."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "The whole address, with https://"},
            "max_chars": {"type": "integer", "minimum": 1, "description": "Characters of text to give at most"},
            "start": {"type": "integer", "minimum": 0, "description": "Character of the text to begin with"},
            "raw": {"type": "boolean", "description": "HTML as it is, not as Markdown"},
            "headers": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Request headers, such as Accept or Accept-Language",
            },
        },
        "required": ["url"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True},
}
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e]{0,2000}")
_FORBIDDEN = re.compile(
    r"metadata.*|x-(aws-ec2|google|identity|forwarded|real).*|forwarded|cookie|proxy-.*|host", re.IGNORECASE
)
"""Headers with which clouds are asked for credentials, or that tell of somebody else."""
_GOOD = range(200, 300)


class HttpGet:
    """The tool."""

    def __init__(self, settings: HttpGetSettings, fetcher: "Fetcher | None" = None) -> None:
        """Nothing is loaded before the first call. `fetcher`: who fetches; None: one by the settings."""
        self._settings, self._fetcher = settings, fetcher

    @property
    def definition(self) -> dict[str, Any]:
        """See `Builtin`."""
        return _DEFINITION

    @property
    def treatment(self) -> CallSettings:
        """See `Builtin`. Of medium risk: an address can carry out what a model has read."""
        return CallSettings(permission="allow", risk="medium", read_only=True, idempotent=True, call_timeout=60)

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        from mcpbridge.builtin.page_text import page_of
        from mcpbridge.results.frame import defused

        asked = _asked(call)
        fetched = await self._opened().fetch(asked.url, headers=self._headers(asked.headers))
        content_type = fetched.headers.get("content-type", "")
        # Not in the event loop: a page of some megabytes takes a while.
        page = await asyncio.to_thread(page_of, fetched.body, content_type, fetched.url, is_raw=asked.raw)
        most = min(asked.max_chars or self._settings.max_chars, self._settings.max_chars)
        text = "\n\n".join([_about(fetched, page, asked.url), _shown(page, len(fetched.body), asked.start, most)])
        result: dict[str, Any] = {"content": [{"type": "text", "text": defused(text)}]}
        if fetched.status not in _GOOD:
            result["isError"] = True
        return Body(encode(result))

    async def close(self) -> None:
        """Nothing is open between calls."""

    def _opened(self) -> "Fetcher":
        if self._fetcher is None:
            from mcpbridge.sandbox.fetching import Fetcher, FetchLimits

            settings = self._settings
            limits = FetchLimits(settings.timeout, settings.max_size, settings.max_redirects)
            self._fetcher = Fetcher(settings, limits=limits)
        return self._fetcher

    def _headers(self, given: dict[str, str]) -> dict[str, str]:
        accept = "text/html,application/xhtml+xml,application/json,text/*;q=0.9,*/*;q=0.5"
        headers = {"accept": accept, "accept-language": "en,*;q=0.5"}
        if self._settings.user_agent:
            headers["user-agent"] = self._settings.user_agent
        return headers | given


class _Asked(msgspec.Struct, frozen=True):
    """The arguments."""

    url: str
    max_chars: int = 0
    start: int = 0
    raw: bool = False
    headers: dict[str, str] = {}


def _asked(call: Call) -> _Asked:
    arguments = call.params.inner("arguments")
    try:
        asked = msgspec.convert(arguments.value() if arguments is not None else {}, _Asked)
    except msgspec.ValidationError as error:
        raise ArgumentsRefused(f"http-get: {error}") from error
    headers: dict[str, str] = {}
    for name, value in asked.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ArgumentsRefused(f"headers: {name[:60]!r} or its value is not how headers are written")
        if _FORBIDDEN.fullmatch(name):
            raise ArgumentsRefused(f"headers: {name[:60]!r} is not sent for a tool")
        headers[name.lower()] = value
    return msgspec.structs.replace(asked, headers=headers)


def _about(fetched: "Fetched", page: "Page", url: str) -> str:
    """What came from where, in a few lines."""
    came = fetched.url if fetched.redirects == 0 else f"{fetched.url} (redirected from {url})"
    size = f"{len(fetched.body):,} bytes"
    lines = [f"URL: {_on_line(came)}", f"Status: {fetched.status} · {page.kind or 'unknown type'} · {size}"]
    return "\n".join([f"Title: {page.title}", *lines] if page.title else lines)


def _shown(page: "Page", size: int, start: int, most: int) -> str:
    if size == 0:
        return "(The answer is empty.)"
    if page.text is None:
        return f"(This is {page.kind or 'of an unknown type'}, {size:,} bytes, and not shown: it holds no text.)"
    if not page.text.strip():
        return "(The page has no text of its own; it may be made by scripts in a browser. `raw` gives the HTML.)"
    part = page.text[start : start + most]
    told = f"({start + len(part):,} of {len(page.text):,} characters; `start`: {start + len(part)} goes on.)"
    if not part:
        return f"(The text has {len(page.text):,} characters; there is nothing from {start:,} on.)"
    return part if start + len(part) == len(page.text) else f"{part}\n\n{told}"


def _on_line(text: str) -> str:
    return "".join(char for char in text if char.isprintable())
