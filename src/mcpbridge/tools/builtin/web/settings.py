"""The `[builtin.http_get]`, `[builtin.web_search]` and `[builtin.crypto_price]` sections of the configuration."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mcpbridge.base.units import Bytes, Seconds
from mcpbridge.sandbox.fetch.settings import GuardSettings

SearchDepth = Literal["basic", "advanced", "fast", "ultra-fast"]

_URL = re.compile(r"https?://[^\s/?#@\\]+(/[^\s?#\\]*)?", re.IGNORECASE)


class HttpGetSettings(GuardSettings, BaseModel):
    """The `builtin.http_get` section: what the tool may fetch, and how much of it."""

    timeout: Seconds = Field(default=10, gt=0)
    """Seconds for one fetch in all, redirects included."""

    max_size: Bytes = Field(default=5 << 20, ge=1024, le=1 << 30)
    """Bytes of one answer, decompressed; a larger one is an error."""

    max_redirects: int = Field(default=5, ge=0, le=20)
    """Redirects that are followed; each is checked as the first address is."""

    max_chars: int = Field(default=100_000, ge=200)
    """Characters of text that a call gives at most. A call may ask for fewer."""

    user_agent: str = Field(default="", pattern=r"^[\x20-\x7e]*$")
    """What the tool calls itself to sites; empty: `mcpbridge/VERSION`."""


class WebSearchSettings(BaseModel):
    """The `builtin.web_search` section: the search service. It speaks Tavily's API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_key: str | None = None
    """Key of the service, best as `${TAVILY_API_KEY}`. Left out: the variable `TAVILY_API_KEY` when a call comes."""

    url: str = "https://api.tavily.com"
    """Base address of the service; `/search` follows."""

    depth: SearchDepth = "basic"
    """How thoroughly to search where a call does not say; `advanced` costs two credits instead of one."""

    max_results: int = Field(default=5, ge=1, le=20)
    """Results where a call does not say how many."""

    include_domains: list[str] = []
    """Sites to search, where a call names none; empty: all."""

    exclude_domains: list[str] = []
    """Sites that are always left out."""

    timeout: Seconds = Field(default=25, gt=0)
    """Seconds for one search."""

    @field_validator("url")
    @classmethod
    def _is_base(cls, value: str) -> str:
        return _base(value)


class CryptoPriceSettings(BaseModel):
    """The `builtin.crypto_price` section: the price service. It speaks CoinGecko's API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_key: str | None = None
    """Key of the service (a demo key, or a pro key for `https://pro-api.coingecko.com`); left out: without one."""

    url: str = "https://api.coingecko.com"
    """Base address of the service; `/api/v3/simple/price` follows."""

    coins: dict[str, str] = {}
    """Further coins, by symbol or name: the service's id, such as `{ GRT = "the-graph" }`."""

    cache: Seconds = Field(default=60, ge=0)
    """Seconds that prices answer the same question again; 0: not at all."""

    timeout: Seconds = Field(default=10, gt=0)
    """Seconds for one request."""

    @field_validator("url")
    @classmethod
    def _is_base(cls, value: str) -> str:
        return _base(value)


def _base(value: str) -> str:
    if not _URL.fullmatch(value):
        raise ValueError(f"{value[:80]!r} is no base address: it looks like https://api.example.com")
    return value.rstrip("/")
