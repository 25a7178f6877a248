"""The conduct of every tool, from the settings of its server and the defaults; looked up once a tool."""

from collections.abc import Mapping

from mcpbridge.conduct import CallDefaults, Conduct, Hints, resolve
from mcpbridge.model import BRIDGE, BUILTIN, Tool
from mcpbridge.result_settings import ResultSettings, result_conduct
from mcpbridge.upstream.offer_settings import OfferSettings, ToolSettings

__all__ = ["Conducts"]


MOST_KNOWN = 50_000
"""Tools whose conduct is kept; see `MOST_PLANS` in `pipeline/order.py`."""


class Conducts:
    """How the calls of each tool are treated."""

    def __init__(
        self, servers: Mapping[str, OfferSettings], calls: CallDefaults, results: ResultSettings | None = None
    ) -> None:
        self._servers, self._calls, self._results = servers, calls, results
        # What is set for all tools is meant for those of servers: each of them is judged, however it is called.
        self._own = calls.model_copy(update={"permission": None})
        self._known: dict[str, tuple[str, Hints, Conduct]] = {}

    def of(self, tool: Tool) -> Conduct:
        """The conduct of this tool."""
        name, hints = tool.name, tool.hints
        known = self._known.get(tool.id)
        if known is not None and known[0] == name and known[1] == hints:
            return known[2]
        server = self._servers.get(tool.server)
        own = server.tool.get(name) if server is not None else None
        conduct = resolve(
            name,
            hints,
            tool=own,
            server=server,
            calls=self._own if tool.server == BRIDGE else self._calls,
            is_trusted=_is_trusted(own, server, tool),
            limits=(
                own.max_concurrent if own is not None else 0,
                own.rate_limit if own is not None else None,
                server.rate_limit if server is not None else None,
            ),
            is_local=tool.server in (BRIDGE, BUILTIN),
            results=result_conduct(
                own.results if own is not None else None, server.results if server is not None else None, self._results
            ),
        )
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[tool.id] = name, hints, conduct
        return conduct


def _is_trusted(own: ToolSettings | None, server: OfferSettings | None, tool: Tool) -> bool:
    if own is not None and own.trusted is not None:
        return own.trusted
    return server.trusted if server is not None else tool.server == BRIDGE
