"""Asks a remote server, without any token, what it wants to let us in; for `mcpbridge login`."""

from collections.abc import Mapping

import httpx2

from mcpbridge.base.version import __version__
from mcpbridge.protocol.http.client import open_client
from mcpbridge.protocol.http.responses import failure_of_exception
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.revisions import LATEST_LEGACY
from mcpbridge.protocol.transport import Outgoing
from mcpbridge.upstream.auth.challenge import Challenge
from mcpbridge.upstream.transports.http_requests import PostMaker

_SECONDS = 15.0


async def knock(
    name: str, url: str, *, headers: Mapping[str, str], network: Network, is_sse: bool = False
) -> Challenge | None:
    """What the server says to who comes without a token; None when it lets anybody begin.

    Raises:
        UpstreamError: it cannot be reached.
    """
    requests = PostMaker(url, headers, connect_timeout=_SECONDS, user_agent=f"mcpbridge/{__version__}")
    if is_sse:
        request = requests.listen()
    else:
        params = {
            "protocolVersion": LATEST_LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "mcpbridge", "version": __version__},
        }
        data = encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        request = requests.post(Outgoing(data, "initialize", b"1"))
    request.extensions["timeout"]["read"] = _SECONDS
    try:
        async with open_client(requests.url, None, Network(network.tls, network.proxy)) as send:
            response = await send(request)
            await response.aclose()
            if response.status_code in (401, 403):
                return Challenge.parse(response.headers.get("www-authenticate", ""))
            if not is_sse:
                requests.keep_session(response.headers.get("mcp-session-id", ""))
            if requests.session:
                await (await send(requests.end_session())).aclose()
    except httpx2.HTTPError as error:
        raise failure_of_exception(name, error).error from error
    return None
