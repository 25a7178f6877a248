"""Tokens that say nothing themselves: the provider is asked about each (RFC 7662), once for all who wait."""

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

from mcpbridge.downstream.auth.provider_http import ProviderDown, ask, discover, is_of
from mcpbridge.downstream.settings import IntrospectionSettings

_MOST = 20
"""Questions at a time."""
_MOST_WAITING = 200


class Introspection:
    """The questions to one provider."""

    def __init__(self, issuer: str, settings: IntrospectionSettings) -> None:
        self._issuer, self._settings = issuer, settings
        self._url, self._is_trusted = settings.url, True
        self._asking: dict[bytes, asyncio.Task[Mapping[str, Any]]] = {}
        self._slots = asyncio.Semaphore(_MOST)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._issuer} asking={len(self._asking)}>"

    async def ask(self, token: bytes, digest: bytes) -> Mapping[str, Any]:
        """What the provider says about a token. Cancelling is safe: the question continues for others.

        Raises:
            ProviderDown: it says nothing, or too many questions wait.
        """
        asking = self._asking.get(digest)
        if asking is None:
            if len(self._asking) >= _MOST_WAITING:
                raise ProviderDown("too many questions wait", 1)
            asking = self._asking[digest] = asyncio.get_running_loop().create_task(self._ask(token))
            asking.add_done_callback(lambda task: self._asked(digest, task))
        return await asyncio.shield(asking)

    async def close(self) -> None:
        """Ask nothing any more."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _asked(self, digest: bytes, task: asyncio.Task[Mapping[str, Any]]) -> None:
        del self._asking[digest]
        if not task.cancelled():
            task.exception()  # whoever waited may be gone

    async def _ask(self, token: bytes) -> Mapping[str, Any]:
        async with self._slots:
            if self._url is None:
                named: object = (await discover(self._issuer)).get("introspection_endpoint")
                if not isinstance(named, str):
                    raise ProviderDown("its metadata names no `introspection_endpoint`")
                self._url, self._is_trusted = named, is_of(self._issuer, named)
            form = {"token": token.decode("ascii"), "token_type_hint": "access_token"}
            headers = {"content-type": "application/x-www-form-urlencoded"}
            own = self._settings
            if own.method == "client_secret_post":
                form |= {"client_id": own.client_id, "client_secret": own.client_secret}
            else:  # RFC 6749, 2.3.1: both are encoded as in a form, first
                pair = f"{quote_plus(own.client_id)}:{quote_plus(own.client_secret)}"
                headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
            return await ask(
                self._url,
                is_trusted=self._is_trusted,
                method="POST",
                headers=headers,
                content=urlencode(form).encode(),
            )
