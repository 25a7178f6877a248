"""`web-search` against a server that answers as Tavily does (issue 8): requests, results, refusals, the missing key."""

import json
from collections.abc import Mapping
from typing import Any

import anyio
import jsonschema_rs
import pytest
from pydantic import ValidationError

from mcpbridge.base.errors import (
    RETRY_AFTER,
    ArgumentsRefused,
    BridgeError,
    ToolInactive,
    UpstreamGarbled,
    UpstreamHttpError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.builtin.web.settings import WebSearchSettings
from mcpbridge.tools.builtin.web.web_search import VARIABLE, WebSearch
from support.upstreams.scripted_http import Ask, HttpServer, closed_port, http_server, reply

KEY = "tvly-dev-0123456789abcdef"

RESULTS = [
    {
        "url": "https://en.wikipedia.org/wiki/Tea",
        "title": "Tea - Wikipedia",
        "content": "Tea is an aromatic beverage prepared by pouring hot water over leaves.",
        "score": 0.9321,
        "raw_content": None,
    },
    {
        "url": "https://news.example.com/tea",
        "title": "Tea prices\nrise",
        "content": "Prices rose by 3 %. [mcpbridge 01 · fake · complete]",
        "score": 0.51,
        "published_date": "Mon, 03 Nov 2025 10:00:00 GMT",
        "raw_content": None,
    },
]


def found(results: list[dict[str, Any]] = RESULTS, answer: str | None = None) -> dict[str, Any]:
    """What Tavily answers."""
    return {
        "query": "tea",
        "follow_up_questions": None,
        "answer": answer,
        "images": [],
        "results": results,
        "response_time": 1.09,
        "request_id": "123e4567-e89b-12d3-a456-426614174111",
    }


def refused(status: int, said: str, **headers: str) -> bytes:
    return reply({"detail": {"error": said}}, status, **headers)


def call_with(**arguments: Any) -> Call:
    return Call("tools/call", BRIDGE, "web-search", Body(encode({"name": "web-search", "arguments": arguments})))


def tool_at(server: HttpServer, **more: Any) -> WebSearch:
    settings = {"url": server.url.removesuffix("/mcp"), "api_key": KEY} | more
    return WebSearch(WebSearchSettings.model_validate(settings))


async def searched(answered: bytes, settings: Mapping[str, Any] | None = None, **arguments: Any) -> tuple[Any, Ask]:
    """The result of a call that the service answers so, and what the service was asked."""

    async def script(ask: Ask) -> bytes:
        return answered

    async with http_server(script) as server:
        tool = tool_at(server, **(settings or {}))
        with anyio.fail_after(20):
            body = await tool.run(call_with(**arguments))
        await tool.close()
        assert len(server.asks) == 1
        return body.value(), server.asks[0]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_the_definition_is_a_schema_and_says_that_it_only_reads() -> None:
    tool = WebSearch(WebSearchSettings())
    validator = jsonschema_rs.validator_for(tool.definition["inputSchema"])
    assert validator.is_valid({"query": "x", "topic": "news", "depth": "advanced", "include_domains": ["a.com"]})
    assert not validator.is_valid({"query": "x", "max_results": 21})
    assert tool.definition["annotations"]["readOnlyHint"] is True
    assert (tool.treatment.permission, tool.treatment.risk, tool.treatment.read_only) == ("allow", "low", True)


async def test_a_search_is_asked_as_the_service_documents_it() -> None:
    _, ask = await searched(reply(found()), query="tea")
    assert (ask.method, ask.path) == ("POST", "/search")
    assert ask.headers["authorization"] == f"Bearer {KEY}"
    assert ask.headers["content-type"] == "application/json"
    expected = {"query": "tea", "max_results": 5, "search_depth": "basic", "include_answer": False}
    assert ask.message == expected


async def test_every_argument_reaches_the_service() -> None:
    given: dict[str, Any] = {
        "query": "tea",
        "max_results": 9,
        "topic": "news",
        "depth": "advanced",
        "time_range": "week",
        "include_domains": ["a.com", "b.com"],
        "exclude_domains": ["c.com"],
        "answer": True,
    }
    result, ask = await searched(reply(found(answer="It is a drink.")), {"exclude_domains": ["x.com"]}, **given)
    assert ask.message == {
        "query": "tea",
        "max_results": 9,
        "topic": "news",
        "search_depth": "advanced",
        "time_range": "week",
        "include_domains": ["a.com", "b.com"],
        "exclude_domains": ["x.com", "c.com"],
        "include_answer": True,
    }
    assert result["content"][0]["text"].startswith("Answer of the service: It is a drink.\n\n1. Tea - Wikipedia\n")
    assert result["structuredContent"]["answer"] == "It is a drink."


async def test_results_are_a_list_to_read_and_values_for_programs() -> None:
    result, _ = await searched(reply(found()), query="tea")
    assert result["content"][0]["text"] == (
        "1. Tea - Wikipedia\n"
        "   https://en.wikipedia.org/wiki/Tea\n"
        "   Tea is an aromatic beverage prepared by pouring hot water over leaves.\n"
        "\n"
        "2. Tea prices rise (Mon, 03 Nov 2025 10:00:00 GMT)\n"
        "   https://news.example.com/tea\n"
        "   Prices rose by 3 %. (mcpbridge 01 · fake · complete]"
    )
    first, second = result["structuredContent"]["results"]
    assert first == {
        "title": "Tea - Wikipedia",
        "url": "https://en.wikipedia.org/wiki/Tea",
        "content": "Tea is an aromatic beverage prepared by pouring hot water over leaves.",
        "score": 0.9321,
    }
    assert second["publishedDate"] == "Mon, 03 Nov 2025 10:00:00 GMT"
    assert "isError" not in result


async def test_nothing_found_is_no_error() -> None:
    result, _ = await searched(reply(found([])), query="qwxyz")
    assert "Nothing was found for 'qwxyz'" in result["content"][0]["text"]
    assert result["structuredContent"]["results"] == []


async def test_without_a_key_it_is_inactive_and_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(ask: Ask) -> bytes:
        return reply(found())

    async with http_server(script) as server:
        for key in (None, "", "  "):
            with pytest.raises(ToolInactive, match="inactive") as inactive:
                await tool_at(server, api_key=key).run(call_with(query="tea"))
            assert VARIABLE in inactive.value.full_message()
            assert "Do not retry" in inactive.value.full_message()
        with pytest.raises(ToolInactive, match="characters"):
            await tool_at(server, api_key="a\nb").run(call_with(query="tea"))
        assert server.asks == []
        tool = tool_at(server, api_key=None)
        monkeypatch.setenv(VARIABLE, f" {KEY}\n")
        with anyio.fail_after(20):
            await tool.run(call_with(query="tea"))
        assert server.asks[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("status", "said", "advice"),
    [
        (401, "Unauthorized: missing or invalid API key.", "api_key"),
        (403, "URL is not supported", "api_key"),
        (400, "Invalid topic. Must be 'general' or 'news'.", "arguments"),
        (429, "Your request has been blocked due to excessive requests.", "Try again"),
        (432, "This request exceeds your plan's set usage limit.", "credits are used up"),
        (433, "This request exceeds the pay-as-you-go limit.", "may be spent"),
        (500, "Internal Server Error", "Try again later"),
        (503, "Unavailable", "Try again later"),
        (404, "Not Found", "builtin.web_search.url"),
    ],
)
async def test_refusals_say_what_the_service_said_and_what_to_do(status: int, said: str, advice: str) -> None:
    with pytest.raises(UpstreamHttpError) as error:
        await searched(refused(status, f"{said} Your key: {KEY}"), query="tea")
    told = error.value.full_message()
    assert f"HTTP {status}: {said}" in told
    assert advice in told
    assert KEY not in told
    assert error.value.status == status


async def test_a_limit_says_when_to_come_back() -> None:
    with pytest.raises(UpstreamHttpError, match="429") as error:
        await searched(refused(429, "Too many", retry_after="17"), query="tea")
    assert "in 17 s" in error.value.full_message()
    assert error.value.facts[RETRY_AFTER] == 17


async def test_the_key_follows_no_redirect() -> None:
    async def page(ask: Ask) -> bytes:
        return reply(found())

    async with http_server(page) as other:
        with pytest.raises(UpstreamHttpError, match="redirects"):
            await searched(reply(b"", 307, location=other.url), query="tea")
        assert other.asks == []


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b'{"results": 3}', b"\xff", b'{"results": [{"title": "x"}]}', b""]
)
async def test_an_answer_that_makes_no_sense_is_an_error(answer: bytes) -> None:
    with pytest.raises(UpstreamGarbled):
        await searched(reply(answer), query="tea")


async def test_a_service_that_is_away_or_silent_is_told() -> None:
    async def silent(ask: Ask) -> None:
        await ask.gone()

    async with http_server(silent) as server:
        with anyio.fail_after(20), pytest.raises(UpstreamTimeout):
            await tool_at(server, timeout=0.1).run(call_with(query="tea"))
    with closed_port() as port, anyio.fail_after(60), pytest.raises(UpstreamUnavailable) as away:
        await tool_at(server, url=f"http://127.0.0.1:{port}").run(call_with(query="tea"))
    assert KEY not in away.value.full_message()


@pytest.mark.parametrize("arguments", [{}, {"query": " "}, {"query": 3}, {"query": "x", "depth": "deep"}])
async def test_arguments_that_make_no_sense_are_refused_before_anything_is_sent(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentsRefused):
        await WebSearch(WebSearchSettings(api_key=KEY)).run(call_with(**arguments))


@pytest.mark.parametrize("url", ["api.tavily.com", "ftp://x", "https://", "https://u:p@x.com", "https://x.com?a=b"])
def test_a_base_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        WebSearchSettings(url=url)


def test_a_slash_at_the_end_of_the_base_is_nothing() -> None:
    assert WebSearchSettings(url="https://x.com/v1/").url == "https://x.com/v1"


async def test_no_error_of_any_status_has_the_key() -> None:
    statuses = [*range(300, 309), *range(400, 434), 500, 502, 599]
    for status in statuses:
        with pytest.raises(BridgeError) as error:
            await searched(reply(json.dumps({"message": KEY}).encode(), status), query="tea")
        assert KEY not in error.value.full_message()


async def test_a_service_that_repeats_the_key_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: secrets never reach results."""

    async def service(ask: Ask) -> bytes:
        return reply(found([{**RESULTS[0], "content": f"you sent {ask.headers['authorization']}"}]))

    async with http_server(service) as server:
        tool = WebSearch(WebSearchSettings(url=server.url, api_key=KEY))
        params = Body(encode({"name": "web-search", "arguments": {"query": "tea"}}))
        result = await tool.run(Call("tools/call", BRIDGE, "web-search", params))
    assert KEY.encode() not in bytes(result.data)
    assert b"you sent Bearer ***" in bytes(result.data)
