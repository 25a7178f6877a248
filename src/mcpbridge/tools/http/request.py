"""Templates of HTTP requests, the request that a call makes of them, and an answer after it was read. Pure.

`{name}` stands for an argument, `{name?}` for one that may be left out, together with the query parameter, header or
member of the body that it is in; `{{name}}` is the text `{name}`. A text that is only a place stands for the
argument itself, whatever its type; elsewhere it is put in as text.

Arguments are written by a model, often after something that it read. In a path an argument is one segment however it is
spelled, in a query one value, in a header one line; none can reach another host, path or header (CVE-2026-29791,
CVE-2026-32871). The whole is checked once more before it is sent.

The body of an answer is unpacked no further than it may be large: 200 kB of gzip can stand for 200 MB.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused, UpstreamGarbled

if TYPE_CHECKING:
    import httpx2


CODINGS = "gzip, deflate"
"""For `Accept-Encoding`: what is understood here."""
_MOST_STEPS = 100
"""Members of one gzip body that are unpacked."""


async def read_body(upstream: str, response: "httpx2.Response", most: int) -> tuple[bytes, bool]:
    """The unpacked body, and whether it was cut off after `most` bytes.

    Raises:
        UpstreamGarbled: it cannot be unpacked.
        httpx2.HTTPError: the connection broke.
    """
    unpack = _unpacker(upstream, response.headers.get("content-encoding", ""))
    body = bytearray()
    async for piece in response.aiter_raw():
        body += unpack.feed(piece, most + 1 - len(body)) if unpack is not None else piece
        if len(body) > most:
            return bytes(body[:most]), True
    if unpack is not None:
        unpack.end()
    return bytes(body), False


def _unpacker(upstream: str, coding: str) -> "_Unpacker | None":
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return _Unpacker(upstream)
    raise UpstreamGarbled(upstream, f"its answer is packed as {coding[:40]!r}, which was not asked for")


class _Unpacker:
    """Unpacks gzip and deflate, with and without a header."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._stream = zlib.decompressobj(wbits=47)  # finds out which of the two it is
        self._is_fresh = True
        self._members = 1

    def feed(self, data: bytes, most: int) -> bytes:
        """What these bytes stand for, up to `most` bytes of it; the rest is not asked for any more."""
        out = bytearray()
        while data and len(out) < most:
            if self._stream.eof:
                self._members += 1
                if self._members > _MOST_STEPS:
                    raise UpstreamGarbled(self._upstream, "its answer is packed in too many pieces")
                self._stream = zlib.decompressobj(wbits=47)
            try:
                out += self._stream.decompress(data, most - len(out))
            except zlib.error as error:
                if not self._is_fresh:
                    raise UpstreamGarbled(self._upstream, f"its answer cannot be unpacked: {error}") from error
                self._stream = zlib.decompressobj(wbits=-15)  # deflate without a header, as some servers have it
                self._is_fresh = False
                continue
            self._is_fresh = False
            data = self._stream.unused_data or self._stream.unconsumed_tail
        return bytes(out)

    def end(self) -> None:
        """Nothing comes any more."""
        if not self._is_fresh and not self._stream.eof:
            raise UpstreamGarbled(self._upstream, "its answer ends in the middle of what is packed")


class Part(Struct, frozen=True):
    """One part of a multipart body."""

    name: str
    data: bytes
    media_type: str = ""
    is_file: bool = False


class Outgoing(Struct, frozen=True):
    """A request."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    """In lower case; those of the settings come before them."""
    content: bytes = b""
    parts: tuple[Part, ...] | None = None
    """The body as `multipart/form-data`; None: `content` is the body."""


class Answer(Struct, frozen=True):
    """What came back."""

    status: int
    headers: "httpx2.Headers"
    body: bytes
    url: str
    """The address that answered."""
    is_cut: bool = False
    """It was larger than it may be; this is the beginning."""


class RequestCredentials(Struct, frozen=True):
    """What is added to a request."""

    headers: tuple[tuple[str, str], ...] = ()
    query: str = ""
    """Encoded; empty: nothing."""


_UNRESERVED = "-._~"
_DECODED = 4
"""How often servers and proxies in a row may decode a path; nobody writes an honest name that needs more."""
_SLASHES = re.compile(r"[/\\]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_PORTS = {"http": 80, "https": 443}


def text_of(value: Any, name: str) -> str:
    """An argument as text: as it is, else as JSON.

    Raises:
        ArgumentsRefused: it cannot be encoded.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentsRefused(f"`{name}` is no valid Unicode text: it has half of a surrogate pair") from None
    return text


def query_text(text: str) -> str:
    """Percent-encoded as the name or value of a query, or of a form."""
    return quote(text, safe=_UNRESERVED)


def segment(text: str, name: str) -> str:
    """Percent-encoded as a part of one segment of a path.

    Raises:
        ArgumentsRefused: a server that decodes it would look elsewhere.
    """
    refuse_dots(text, name)
    return quote(text, safe=_UNRESERVED)


def refuse_dots(text: str, name: str) -> None:
    """Refuse what becomes `.` or `..` between slashes, be it encoded itself: nothing protects those (RFC 3986, 5.2.4).

    Raises:
        ArgumentsRefused: it does.
    """
    for _ in range(_DECODED):
        if _CONTROL.search(text) or "\t" in text:
            raise ArgumentsRefused(f"`{name}` is a part of the path, so it must not have control characters")
        # `;` begins parameters of a segment, which some servers cut off before they look at the dots.
        if any(part.partition(";")[0] in (".", "..") for part in _SLASHES.split(text)):
            raise ArgumentsRefused(f"`{name}` leads to another path: `.` and `..` are not allowed in it")
        decoded = unquote(text)
        if decoded == text:
            return
        text = decoded
    raise ArgumentsRefused(f"`{name}` is percent-encoded many times over; give it as plain text")


def header_text(text: str, name: str) -> str:
    """Text for the value of a header.

    Raises:
        ArgumentsRefused: it would end the header.
    """
    if _CONTROL.search(text):
        raise ArgumentsRefused(f"`{name}` is sent in a header, so it must not have line breaks or control characters")
    return text


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of an address.

    Raises:
        ValueError: it is none.
    """
    parts = urlsplit(url)
    return parts.scheme.lower(), (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme.lower())


def check_url(url: str, base: str, slashes: int | None = None) -> str:
    """The address, if it is one below `base` that means the same to all who read it.

    `slashes`: how many its path must have.

    Raises:
        ArgumentsRefused: the arguments have made another address of it.
    """
    import httpx2

    beginning = urlsplit(base)
    try:
        parts, read = urlsplit(url), httpx2.URL(url)
        is_same = origin_of(url) == origin_of(base) and read.host.lower() == (beginning.hostname or "").lower()
    except (ValueError, httpx2.InvalidURL):
        raise ArgumentsRefused("These arguments make no address that can be asked") from None
    asked = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    is_below = f"{parts.path}/".startswith(f"{beginning.path.rstrip('/')}/")
    is_kept = read.raw_path.decode("ascii") == asked and not parts.fragment and not parts.username
    if not (is_same and is_below and is_kept) or slashes not in (None, parts.path.count("/")):
        raise ArgumentsRefused("These arguments would lead to another address than that of the tool")
    if any(unquote(part) in (".", "..") for part in parts.path.split("/")):
        raise ArgumentsRefused("These arguments would lead to another path than that of the tool")
    return url


_PLACE = re.compile(r"\{\{([A-Za-z_][\w-]*)\}\}|\{([A-Za-z_][\w-]*)(\?)?\}", re.ASCII)
_ALLOWED = "!$&'()*+,;=:@/-._~%"
"""What may be in a path as it is; other characters of a template are percent-encoded."""

LEFT_OUT: Any = object()
"""What a template stands for whose argument is left out."""

Arguments = Mapping[str, Any]


def places_in(template: Any) -> dict[str, bool]:
    """The arguments named anywhere in a template, in order, each with whether it must be given."""
    found: dict[str, bool] = {}
    for text in _texts(template):
        for _, name, optional in _PLACE.findall(text):
            if name:
                found[name] = found.get(name, False) or not optional
    return found


def fill(template: Any, arguments: Arguments) -> Any:
    """A JSON value with the arguments in their places.

    Raises:
        ArgumentsRefused: one that must be given is missing.
    """
    if isinstance(template, str):
        place = _PLACE.fullmatch(template)
        if place is None or not place[2]:
            return fill_text(template, arguments)
        return _given(arguments, place)
    if isinstance(template, Mapping):
        members = {key: fill(value, arguments) for key, value in cast("Mapping[str, Any]", template).items()}
        return {key: value for key, value in members.items() if value is not LEFT_OUT}
    if isinstance(template, list | tuple):
        items = [fill(item, arguments) for item in cast("Sequence[Any]", template)]
        return [item for item in items if item is not LEFT_OUT]
    return template


def fill_text(template: str, arguments: Arguments, write: Callable[[str, str], str] | None = None) -> Any:
    """A text with the arguments in their places, or `LEFT_OUT`. `write` gets the text of each and its name.

    Raises:
        ArgumentsRefused: an argument is missing, or cannot be there.
    """
    pieces: list[str] = []
    end = 0
    for place in _PLACE.finditer(template):
        pieces.append(template[end : place.start()])
        end = place.end()
        if place[1]:
            pieces.append(f"{{{place[1]}}}")
            continue
        value = _given(arguments, place)
        if value is LEFT_OUT:
            return LEFT_OUT
        text = text_of(value, place[2])
        pieces.append(write(text, place[2]) if write is not None else text)
    return "".join((*pieces, template[end:]))


def fill_url(template: str, arguments: Arguments) -> tuple[str, list[str]]:
    """The address without its query, and the parts of the query, both encoded.

    Raises:
        ArgumentsRefused: an argument is missing, or would lead elsewhere.
    """
    address, query = without_query(template)
    parts = urlsplit(address)
    segments = [_filled_segment(part, arguments) for part in parts.path.split("/")]
    said: list[str] = []
    for part in filter(None, query.split("&")):
        filled = fill_text(_safely(part), arguments, lambda text, _: query_text(text))
        if filled is not LEFT_OUT:
            said.append(filled)
    return f"{parts.scheme}://{parts.netloc}{'/'.join(segments)}", said


def without_query(template: str) -> tuple[str, str]:
    """The template of an address, and that of its query. The question mark of `{name?}` begins none."""
    at = _PLACE.sub(lambda place: "x" * len(place[0]), template).find("?")
    return (template, "") if at < 0 else (template[:at], template[at + 1 :])


def url_mistake(template: str) -> str:
    """What is wrong with the template of an address, for whoever wrote it; empty when nothing is."""
    address, _ = without_query(template)
    if "{" in "/".join(address.split("/", 3)[:3]):
        return "a placeholder in the scheme, host or port would let the caller choose where the request goes"
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        return f"not an address: {error}"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "expected an address such as https://api.example.com/v1/{city}"
    if parts.username is not None or parts.password is not None:
        return "an address shows in logs: put credentials into `auth` or `headers`"
    if "#" in template:
        return "a fragment (`#…`) is never sent: leave it out"
    if any(not required for required in places_in(address).values()):
        return "an argument in the path cannot be left out: write {name} instead of {name?}"
    if set(_PLACE.sub("", template)) & set("{}"):
        return "a brace that belongs to no placeholder: {name}, of letters, digits, `_` and `-`"
    if any(part in (".", "..") for part in parts.path.split("/")):
        return "`.` and `..` in the path: write the full address"
    return ""


def _filled_segment(template: str, arguments: Arguments) -> str:
    filled = fill_text(_safely(template), arguments, segment)
    if _PLACE.fullmatch(template) and not filled:
        name = next(iter(places_in(template)))
        raise ArgumentsRefused(f"`{name}` is a part of the path and must not be empty")
    if filled in (".", ".."):
        raise ArgumentsRefused("These arguments would lead to another path than that of the tool")
    return filled


def _safely(template: str) -> str:
    """What stands between the places, percent-encoded where that is needed."""
    pieces: list[str] = []
    end = 0
    for place in _PLACE.finditer(template):
        pieces += (quote(template[end : place.start()], safe=_ALLOWED), place[0])
        end = place.end()
    return "".join((*pieces, quote(template[end:], safe=_ALLOWED)))


def _given(arguments: Arguments, place: re.Match[str]) -> Any:
    value = arguments.get(place[2])
    if value is not None:
        return value
    if place[3]:
        return LEFT_OUT
    raise ArgumentsRefused(f"`{place[2]}` is missing")


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for value in cast("Mapping[str, Any]", template).values():
            yield from _texts(value)
    elif isinstance(template, list | tuple):
        for item in cast("Sequence[Any]", template):
            yield from _texts(item)
