"""Kept results as resources: `mcpbridge://results/HANDLE`, for the principal whose they are. They are in no list."""

from msgspec import Raw

from mcpbridge.downstream.channel import Client
from mcpbridge.errors import UnknownName
from mcpbridge.pipeline.late import RESULTS
from mcpbridge.storage.store import Store
from mcpbridge.wire.body import Body
from mcpbridge.wire.envelope import complete_for_modern
from mcpbridge.wire.frame import encode

__all__ = ["RESULT_URIS", "ResultResources", "uri_of"]

RESULT_URIS = "mcpbridge://results/"
"""What URIs of kept results begin with; the handle follows."""


def uri_of(handle: str) -> str:
    """The URI of a kept result."""
    return RESULT_URIS + handle


class ResultResources:
    """Reads them out of the store."""

    def __init__(self, store: Store, server_info: bytes) -> None:
        """`server_info`: the bridge's own, encoded."""
        self._store, self._server_info = store, server_info

    async def read(self, client: Client, uri: str) -> bytes | Raw:
        """The answer to `resources/read`: the whole result of the call, as JSON text.

        Raises:
            UnknownName: there is none, not any more, or it is another principal's.
        """
        handle = uri.removeprefix(RESULT_URIS)
        data = await self._store.get(RESULTS, handle, principal=client.principal) if handle else None
        if data is None:
            raise UnknownName("resource", uri)
        contents = [{"uri": uri, "mimeType": "application/json", "text": data.decode()}]
        result = Body(encode({"contents": contents}))
        return (complete_for_modern(result, self._server_info, cacheable=True) if client.modern else result).data
