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
    """Redirects that are followed. Each target is checked like the first address."""

    max_chars: int = Field(default=100_000, ge=200)
    """The most characters of text in an answer. A call may ask for fewer."""

    user_agent: str = Field(default="", pattern=r"^[\x20-\x7e]*$")
    """The `User-Agent` header. Empty: `mcpbridge/VERSION`."""


class WebSearchSettings(BaseModel):
    """The `builtin.web_search` section: the search service, which must have Tavily's API."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    api_key: str | None = None
    """The key of the service, such as `${TAVILY_API_KEY}`. Default: the variable `TAVILY_API_KEY` at the time of the
    call."""

    url: str = "https://api.tavily.com"
    """The base address of the service; requests go to `/search` below it."""

    depth: SearchDepth = "basic"
    """How thorough a search is, unless the call says; `advanced` costs two credits instead of one."""

    max_results: int = Field(default=5, ge=1, le=20)
    """Results of a search, unless the call says."""

    include_domains: list[str] = []
    """Sites to search, unless the call names some. Empty: all."""

    exclude_domains: list[str] = []
    """Sites that are always left out."""

    timeout: Seconds = Field(default=25, gt=0)
    """Seconds for one search."""

    @field_validator("url")
    @classmethod
    def _is_base(cls, value: str) -> str:
        return _base(value)


class CryptoPriceSettings(BaseModel):
    """The `builtin.crypto_price` section: the price service, which must have CoinGecko's API."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    api_key: str | None = None
    """The key of the service (a demo key, or a pro key for `https://pro-api.coingecko.com`). Default: no key."""

    url: str = "https://api.coingecko.com"
    """The base address of the service; requests go to `/api/v3/simple/price` below it."""

    coins: dict[str, str] = {}
    """Further coins: their symbol or name, and the id of the service, such as `{ GRT = "the-graph" }`."""

    cache: Seconds = Field(default=60, ge=0)
    """Seconds for which prices answer the same question again. 0: never."""

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
