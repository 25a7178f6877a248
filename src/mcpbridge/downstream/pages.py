"""A server that wants pages visited before it runs a call (-32042, revision 2025-11-25 only).

To a client of that revision that opens URLs the error goes as it is, and it is told when the server says that the page
has done its work. Any other gets a failed call that names the pages. Modern clients that open URLs are asked in
their own way, in `parking`.
"""

import msgspec

from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.parking import URL_REQUIRED, url_questions
from mcpbridge.errors import BadRequest, BridgeError, UpstreamAnswered, UrlRequired
from mcpbridge.interaction import URL_SINCE
from mcpbridge.wire.body import Body

__all__ = ["pages_first"]


def pages_first(error: UpstreamAnswered, client: Client) -> BridgeError:
    """What to tell this client of an upstream's error; the error itself when it is of another kind."""
    pages = [Body(question.params) for question in url_questions(error)]
    if not pages:
        return error
    if client.modern or not client.profile.url or client.version < URL_SINCE:
        return UrlRequired(error.upstream, [page.text("url") for page in pages])
    for page in pages:
        if "elicitationId" in page:
            client.elicitations.add((error.upstream, page.text("elicitationId")))
    said = msgspec.json.decode(error.error)
    return BadRequest(URL_REQUIRED, str(said.get("message", "")), said.get("data"))
