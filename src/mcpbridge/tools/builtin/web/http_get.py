"""`http-get`: reads a page or another text from the internet, wherever a model asks for it.

Nothing inside the local network is fetched: see `sandbox/fetch/address_rules.py`. The result is the text of whoever
runs the site. A page becomes Markdown by `html-to-markdown` (extra `web`): a parser in Rust that keeps links, tables
and code, leaves out scripts and what the page hides, and reads hostile pages in linear time.
"""

import asyncio
import codecs
import re
from functools import partial
from html import unescape
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused, ToolInactive
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.builtin.web.settings import HttpGetSettings

if TYPE_CHECKING:
    from mcpbridge.sandbox.fetch.fetch import Fetched, Fetcher


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
"""Headers with which clouds are asked for credentials, or that name somebody else."""
_GOOD = range(200, 300)


class HttpGet:
    """The tool."""

    definition = _DEFINITION
    treatment = CallSettings(permission="allow", risk="medium", read_only=True, idempotent=True, call_timeout=60)
    """Of medium risk: an address can carry out what a model has read."""

    def __init__(self, settings: HttpGetSettings, fetcher: "Fetcher | None" = None) -> None:
        """Nothing is loaded before the first call. `fetcher`: who fetches; None: one by the settings."""
        self._settings, self._fetcher = settings, fetcher

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        from mcpbridge.results.header_line import defused

        asked = _asked(call)
        fetched = await self._opened().fetch(asked.url, headers=self._headers(asked.headers))
        content_type = fetched.headers.get("content-type", "")
        # Not in the event loop: a page of some megabytes takes a while.
        page = await asyncio.to_thread(page_of, fetched.body, content_type, fetched.url, is_raw=asked.raw)
        most = min(asked.max_chars or self._settings.max_chars, self._settings.max_chars)
        text = "\n\n".join([_about(fetched, page, asked.url), _page_text(page, len(fetched.body), asked.start, most)])
        result: dict[str, Any] = {"content": [{"type": "text", "text": defused(text)}]}
        if fetched.status not in _GOOD:
            result["isError"] = True
        return Body(encode(result))

    async def close(self) -> None:
        """Nothing is open between calls."""

    def _opened(self) -> "Fetcher":
        if self._fetcher is None:
            from mcpbridge.sandbox.fetch.fetch import Fetcher, FetchLimits

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


def _page_text(page: "Page", size: int, start: int, most: int) -> str:
    if size == 0:
        return "(The answer is empty.)"
    if page.text is None:
        return f"(This is {page.kind or 'of an unknown type'}, {size:,} bytes, and not shown: it holds no text.)"
    if not page.text.strip():
        return "(The page has no text of its own; it may be made by scripts in a browser. `raw` gives the HTML.)"
    part = page.text[start : start + most]
    note = f"({start + len(part):,} of {len(page.text):,} characters; `start`: {start + len(part)} continues.)"
    if not part:
        return f"(The text has {len(page.text):,} characters; there is nothing from {start:,} on.)"
    return part if start + len(part) == len(page.text) else f"{part}\n\n{note}"


def _on_line(text: str) -> str:
    return "".join(char for char in text if char.isprintable())


_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset(
    {"application/json", "application/xml", "application/javascript", "application/ecmascript", "application/yaml"}
    | {"application/x-yaml", "application/toml", "application/x-ndjson", "application/ndjson", "application/sql"}
    | {"application/x-sh", "application/graphql", "application/rtf", "image/svg+xml", "message/rfc822"}
)
_NO_ENCODINGS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf_7", "undefined"})
"""Of Python's; pages are not written in them."""
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})")
_META = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]{0,500}>([^<]{0,2000})", re.IGNORECASE)
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
"""Characters that nobody sees: control, zero width, direction, tags. Text for a model alone is hidden in them."""
_BLANK_LINES = re.compile(r"\n{3,}")
_NOTHING = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd]")
_SAMPLE, _SHARE = 4000, 0.05
_LITTLE = 200
"""Characters below which a page is looked at again."""
_LOOKED_AT = 200_000
"""Characters in which the title is looked for."""


class Page(Struct, frozen=True):
    """What can be read of an answer."""

    kind: str
    """The media type, in lower case, without parameters; empty: nothing says."""
    text: str | None
    """None: it is no text."""
    title: str = ""
    is_converted: bool = False
    """It was HTML and is Markdown now."""


def page_of(body: bytes, content_type: str, url: str, *, is_raw: bool) -> Page:
    """An answer as text. Takes a second for a page of several megabytes. `is_raw`: HTML stays as it is.

    Raises:
        ToolInactive: it is HTML, and what converts it is not installed.
    """
    kind = kind_of(content_type, body)
    if not (kind in _HTML or kind in _TEXT or kind.startswith("text/") or kind.endswith(("+json", "+xml"))):
        return Page(kind, None)
    text = _decoded(body, content_type)
    if _is_binary(text):
        return Page(kind, None)
    if kind not in _HTML:
        return Page(kind, _seen(text))
    title = title_of(text)
    if is_raw:
        return Page(kind, _seen(text), title)
    markdown = _markdown(text, url)
    if markdown is None:
        return Page(kind, None, title)
    return Page(kind, _BLANK_LINES.sub("\n\n", _seen(markdown)).strip(), title, is_converted=True)


def kind_of(content_type: str, body: bytes) -> str:
    """The media type that is declared; where none is, that of text if it is text. Empty: it is not known."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind:
        return kind
    start = body[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "text/html"
    if b"\0" in body[:4096]:
        return ""
    try:
        body[:4096].decode()
    except UnicodeDecodeError as error:
        return "" if error.start < len(body[:4096]) - 4 else "text/plain"  # not just cut within a character
    return "text/plain"


def title_of(html: str) -> str:
    """The title of a page, on one line; empty: it has none."""
    found = _TITLE.search(html[:_LOOKED_AT])
    return " ".join(_seen(unescape(found[1])).split())[:300] if found else ""


def _decoded(body: bytes, content_type: str) -> str:
    """The characters, by the byte order mark, what the server says, what the page says, or what fits."""
    for mark, encoding in ((codecs.BOM_UTF8, "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    said = _CHARSET.search(content_type)
    written = _META.search(body[:2048])
    for name in (said and said[1], written and written[1].decode("ascii")):
        if name and (encoding := _encoding(name)):
            return body.decode(encoding, "replace")
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")


def _encoding(name: str) -> str:
    """What Python calls an encoding; empty: it is none of texts."""
    # Browsers read both as the superset, which is what is meant (WHATWG, Encoding).
    if name.lower() in ("iso-8859-1", "latin1", "us-ascii", "ascii"):
        return "cp1252"
    try:
        found = codecs.lookup(name).name.replace("-", "_")
        b"a".decode(found, "replace")
    except (LookupError, ValueError):
        return ""
    return "" if found in _NO_ENCODINGS else found


def _is_binary(text: str) -> bool:
    """Whether it is no text, whatever the server says: much of its beginning stands for nothing."""
    start = text[:_SAMPLE]
    return len(_NOTHING.findall(start)) > len(start) * _SHARE


def _markdown(html: str, url: str) -> str | None:
    """The page as Markdown; None: it is none."""
    try:
        import html_to_markdown as library
    except ImportError as error:
        raise ToolInactive(
            "http-get",
            "it needs the package html-to-markdown to read web pages",
            "With `raw` it gives the HTML itself. Whoever runs the bridge can install it: the extra `web`.",
        ) from error
    options: Any = partial(
        library.ConversionOptions, base_url=url, extract_metadata=False, inline_data_media="alt_text_only"
    )
    try:
        tidy: str = library.convert(html, options()).content or ""
        if len(tidy.strip()) >= _LITTLE:
            return tidy
        # What was taken for navigation may have been the page.
        everything = library.PreprocessingOptions(enabled=False)
        whole: str = library.convert(html, options(preprocessing=everything)).content or ""
    except library.ConversionError:  # such as a file of another kind that is called a page
        return None
    return whole if len(whole.strip()) > len(tidy.strip()) else tidy


def _seen(text: str) -> str:
    return _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
