"""Takes the answer of an authorization server on this machine: a tiny web server that waits for one browser.

It listens on loopback only and believes nothing but an answer with the `state` of the page that was opened; whatever
else asks gets an error and changes nothing.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qs, urlsplit

from mcpbridge.base.errors import UpstreamUnavailable

_LARGEST_REQUEST = 16 << 10
_SECONDS = 10.0
"""For a browser to send its request."""
_SHOWN = 200
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>mcpbridge</title><body style='font:16px system-ui,sans-serif;max-width:34em;margin:15vh auto'>"
    "<h1 style='font-size:1.3em'>{title}</h1><p>{text}</p>"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the browser brought back."""

    code: str
    state: str | None
    issuer: str | None
    """The `iss` of RFC 9207."""


class Redirect:
    """Waits for what the browser brings back."""

    def __init__(self, name: str, uri: str) -> None:
        self.uri = uri
        """The redirect address to tell the authorization server."""
        self._name = name
        self._path = urlsplit(uri).path or "/"
        self._state = ""
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def expect(self, page: str) -> None:
        """Only an answer to this authorization page counts from now on."""
        self._state = _one(parse_qs(urlsplit(page).query), "state") or ""

    def expects(self, state: str) -> bool:
        """An answer with this `state` is to the page that was opened."""
        return bool(self._state) and secrets.compare_digest(state.encode(), self._state.encode())

    async def answer(self) -> Answer:
        """What came back.

        Raises:
            UpstreamUnavailable: the sign-in was declined, or failed there.
        """
        return await asyncio.shield(self._answer)

    def take(self, url: str) -> str:
        """Take an address that a browser was sent to; returns why it is not the expected answer, or empty.

        Works for addresses that a person pasted, too.
        """
        parts = urlsplit(url.strip())
        query = parse_qs(parts.query, keep_blank_values=True)
        state = _one(query, "state")
        if (parts.path or "/") != self._path or not self._state:
            return "this is not the address that the sign-in leads to"
        if state is None or not self.expects(state):
            return "this is not the answer to the sign-in that was begun here"
        if self._answer.done():
            return "" if not self._answer.exception() else "the sign-in has failed"
        error, code = _one(query, "error"), _one(query, "code")
        if error is not None or not code:
            description = _one(query, "error_description") or ""
            what = "was declined" if error == "access_denied" else f"failed: {error or 'no code came back'}"
            text = " ".join(f"the sign-in {what} {description}".split())
            text = "".join(c for c in text if c.isprintable())[:_SHOWN]
            self._answer.set_exception(UpstreamUnavailable(self._name, text))
            self._answer.exception()  # seen: perhaps nobody waits any more
            return text
        self._answer.set_result(Answer(code, state, _one(query, "iss")))
        return ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a browser."""
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._reply(head))
                await writer.drain()
        writer.close()

    def _reply(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or words[0] != b"GET":
            return _response("405 Method Not Allowed", "Not this way", "This address takes the end of a sign-in.")
        trouble = self.take(words[1].decode("ascii", "replace"))
        if trouble:
            return _response(
                "400 Bad Request", f"Not signed in to {self._name}", f"{trouble[:1].upper()}{trouble[1:]}."
            )
        return _response("200 OK", f"Signed in to {self._name}", "You can close this page and go back to your work.")


@asynccontextmanager
async def listen(name: str, uri: str | None, port: int = 0) -> AsyncGenerator[Redirect]:
    """Wait on `uri`, or on an address of our own; on `port`, if it is free, where neither says which.

    Raises:
        UpstreamUnavailable: the port is taken.
    """
    parts = urlsplit(uri or "http://127.0.0.1/callback")
    host = parts.hostname or "127.0.0.1"
    redirect: Redirect | None = None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if redirect is not None:
            await redirect.serve(reader, writer)

    async def begin(at: str, number: int) -> asyncio.Server:
        return await asyncio.start_server(serve, at, number, limit=_LARGEST_REQUEST)

    first = "127.0.0.1" if host == "localhost" else host
    try:
        server = await begin(first, parts.port or port)
    except OSError as error:
        if parts.port or not port:
            what = f"the redirect address of the sign-in cannot be used: {first}:{parts.port or port}: {error.strerror}"
            raise UpstreamUnavailable(name, what) from error
        server = await begin(first, 0)
    servers = [server]
    try:
        number = server.sockets[0].getsockname()[1]
        if host == "localhost":  # a browser may try IPv6 first
            with suppress(OSError):
                servers.append(await begin("::1", number))
        literal = f"[{host}]" if ":" in host else host
        path = parts.path if parts.path or uri else "/callback"
        redirect = Redirect(name, f"http://{literal}:{number}{path}")
        yield redirect
    finally:
        for one in servers:
            one.close()


def _one(query: dict[str, list[str]], key: str) -> str | None:
    """A parameter that stands there once; one that is repeated is as good as none (RFC 6749, 3.1)."""
    values = query.get(key, [])
    return values[0] if len(values) == 1 else None


def _response(status: str, title: str, text: str) -> bytes:
    body = _PAGE.format(title=escape(title), text=escape(text)).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
