"""The way to a provider: its metadata, and what else is asked of it. Small answers, short waits, no redirects.

The issuer was written by a person, so it may be anywhere, this machine and network included. An address that only the
provider's metadata names may not, unless it is of the same host (SSRF): set `jwks_uri` or `introspection.url` then.
"""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from mcpbridge.base.errors import BridgeError
from mcpbridge.downstream.auth.signed_tokens import strict_json
from mcpbridge.sandbox.fetch.fetch import Fetched, Fetcher, FetchLimits

_LIMITS = FetchLimits(seconds=10, most=512 * 1024, redirects=0)
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class ProviderDown(Exception):
    """A provider cannot be asked now. `retry_after`: seconds; `reason`: for the log."""

    def __init__(self, reason: str, retry_after: float = 10) -> None:
        super().__init__(reason)
        self.reason, self.retry_after = reason, retry_after


async def ask(
    url: str, *, is_trusted: bool, method: str = "GET", headers: Mapping[str, str] | None = None, content: bytes = b""
) -> dict[str, Any]:
    """The JSON object at a URL of a provider.

    Raises:
        ProviderDown: there is no such answer.
    """
    return _object(await fetch(url, is_trusted=is_trusted, method=method, headers=headers, content=content))


async def fetch(
    url: str, *, is_trusted: bool, method: str = "GET", headers: Mapping[str, str] | None = None, content: bytes = b""
) -> Fetched:
    """What a provider answers, whatever its status.

    Raises:
        ProviderDown: there is no whole answer.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ProviderDown("it names an address that is not https")
    fetcher = Fetcher(limits=_LIMITS, is_trusted=is_trusted)
    try:
        return await fetcher.fetch(
            url, method=method, headers={"accept": "application/json", **(headers or {})}, content=content
        )
    except BridgeError as error:
        raise ProviderDown(str(error)) from error


def _object(fetched: Fetched) -> dict[str, Any]:
    if fetched.status != 200:
        raise ProviderDown(f"it answers with status {fetched.status}")
    try:
        found = strict_json(fetched.body)
    except ValueError as error:
        raise ProviderDown("its answer is no JSON") from error
    if not isinstance(found, dict):
        raise ProviderDown("its answer is no JSON object")
    return cast("dict[str, Any]", found)


def metadata_urls(issuer: str) -> list[str]:
    """Where the metadata of an issuer may be, in the order to try (RFC 8414, 3.1; OpenID Connect Discovery, 4)."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    ]
    return list(dict.fromkeys(urls))


async def discover(issuer: str) -> dict[str, Any]:
    """The metadata of an issuer.

    Raises:
        ProviderDown: there is none, or it is another issuer's.
    """
    reason = "no metadata was found"
    for url in metadata_urls(issuer):
        try:
            document = await ask(url, is_trusted=True)
        except ProviderDown as down:
            reason = down.reason
            continue
        if document.get("issuer") == issuer:  # exactly: RFC 8414, 3.3
            return document
        reason = "its metadata is about another issuer"
    raise ProviderDown(reason)


def is_of(issuer: str, url: str) -> bool:
    """Whether a URL is of the host of an issuer, which a person named."""
    return urlsplit(url).hostname == urlsplit(issuer).hostname
