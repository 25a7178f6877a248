"""`crypto-price` against a server that answers as CoinGecko does (issue 8): one request, a minute kept, notFound."""

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import jsonschema_rs
import pytest

from mcpbridge.base.errors import RETRY_AFTER, ArgumentsRefused, UpstreamGarbled, UpstreamHttpError
from mcpbridge.core.model import BRIDGE, Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.builtin.web.crypto_price import COINS, CryptoPrice, coin_of
from mcpbridge.tools.builtin.web.settings import CryptoPriceSettings
from support.upstreams.scripted_http import Ask, HttpServer, Script, http_server, reply

KEY = "CG-0123456789abcdef"

MARKET = {
    "bitcoin": {"usd": 67187.3358936566, "eur": 61803.4, "cap": 1317802988326.2493, "change": 3.637278946773539},
    "ethereum": {"usd": 3500.12, "eur": 3200.0, "cap": 420000000000.0, "change": -1.25},
    "shiba-inu": {"usd": 2.545e-05, "eur": 2.3e-05, "cap": 1.5e10, "change": None},
}


def prices(ask: Ask) -> dict[str, Any]:
    """What CoinGecko answers: only coins and currencies that it knows are in it."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(ask.path).query).items()}
    answer: dict[str, Any] = {}
    for id_ in query["ids"].split(","):
        if id_ not in MARKET:
            continue
        own: dict[str, Any] = {}
        for currency in query["vs_currencies"].split(","):
            if currency in MARKET[id_]:
                own[currency] = MARKET[id_][currency]
                own[f"{currency}_market_cap"] = MARKET[id_]["cap"]
                own[f"{currency}_24h_change"] = MARKET[id_]["change"]
        own["last_updated_at"] = 1711356300
        answer[id_] = own
    return answer


async def market(ask: Ask) -> bytes:
    return reply(prices(ask))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Shop:
    """The tool, and the server that it asks."""

    def __init__(self, server: HttpServer, **settings: Any) -> None:
        self.clock, self.server = Clock(), server
        url = server.url.removesuffix("/mcp")
        self.tool = CryptoPrice(CryptoPriceSettings.model_validate({"url": url} | settings), now=self.clock)

    async def ask(self, *symbols: str, **more: Any) -> Any:
        arguments = {"symbols": list(symbols), **more}
        params = Body(encode({"name": "crypto-price", "arguments": arguments}))
        with anyio.fail_after(20):
            body = await self.tool.run(Call("tools/call", BRIDGE, "crypto-price", params))
        result = body.value()
        assert "isError" not in result
        return result["structuredContent"]["prices"]


def queries(server: HttpServer) -> list[dict[str, str]]:
    return [
        {name: values[0] for name, values in parse_qs(urlsplit(ask.path).query).items()}
        for ask in server.asks
    ]  # fmt: skip


def test_thirty_symbols_are_known_by_symbol_name_and_id() -> None:
    assert len(COINS) == 30
    assert len({coin.symbol for coin in COINS}) == len({coin.id for coin in COINS}) == 30
    for coin in COINS:
        for spoken in (coin.symbol, coin.symbol.lower(), f" ${coin.symbol}", coin.name, coin.name.upper(), coin.id):
            assert coin_of(spoken, {}) is coin, spoken
    assert coin_of("nope", {}) is None
    assert coin_of("", {}) is None


def test_the_definition_is_a_schema_and_says_that_it_only_reads() -> None:
    tool = CryptoPrice(CryptoPriceSettings())
    validator = jsonschema_rs.validator_for(tool.definition["inputSchema"])
    assert validator.is_valid({"symbols": ["BTC"], "currencies": ["usd"], "market_cap": True})
    assert not validator.is_valid({"symbols": []})
    assert not validator.is_valid({"symbols": ["BTC"], "currencies": ["us d"]})
    assert (tool.treatment.permission, tool.treatment.risk, tool.treatment.read_only) == ("allow", "low", True)


async def test_all_coins_of_a_call_are_asked_for_in_one_request() -> None:
    async with http_server(market) as server:
        found = await Shop(server).ask("btc", "Ethereum", "BITCOIN", "shiba inu", currencies=["USD", "eur"])
        assert [urlsplit(ask.path).path for ask in server.asks] == ["/api/v3/simple/price"]
        assert queries(server)[0] | {"precision": ""} == {
            "ids": "bitcoin,ethereum,shiba-inu",
            "vs_currencies": "usd,eur",
            "include_market_cap": "true",
            "include_24hr_change": "true",
            "include_last_updated_at": "true",
            "precision": "",
        }
        assert "x-cg-demo-api-key" not in server.asks[0].headers
    assert [entry["symbol"] for entry in found] == ["BTC", "ETH", "BTC", "SHIB"]
    assert found[0] == {
        "symbol": "BTC",
        "name": "Bitcoin",
        "id": "bitcoin",
        "prices": {
            "usd": {"price": 67187.3358936566, "change24h": 3.637278946773539},
            "eur": {"price": 61803.4, "change24h": 3.637278946773539},
        },
        "updatedAt": "2024-03-25T08:45:00+00:00",
    }
    assert found[3]["prices"]["usd"] == {"price": 2.545e-05, "change24h": None}


async def test_what_is_not_known_is_not_found_and_fails_nobody() -> None:
    async with http_server(market) as server:
        shop = Shop(server)
        found = await shop.ask("BTC", "NOPE", "not a coin", "XMR")
        assert [entry.get("notFound", False) for entry in found] == [False, True, True, True]
        assert found[1] == {"symbol": "NOPE", "notFound": True}
        assert queries(server)[0]["ids"] == "bitcoin,monero", "what is not known is not sent"
        assert await shop.ask("NOPE") == [{"symbol": "NOPE", "notFound": True}]
        assert len(server.asks) == 1
        unpriced = await shop.ask("BTC", currencies=["usd", "xyz"])
        assert unpriced[0]["prices"]["xyz"] == {"notFound": True}
        assert unpriced[0]["prices"]["usd"]["price"] == MARKET["bitcoin"]["usd"]


async def test_the_market_capitalisation_is_there_if_it_is_asked_for() -> None:
    async with http_server(market) as server:
        shop = Shop(server)
        assert "marketCap" not in (await shop.ask("BTC"))[0]["prices"]["usd"]
        assert (await shop.ask("BTC", market_cap=True))[0]["prices"]["usd"]["marketCap"] == 1317802988326.2493
        assert len(server.asks) == 1


async def test_prices_answer_the_same_question_for_a_minute() -> None:
    async with http_server(market) as server:
        shop = Shop(server)
        await shop.ask("BTC", "ETH")
        shop.clock.now += 59.9
        await shop.ask("eth", "bitcoin")
        assert len(server.asks) == 1
        await shop.ask("BTC")
        assert len(server.asks) == 2, "other coins are another question"
        both = await shop.ask("BTC", "ETH", currencies=["usd", "eur"])
        assert [query["vs_currencies"] for query in queries(server)] == ["usd", "usd", "eur"]
        assert both[0]["prices"]["usd"]["price"] == 67187.3358936566
        assert both[1]["prices"]["eur"]["price"] == 3200.0
        shop.clock.now += 0.2
        await shop.ask("BTC", "ETH")
        assert len(server.asks) == 4


async def test_nothing_is_kept_where_that_is_configured() -> None:
    async with http_server(market) as server:
        shop = Shop(server, cache=0)
        assert (await shop.ask("BTC"))[0]["prices"]["usd"]["price"] == 67187.3358936566
        await shop.ask("BTC")
        assert len(server.asks) == 2


async def test_the_same_question_at_the_same_moment_is_asked_once() -> None:
    gate = asyncio.Event()

    async def slow(ask: Ask) -> bytes:
        await gate.wait()
        return reply(prices(ask))

    async with http_server(slow) as server:
        shop = Shop(server)
        got: list[Any] = []

        async def one() -> None:
            got.append(await shop.ask("BTC", "ETH"))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(one)
            await server.until("GET")
            gate.set()
        assert len(server.asks) == 1
        assert len(got) == 10
        assert all(each == got[0] for each in got)


async def test_who_waits_is_not_lost_with_who_asked() -> None:
    """The first caller goes away while the second waits for its answer."""
    gate = asyncio.Event()

    async def slow(ask: Ask) -> bytes:
        await gate.wait()
        return reply(prices(ask))

    async with http_server(slow) as server:
        shop = Shop(server)
        first = asyncio.ensure_future(shop.ask("BTC"))
        await server.until("GET")
        second = asyncio.ensure_future(shop.ask("BTC"))
        await asyncio.sleep(0)
        first.cancel()
        await server.until("GET", 2)
        gate.set()
        assert (await second)[0]["symbol"] == "BTC"
        assert first.cancelled()


async def test_a_limit_is_told_and_kept_to() -> None:
    said = {"status": {"error_code": 429, "error_message": "You've exceeded the Rate Limit."}}
    answers = [reply(said, 429, retry_after="42")]

    async def limited(ask: Ask) -> bytes:
        return answers.pop() if answers else reply(prices(ask))

    async with http_server(limited) as server:
        shop = Shop(server)
        with pytest.raises(UpstreamHttpError, match="429") as error:
            await shop.ask("BTC")
        assert "in 42 s" in error.value.full_message()
        assert error.value.facts[RETRY_AFTER] == 42
        shop.clock.now += 40
        with pytest.raises(UpstreamHttpError, match="429") as error:
            await shop.ask("ETH")
        assert "in 2 s" in error.value.full_message()
        assert len(server.asks) == 1, "the service is left alone meanwhile"
        shop.clock.now += 3
        assert (await shop.ask("ETH"))[0]["symbol"] == "ETH"


async def test_a_limit_without_a_time_is_kept_to_for_a_while() -> None:
    async def limited(ask: Ask) -> bytes:
        return reply({"status": {"error_code": 429}}, 429)

    async with http_server(limited) as server:
        shop = Shop(server)
        for _ in range(3):
            with pytest.raises(UpstreamHttpError, match="429"):
                await shop.ask("BTC")
        assert len(server.asks) == 1


def says(body: Any, status: int = 200) -> Script:
    async def script(ask: Ask) -> bytes:
        return reply(body, status)

    return script


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 503])
async def test_other_refusals_are_told_without_the_key(status: int) -> None:
    async with http_server(says({"error": f"bad key {KEY}"}, status)) as server:
        with pytest.raises(UpstreamHttpError, match=str(status)) as error:
            await Shop(server, api_key=KEY).ask("BTC")
        assert KEY not in error.value.full_message()
        assert server.asks[0].headers["x-cg-demo-api-key"] == KEY


@pytest.mark.parametrize("body", [b"[]", b"<html>", b'{"bitcoin": 3}', b'{"bitcoin": {"usd": "x"}}', b""])
async def test_an_answer_that_makes_no_sense_is_an_error(body: bytes) -> None:
    async with http_server(says(body)) as server:
        with pytest.raises(UpstreamGarbled):
            await Shop(server).ask("BTC")


async def test_further_coins_can_be_configured() -> None:
    async with http_server(market) as server:
        shop = Shop(server, coins={"SHIBX": "shiba-inu", "btc": "ethereum"})
        found = await shop.ask("shibx", "BTC")
        assert [entry["id"] for entry in found] == ["shiba-inu", "ethereum"]


async def test_arguments_of_the_wrong_kind_are_refused() -> None:
    tool = CryptoPrice(CryptoPriceSettings())
    for arguments in ({}, {"symbols": "BTC"}, {"symbols": [1]}):
        params = Body(encode({"name": "crypto-price", "arguments": arguments}))
        with pytest.raises(ArgumentsRefused):
            await tool.run(Call("tools/call", BRIDGE, "crypto-price", params))


async def test_many_questions_do_not_pile_up() -> None:
    async with http_server(market) as server:
        shop = Shop(server)
        for number in range(300):
            shop.clock.now += 61
            await shop.ask("BTC", currencies=[f"{chr(97 + number % 26)}{chr(97 + number // 26)}"])
        assert len(shop.tool._cache) < 260
        await shop.tool.close()
        assert not shop.tool._cache
        assert not shop.tool._turns
