"""What every transport to an address has: where the server is, how it is reached, and which secrets are masked."""

from collections.abc import Callable, Mapping
from typing import NotRequired, TypedDict, Unpack

from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.protocol.settings import LARGEST_FRAME

CONNECT_TIMEOUT = 10.0
"""Seconds for a connection to be there."""
MAX_POSTS = 256
"""Requests under way at a time; and as many notifications and answers beside them."""


class RemoteOptions(TypedDict):
    """How a server at an address is reached."""

    headers: Mapping[str, str]
    """The configured headers; their values are masked in whatever the server writes."""
    network: NotRequired[Network | None]
    connect_timeout: NotRequired[float]
    """Seconds."""
    max_bytes: NotRequired[int]
    """Bound of one message, after decompression."""
    max_posts: NotRequired[int]
    redact: NotRequired[Callable[[str], str]]
    """Masks the secrets that the bridge knows."""


class RemoteTransport:
    """The options of a transport to one address, with their defaults."""

    def __init__(self, name: str, url: str, **options: Unpack[RemoteOptions]) -> None:
        """`name` is the server's, for messages."""
        self.name = name
        self._url = url
        self._headers = dict(options["headers"])
        self._network = options.get("network") or Network()
        self._connect_timeout = options.get("connect_timeout", CONNECT_TIMEOUT)
        self._max_bytes = options.get("max_bytes", LARGEST_FRAME)
        self.max_posts = options.get("max_posts", MAX_POSTS)
        self._redact_known = options.get("redact")
        self._redact_own = Redactor(
            [part for value in self._headers.values() for part in (value, value.rpartition(" ")[2])]
        )

    def redact(self, text: str) -> str:
        """Mask the secrets that we sent, and those that the bridge knows."""
        return self._redact_own(text if self._redact_known is None else self._redact_known(text))
