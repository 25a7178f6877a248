"""`web-search`: asks a search service that speaks Tavily's API. Without a key it is inactive, and says so."""

import os
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from mcpbridge.base.errors import ArgumentsRefused, ToolInactive
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.builtin.web.settings import SearchDepth, WebSearchSettings

if TYPE_CHECKING:  # loaded with the first call
    from mcpbridge.sandbox.fetch.fetch import Fetched, Fetcher


VARIABLE = "TAVILY_API_KEY"
_SHORTEST_KEY = 7
"""Characters of a key that is looked for in answers."""
"""Environment variable with the key, where the configuration has none."""

_SECTION = "builtin.web_search"
_QUOTA = {432: "the plan's credits are used up", 433: "the limit of what may be spent is reached"}
"""Statuses of this service alone."""

_DEFINITION: dict[str, Any] = {
    "name": "web-search",
    "title": "Search the web",
    "description": (
        "Search the web: titles, addresses and the passages that answer the query. http-get reads a page in full."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 2000},
            "max_results": {"type": "integer", "minimum": 1, "maximum": 20},
            "topic": {"type": "string", "enum": ["general", "news", "finance"]},
            "depth": {
                "type": "string",
                "enum": ["basic", "advanced", "fast", "ultra-fast"],
                "description": "`advanced` finds more and costs more",
            },
            "time_range": {"type": "string", "enum": ["day", "week", "month", "year"]},
            "include_domains": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": 300,
                "description": "Search these sites only",
            },
            "exclude_domains": {"type": "array", "items": {"type": "string"}, "maxItems": 150},
            "answer": {"type": "boolean", "description": "Have the service sum the results up as well"},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True},
}


class _Asked(Struct, frozen=True):
    """The arguments."""

    query: str
    max_results: int = 0
    topic: str = ""
    depth: SearchDepth | None = None
    time_range: str = ""
    include_domains: list[str] = []
    exclude_domains: list[str] = []
    answer: bool = False


class _Result(Struct, frozen=True):
    """One result, in as far as it is used."""

    url: str
    title: str | None = None
    content: str | None = None
    score: float | None = None
    published_date: str | None = None


class _ServiceAnswer(Struct, frozen=True):
    """The service's answer."""

    results: list[_Result]
    answer: str | None = None
    query: str = field(default="")


class WebSearch:
    """The tool."""

    definition = _DEFINITION
    treatment = CallSettings(permission="allow", risk="low", read_only=True, idempotent=True, call_timeout=60)

    def __init__(self, settings: WebSearchSettings) -> None:
        """Nothing is loaded, and no key looked for, before the first call."""
        self._settings = settings
        self._fetcher: Fetcher | None = None

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        from mcpbridge.results.header_line import defused
        from mcpbridge.tools.builtin.web.service_errors import decoded

        asked = _asked(call)
        fetched = await self._fetched(asked, self._key())
        found = decoded("web-search", fetched, _ServiceAnswer)
        answer = found.answer if asked.answer else None
        result: dict[str, Any] = {
            "content": [{"type": "text", "text": defused(_result_list(asked.query, answer, found.results))}],
            "structuredContent": _structured(asked.query, answer, found.results),
        }
        return Body(encode(result))

    async def close(self) -> None:
        """Nothing is open between calls."""

    @property
    def why_not(self) -> str:
        """Why calls are refused now, where it has no key; it is listed all the same, and says so."""
        try:
            self._key()
        except ToolInactive as inactive:
            return inactive.why
        return ""

    def _key(self) -> str:
        """The key.

        Raises:
            ToolInactive: there is none, or none that can be sent.
        """
        key = (self._settings.api_key or os.environ.get(VARIABLE, "")).strip()
        fix = f"Whoever runs the bridge sets the environment variable {VARIABLE}, or `{_SECTION}.api_key`."
        if not key:
            raise ToolInactive("web-search", f"there is no key for the search service ({VARIABLE} is not set)", fix)
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ToolInactive("web-search", "the key for the search service has characters that no key has", fix)
        return key

    async def _fetched(self, asked: _Asked, key: str) -> "Fetched":
        from mcpbridge.tools.builtin.web.service_errors import refusal

        headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "accept": "application/json"}
        url = f"{self._settings.url}/search"
        fetched = await self._opened().fetch(url, method="POST", headers=headers, content=encode(self._body(asked)))
        if fetched.status != 200:
            error = refusal("web-search", fetched, _SECTION, Redactor([key]))
            if fetched.status in _QUOTA:
                error.advice = f"Do not retry: {_QUOTA[fetched.status]}. Whoever runs the bridge has to see to it."
            raise error
        return replace(fetched, body=_without(fetched.body, key))

    def _opened(self) -> "Fetcher":
        if self._fetcher is None:
            from mcpbridge.sandbox.fetch.fetch import Fetcher, FetchLimits

            # A redirect would take the key elsewhere.
            limits = FetchLimits(seconds=self._settings.timeout, redirects=0)
            self._fetcher = Fetcher(who="web-search", limits=limits, is_trusted=True)
        return self._fetcher

    def _body(self, asked: _Asked) -> dict[str, object]:
        """The request (Tavily, POST /search)."""
        settings = self._settings
        body: dict[str, object] = {
            "query": asked.query,
            "max_results": asked.max_results or settings.max_results,
            "search_depth": asked.depth or settings.depth,
            "include_answer": asked.answer,
        }
        optional = {
            "topic": asked.topic,
            "time_range": asked.time_range,
            "include_domains": asked.include_domains or settings.include_domains,
            "exclude_domains": [*settings.exclude_domains, *asked.exclude_domains],
        }
        return body | {name: value for name, value in optional.items() if value}


def _asked(call: Call) -> _Asked:
    arguments = call.params.inner("arguments")
    try:
        asked = msgspec.convert(arguments.value() if arguments is not None else {}, _Asked)
    except msgspec.ValidationError as error:
        raise ArgumentsRefused(f"web-search: {error}") from error
    if not asked.query.strip():
        raise ArgumentsRefused("query: what to search for, in a few words")
    return asked


def _without(body: bytes, key: str) -> bytes:
    """What a service says, without the key, should it repeat what it was sent."""
    return body.replace(key.encode(), b"***") if len(key) > _SHORTEST_KEY else body


def _result_list(query: str, answer: str | None, results: list[_Result]) -> str:
    """The results as a list."""
    parts = [f"Answer of the service: {answer}"] if answer else []
    for number, result in enumerate(results, start=1):
        date = f" ({_line(result.published_date)})" if result.published_date else ""
        lines = [f"{number}. {_line(result.title or result.url)}{date}", f"   {_line(result.url)}"]
        if result.content:
            lines.append(f"   {_line(result.content)}")
        parts.append("\n".join(lines))
    if not results:
        parts.append(f"Nothing was found for {query[:200]!r}. Other words, or fewer limits, may find something.")
    return "\n\n".join(parts)


def _structured(query: str, answer: str | None, results: list[_Result]) -> dict[str, object]:
    found: dict[str, object] = {"query": query}
    if answer:
        found["answer"] = answer
    listed: list[dict[str, object]] = []
    for result in results:
        one = {"title": result.title, "url": result.url, "content": result.content, "score": result.score}
        one["publishedDate"] = result.published_date
        listed.append({name: value for name, value in one.items() if value is not None})
    return found | {"results": listed}


def _line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
