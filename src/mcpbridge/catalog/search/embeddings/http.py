"""Vectors by a service that answers as OpenAI's `/embeddings` does: OpenAI itself, Ollama, llama.cpp, vLLM and others.

How many texts a service takes at once is found out: one that refuses many is asked for half as many from then on. What
it says of a failure goes to the log, not to clients: it may hold anything, the key too.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.catalog.search.embeddings.embedder import EmbedderFailed, Prefixes, Vector, direction, prefixes_of
from mcpbridge.catalog.settings import EmbedderSettings

if TYPE_CHECKING:
    import httpx2

    from mcpbridge.protocol.http.bearer_auth import Send


log = get_logger("mcpbridge.routing")

AT_ONCE = 4
"""Requests that are under way at a time; further ones wait."""
MOST_TEXTS = 64
"""Texts of one request."""
TRIES = 2
"""How often a request is sent that found the service busy, broken or out of reach."""
PAUSE = 0.5
"""Seconds before the second try, where the service does not say how long."""
PATIENCE = 60.0
"""Seconds that one request may take, and that a service may ask us to wait at most."""
_SHORTER = 500
"""Characters of a text that a model found too long."""
_LARGEST_ANSWER = 64 << 20
"""Bytes: 64 vectors of 16,384 numbers, with as many digits as some services write."""
_MOST_SAID = 2000
"""Bytes of an error answer that are looked at."""


class _Passing(Exception):
    """It may work when it is tried again, after so many seconds if the service says so."""

    def __init__(self, reason: str, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.seconds = PAUSE if seconds is None else seconds


class _TooMuch(Exception):
    """The service does not take these texts; fewer, or shorter ones, may pass."""


class _One(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_One]


_decode = msgspec.json.Decoder(_Answer).decode


class HttpEmbedder:
    """One model of one service, with its connections. See `Embedder` for the methods' promises."""

    def __init__(self, settings: EmbedderSettings) -> None:
        """Nothing is contacted yet. `settings` has an address and a model, as it is of this kind."""
        self._url = (settings.url or "").rstrip("/") + "/embeddings"
        self._model, self._key = settings.model or "", settings.api_key or ""
        self._redactor = Redactor([self._key] if self._key else [])
        self._most_texts = MOST_TEXTS
        self._has_worked = False
        self._places = asyncio.Semaphore(AT_ONCE)
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._send: Send | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        """The model and the service's address."""
        address = self._url.rpartition("@")[2].partition("?")[0].removeprefix("http://").removeprefix("https://")
        return f"{self._model} at {address}"

    @property
    def prefixes(self) -> Prefixes:
        """By the model's name."""
        return prefixes_of(self._model)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """A vector each."""
        vectors: list[Vector] = []
        while len(vectors) < len(texts):
            some = texts[len(vectors) : len(vectors) + self._most_texts]
            try:
                vectors += await self._patiently(some)
            except _TooMuch as refused:
                if len(some) > 1:
                    self._most_texts = len(some) // 2
                else:
                    vectors.append(await self._alone(some[0], refused))
            else:
                self._has_worked = True
        return vectors

    async def close(self) -> None:
        """Close the connections; what is under way fails."""
        self._is_closed = True
        self._send = None
        await self._stack.aclose()

    async def _alone(self, text: str, refused: _TooMuch) -> Vector:
        """A text that was refused: its beginning, or none, if others were taken."""
        if len(text) > _SHORTER:
            try:
                return (await self._patiently([text[:_SHORTER]]))[0]
            except _TooMuch:
                pass
        if self._has_worked:
            return b""
        raise EmbedderFailed(str(refused)) from refused

    async def _patiently(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of a few texts, with a second try where that may help."""
        async with self._places:
            for left in range(TRIES - 1, -1, -1):
                try:
                    async with asyncio.timeout(PATIENCE):
                        body = await self._asked(texts)
                    return await asyncio.to_thread(_read, body, len(texts))
                except TimeoutError as error:
                    raise EmbedderFailed(f"the embedding service did not answer within {PATIENCE:g} s") from error
                except _Passing as passing:
                    if not left or passing.seconds > PATIENCE:
                        raise EmbedderFailed(str(passing)) from passing
                    await asyncio.sleep(passing.seconds)
        raise AssertionError("unreachable")  # pragma: no cover

    async def _asked(self, texts: Sequence[str]) -> bytes:
        """The body of a good answer."""
        import httpx2  # takes long to import, and is seldom needed here

        content = msgspec.json.encode({"model": self._model, "input": texts})
        headers = {"content-type": "application/json", "accept": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        # Nothing limits the single steps: the time of the whole is limited.
        none = {"connect": None, "read": None, "write": None, "pool": None}
        try:
            request = httpx2.Request("POST", self._url, headers=headers, content=content, extensions={"timeout": none})
            response = await (self._send or await self._opened())(request)
            try:
                is_good = response.status_code == 200
                said = await _body(response, _LARGEST_ANSWER if is_good else _MOST_SAID, whole=is_good)
            finally:
                await response.aclose()
        except (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL, UnicodeError) as error:
            log.warning("embedding service cannot be called", error=type(error).__name__)
            raise EmbedderFailed("`search.embedder` has an address or a key that cannot be used") from error
        except (httpx2.HTTPError, OSError) as error:
            log.debug("embedding service unreachable", error=self._redactor(str(error)))
            raise _Passing("the embedding service cannot be reached") from error
        if is_good:
            return said
        raise self._refusal(response, said)

    def _refusal(self, response: "httpx2.Response", body: bytes) -> Exception:
        """What another status than 200 means."""
        from mcpbridge.protocol.http.responses import excerpt, seconds_to_wait

        status = response.status_code
        log.debug("embedding service refused the request", status=status, answer=excerpt(body, self._redactor))
        reason = f"the embedding service answered with HTTP status {status}"
        if status in (400, 413, 422):
            return _TooMuch(f"{reason}; is `search.embedder.model` right?")
        if status in (408, 429) or status >= 500:
            return _Passing(reason, seconds_to_wait(response.headers.get("retry-after", ""), datetime.now(UTC)))
        if status in (401, 403):
            reason += "; is `search.embedder.api_key` right?"
        if status in (301, 302, 303, 307, 308, 404):
            reason += "; are `search.embedder.url` and `model` right?"
        return EmbedderFailed(reason)

    async def _opened(self) -> "Send":
        import httpx2

        from mcpbridge.protocol.http.client import open_client

        async with self._opening:
            if self._is_closed:
                raise EmbedderFailed("the bridge stops")
            if self._send is None:
                try:
                    self._send = await self._stack.enter_async_context(open_client(httpx2.URL(self._url), None))
                except ConfigError as error:
                    raise EmbedderFailed(f"the embedding service cannot be asked: {error}") from error
            return self._send


async def _body(response: "httpx2.Response", largest: int, *, whole: bool) -> bytes:
    answer = bytearray()
    async for piece in response.aiter_bytes():
        answer += piece
        if len(answer) > largest:
            if whole:
                raise EmbedderFailed(f"the embedding service's answer is larger than {largest >> 20} MiB")
            break
    return bytes(answer[:largest])


def _read(body: bytes, count: int) -> list[Vector]:
    """The vectors of an answer, in the order of the texts. In a thread: an answer may have megabytes."""
    try:
        found = _decode(body).data
        if all(one.index is not None for one in found):
            found.sort(key=lambda one: one.index or 0)
        vectors = [direction(one.embedding) for one in found]
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise EmbedderFailed("the embedding service's answer is none: no vectors can be read from it") from error
    if len(vectors) != count:
        raise EmbedderFailed(f"the embedding service answered with {len(vectors)} vectors for {count} texts")
    return vectors
