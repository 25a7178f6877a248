"""`crypto-price`: what coins cost now, by CoinGecko's API: one request for all coins of a call, cached for a minute.

Coins are known by the names that people use. A coin that is not known is part of the answer (`notFound`) and no
failure: the others have a price all the same.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import ArgumentsRefused, UpstreamHttpError
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.core.call_settings import CallSettings
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.tools.builtin.web.settings import CryptoPriceSettings

if TYPE_CHECKING:
    from mcpbridge.sandbox.fetch.fetch import Fetcher


class Coin(Struct, frozen=True):
    """One coin."""

    symbol: str
    name: str
    id: str
    """As CoinGecko knows it."""
    others: tuple[str, ...] = ()
    """Further names, in lower case."""


COINS = (
    Coin("BTC", "Bitcoin", "bitcoin", ("xbt",)),
    Coin("ETH", "Ethereum", "ethereum", ("ether",)),
    Coin("USDT", "Tether", "tether", ("tether usd",)),
    Coin("BNB", "BNB", "binancecoin", ("binance coin", "build and build")),
    Coin("SOL", "Solana", "solana"),
    Coin("USDC", "USD Coin", "usd-coin", ("usdcoin",)),
    Coin("XRP", "XRP", "ripple", ("xrp ledger",)),
    Coin("DOGE", "Dogecoin", "dogecoin"),
    Coin("ADA", "Cardano", "cardano"),
    Coin("TRX", "TRON", "tron"),
    Coin("AVAX", "Avalanche", "avalanche-2"),
    Coin("SHIB", "Shiba Inu", "shiba-inu", ("shiba",)),
    Coin("DOT", "Polkadot", "polkadot"),
    Coin("LINK", "Chainlink", "chainlink"),
    Coin("BCH", "Bitcoin Cash", "bitcoin-cash"),
    Coin("NEAR", "NEAR Protocol", "near"),
    Coin("LTC", "Litecoin", "litecoin"),
    Coin("UNI", "Uniswap", "uniswap"),
    Coin("POL", "Polygon", "polygon-ecosystem-token", ("matic", "polygon ecosystem token")),
    Coin("ICP", "Internet Computer", "internet-computer"),
    Coin("DAI", "Dai", "dai"),
    Coin("APT", "Aptos", "aptos"),
    Coin("XLM", "Stellar", "stellar", ("stellar lumens",)),
    Coin("ETC", "Ethereum Classic", "ethereum-classic"),
    Coin("XMR", "Monero", "monero"),
    Coin("FIL", "Filecoin", "filecoin"),
    Coin("ATOM", "Cosmos", "cosmos", ("cosmos hub",)),
    Coin("HBAR", "Hedera", "hedera-hashgraph"),
    Coin("SUI", "Sui", "sui"),
    Coin("TON", "Toncoin", "the-open-network", ("the open network",)),
)

_KNOWN = {
    spoken: coin
    for coin in COINS
    for spoken in (coin.symbol.lower(), coin.name.lower(), coin.id, coin.id.replace("-", " "), *coin.others)
}


def coin_of(spoken: str, further: Mapping[str, str]) -> Coin | None:
    """The coin of a symbol, a name or an id, in any case; None: it is not known. `further`: ids by symbol or name."""
    word = " ".join(spoken.strip().lstrip("$").lower().split())
    for name, id_ in further.items():
        if name.strip().lower() == word:
            return Coin(name.strip(), name.strip(), id_)
    return _KNOWN.get(word)


_CACHE_SIZE = 256
_PAUSE = 30.0
"""Seconds without a request after the service had too many, where it does not say how long."""

_DEFINITION: dict[str, Any] = {
    "name": "crypto-price",
    "title": "Prices of cryptocurrencies",
    "description": (
        "Current prices and 24 h changes of cryptocurrencies, by symbol or name (BTC, Ethereum, SOL, …). "
        "What is not known comes back as notFound."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "symbols": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 60},
                "minItems": 1,
                "maxItems": 50,
                "description": 'Such as ["BTC", "ethereum"]',
            },
            "currencies": {
                "type": "array",
                "items": {"type": "string", "pattern": "^[A-Za-z]{2,10}$"},
                "minItems": 1,
                "maxItems": 10,
                "description": "Default: usd",
            },
            "market_cap": {"type": "boolean", "description": "The market capitalisation as well"},
        },
        "required": ["symbols"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True},
}

_Numbers = dict[str, float | None]
"""Of one coin: `usd`, `usd_market_cap`, `usd_24h_change`, …, `last_updated_at`."""
_Prices = Mapping[str, _Numbers]
"""By the id of the coin."""
_Key = tuple[tuple[str, ...], str]
"""The ids, sorted, and the currency."""


class _Asked(msgspec.Struct, frozen=True):
    """The arguments."""

    symbols: list[str]
    currencies: list[str] = []
    market_cap: bool = False


class CryptoPrice:
    """The tool."""

    definition = _DEFINITION
    treatment = CallSettings(permission="allow", risk="low", read_only=True, idempotent=True, call_timeout=30)

    def __init__(self, settings: CryptoPriceSettings, *, now: Callable[[], float] = time.monotonic) -> None:
        """Nothing is loaded before the first call. `now`: seconds, from any beginning."""
        self._settings, self._now = settings, now
        self._fetcher: Fetcher | None = None
        self._cache: dict[_Key, tuple[float, _Prices]] = {}
        """Until when, and what."""
        self._turns: dict[tuple[str, ...], asyncio.Lock] = {}
        """Whoever asks for the same coins meanwhile waits for the answer to the first."""
        self._refused: tuple[float, UpstreamHttpError] | None = None
        """Until when the service wants to be left alone, and how it said so."""

    async def run(self, call: Call) -> Body:
        """See `Builtin`."""
        from mcpbridge.results.header_line import defused

        asked = _asked(call)
        currencies = list(dict.fromkeys(currency.lower() for currency in asked.currencies)) or ["usd"]
        coins = {symbol: coin_of(symbol, self._settings.coins) for symbol in asked.symbols}
        ids = tuple(sorted({coin.id for coin in coins.values() if coin is not None}))
        prices: _Prices = await self._prices(ids, currencies) if ids else {}
        found = [_entry(symbol, coin, prices, currencies, asked.market_cap) for symbol, coin in coins.items()]
        value = {"prices": found, "source": urlsplit(self._settings.url).hostname}
        text = defused(encode(value).decode())
        return Body(encode({"content": [{"type": "text", "text": text}], "structuredContent": value}))

    async def close(self) -> None:
        """Forget what is kept; nothing is open between calls."""
        self._cache.clear()

    async def _prices(self, ids: tuple[str, ...], currencies: Sequence[str]) -> _Prices:
        """What the coins cost in each currency: as kept, and what is not kept from one request."""
        turn = self._turns.setdefault(ids, asyncio.Lock())
        try:
            async with turn:
                missing = [currency for currency in currencies if self._fresh((ids, currency)) is None]
                asked: _Prices = await self._asked_for(ids, missing) if missing else {}
        finally:
            if not turn.locked():
                self._turns.pop(ids, None)
        merged: dict[str, _Numbers] = {id_: dict(numbers) for id_, numbers in asked.items()}
        for currency in currencies:
            for id_, numbers in (self._fresh((ids, currency)) or {}).items():
                merged.setdefault(id_, {}).update(numbers)
        return merged

    def _fresh(self, key: _Key) -> _Prices | None:
        until, prices = self._cache.get(key, (0.0, None))
        return prices if prices is not None and self._now() < until else None

    async def _asked_for(self, ids: tuple[str, ...], currencies: Sequence[str]) -> _Prices:
        from mcpbridge.tools.builtin.web.service_errors import decoded, refusal

        if self._refused is not None and self._now() < self._refused[0]:
            raise _again(self._refused[1], self._refused[0] - self._now())
        settings = self._settings
        query = {"ids": ",".join(ids), "vs_currencies": ",".join(currencies), "include_market_cap": "true"}
        query |= {"include_24hr_change": "true", "include_last_updated_at": "true", "precision": "full"}
        url = f"{settings.url}/api/v3/simple/price?{urlencode(query, safe=',')}"
        fetched = await self._opened().fetch(url, headers={"accept": "application/json"} | self._credentials())
        if fetched.status != 200:
            redact = Redactor([settings.api_key] if settings.api_key else [])
            error = refusal("crypto-price", fetched, "builtin.crypto_price", redact)
            if fetched.status == 429:
                pause = error.retry_after if error.retry_after is not None else _PAUSE
                self._refused = self._now() + pause, error
            raise error
        prices = decoded("crypto-price", fetched, dict[str, _Numbers])
        self._keep(ids, currencies, prices)
        return prices

    def _keep(self, ids: tuple[str, ...], currencies: Sequence[str], prices: _Prices) -> None:
        now = self._now()
        if len(self._cache) > _CACHE_SIZE:
            self._cache = {key: kept for key, kept in self._cache.items() if now < kept[0]}
        if len(self._cache) > _CACHE_SIZE:
            self._cache.clear()
        for currency in currencies:
            own = {id_: _of_currency(numbers, currency) for id_, numbers in prices.items()}
            self._cache[ids, currency] = now + self._settings.cache, own

    def _credentials(self) -> dict[str, str]:
        key = (self._settings.api_key or "").strip()
        is_pro = (urlsplit(self._settings.url).hostname or "").startswith("pro-")
        return {"x-cg-pro-api-key" if is_pro else "x-cg-demo-api-key": key} if key else {}

    def _opened(self) -> "Fetcher":
        if self._fetcher is None:
            from mcpbridge.sandbox.fetch.fetch import Fetcher, FetchLimits

            limits = FetchLimits(seconds=self._settings.timeout, redirects=0)
            self._fetcher = Fetcher(who="crypto-price", limits=limits, is_trusted=True)
        return self._fetcher


def _asked(call: Call) -> _Asked:
    arguments = call.params.inner("arguments")
    try:
        return msgspec.convert(arguments.value() if arguments is not None else {}, _Asked)
    except msgspec.ValidationError as error:
        raise ArgumentsRefused(f"crypto-price: {error}") from error


def _of_currency(numbers: _Numbers, currency: str) -> _Numbers:
    names = (currency, f"{currency}_market_cap", f"{currency}_24h_change", "last_updated_at")
    return {name: numbers[name] for name in names if name in numbers}


def _entry(
    symbol: str, coin: Coin | None, prices: _Prices, currencies: Sequence[str], with_market_cap: bool
) -> dict[str, Any]:
    """What is said of one coin that was asked for."""
    numbers = prices.get(coin.id) if coin is not None else None
    if coin is None or not numbers:
        return {"symbol": symbol, "notFound": True}
    entry: dict[str, Any] = {"symbol": coin.symbol, "name": coin.name, "id": coin.id, "prices": {}}
    for currency in currencies:
        price = numbers.get(currency)
        if price is None:
            entry["prices"][currency] = {"notFound": True}
            continue
        one: dict[str, float | None] = {"price": price, "change24h": numbers.get(f"{currency}_24h_change")}
        if with_market_cap:
            one["marketCap"] = numbers.get(f"{currency}_market_cap")
        entry["prices"][currency] = one
    updated = numbers.get("last_updated_at")
    if updated is not None and 0 < updated < 1e11:
        entry["updatedAt"] = datetime.fromtimestamp(updated, UTC).isoformat(timespec="seconds")
    return entry


def _again(error: UpstreamHttpError, left: float) -> UpstreamHttpError:
    """The same refusal, with what is left of the time."""
    again = UpstreamHttpError(error.upstream, error.status, error.what, retry_after=max(1.0, round(left)))
    again.advice = f"The service limits how often it is asked. Try again in {again.retry_after:g} s."
    return again
