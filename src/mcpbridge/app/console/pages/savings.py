"""The page "Savings" of the console."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mcpbridge.app.console.context import ConsoleContext


def routes(console: ConsoleContext) -> Sequence[BaseRoute]:
    """`/console/savings`."""

    async def page(request: Request) -> Response:
        return console.page(request, "savings.html")

    return [Route("/savings", page, methods=["GET"])]
