"""An HTTP address of which nobody said which transport it speaks: streamable HTTP, or HTTP+SSE of 2024-11-05.

Streamable HTTP is tried first; a server that refuses `initialize` as only one without it would is asked for an event
stream instead (MCP 2025-03-26, Transports, Backwards Compatibility). Once that worked it is remembered for the life of
the process.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from mcpbridge.base.errors import BridgeError, UpstreamError, UpstreamHttpError
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.transport import Channel, Receiver, Transport, TransportKind
from mcpbridge.upstream.transports.continued_sessions import SessionKeeper
from mcpbridge.upstream.transports.streamable_http import StreamableHttpTransport

log = get_logger("mcpbridge.http")

_REFUSALS = frozenset({400, 404, 405})


class HttpOrSse:
    """The one transport or the other, whichever the server turns out to speak.

    `is_known`: SSE, as was found out before; `on_sse` is called when it turns out to be that.
    """

    def __init__(
        self,
        name: str,
        streamable: Transport,
        sse: Transport,
        *,
        is_known: bool = False,
        on_sse: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._streamable, self._sse = streamable, sse
        self._now = sse if is_known else streamable
        self._on_sse = on_sse
        self._refusal: UpstreamHttpError | None = None
        """What `initialize` met over streamable HTTP, while it is not known whether SSE works."""

    def keep_in(self, keeper: SessionKeeper) -> None:
        """Sessions over streamable HTTP are written down there, for other bridges."""
        if isinstance(self._streamable, StreamableHttpTransport):
            self._streamable.keep_in(keeper)

    def wrap(self, wrapper: Callable[[Transport], Transport]) -> None:
        """Use each of the two through what this makes of it. Before the first `connect`."""
        is_sse = self._now is self._sse
        self._streamable, self._sse = wrapper(self._streamable), wrapper(self._sse)
        self._now = self._sse if is_sse else self._streamable

    @property
    def kind(self) -> TransportKind:
        """The one in use now."""
        return self._now.kind

    def last_words(self) -> str:
        """The last trouble with the one in use now."""
        return self._now.last_words()

    def refused(self, error: BridgeError) -> bool:
        """`initialize` failed so. True when the next `connect` will use SSE for it."""
        if self._now is self._sse or not isinstance(error, UpstreamHttpError) or error.status not in _REFUSALS:
            return False
        self._now, self._refusal = self._sse, error
        return True

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """Open a channel over the one in use now.

        Raises:
            As the transport in use; the refusal of streamable HTTP, when SSE does not work either.
        """
        refusal, is_open = self._refusal, False
        try:
            async with self._now.connect(receiver) as channel:
                is_open = True
                if refusal is not None:
                    log.info("server speaks HTTP+SSE of 2024-11-05", upstream=self._name)
                    self._refusal = None
                    self._on_sse()
                yield channel
        except UpstreamError as error:
            if is_open or refusal is None:
                raise
            self._now, self._refusal = self._streamable, None
            what = f"{refusal.what} (nor does it speak SSE: {error.what})"
            raise UpstreamHttpError(self._name, refusal.status, what, retry_after=refusal.retry_after) from error
