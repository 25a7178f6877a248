"""What an answer of a web server is as text: its characters, a page as Markdown, or just what it is.

Markdown is made by `html-to-markdown` (extra `web`): a parser in Rust that keeps links, tables and code, leaves out
scripts and what the page hides, and takes hostile pages in linear time.
"""

import codecs
import re
from functools import partial
from html import unescape
from typing import Any

from msgspec import Struct

from mcpbridge.errors import ToolInactive

__all__ = ["Page", "kind_of", "page_of", "title_of"]

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
