"""The page "Calls" of the console."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.context import ConsoleContext


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/calls`."""

    async def page(request: Request) -> Response:
        return console.page(request, "calls.html")

    return [Route("/calls", page, methods=["GET"])]
