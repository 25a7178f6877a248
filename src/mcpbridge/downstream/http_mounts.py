"""Other ASGI applications under paths of their own, such as the API of those who administer the bridge.

Each is made at the first request for it, since most bridges never get one. What the front found out about who calls is
handed on in the scope's `state`: `principal`, and `is_admin`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcpbridge.downstream.http_exchange import Headers, Receive, Scope, Send

__all__ = ["App", "Mounts", "serve"]

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Mounts:
    """Applications by the path that theirs begin with: `/api` has `/api` and all below `/api/`."""

    def __init__(self, makers: Mapping[str, Callable[[], App]]) -> None:
        self._makers, self._made = makers, dict[str, App]()
        self._first_letters = tuple(makers)

    def find(self, path: str) -> App | None:
        """The application that this path belongs to; None for nearly all."""
        if not path.startswith(self._first_letters):
            return None
        for prefix, make in self._makers.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                if prefix not in self._made:
                    self._made[prefix] = make()
                return self._made[prefix]
        return None


async def serve(
    app: App, scope: Scope, receive: Receive, send: Send, *, who: Mapping[str, object], extra: Headers
) -> None:
    """Let the application answer. `who`: goes into the state; `extra`: headers that every response must carry."""

    async def send_on(message: Any) -> None:
        if extra and message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    await app({**scope, "state": {**scope.get("state", {}), **who}}, receive, send_on)
