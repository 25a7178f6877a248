"""Whose an unlisted URI is, learned from results: a link that a tool returns need not be in any list (spec, tools).

A hint that is good as long as the process lives. It decides only where nothing that is listed does, and a URI that
two servers returned is kept from the second by giving it the form that names its server (`uri_index.py`).
"""

from collections import OrderedDict

__all__ = ["SeenUris"]

_MOST = 10_000
_LONGEST = 2_048


class SeenUris:
    """The last ten thousand URIs that results brought, each with the server that brought it first."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, str] = OrderedDict()

    def owner(self, uri: str) -> str | None:
        """The server that this URI came from; None when none is known."""
        return self._owners.get(uri)

    def note(self, server: str, uri: str) -> str:
        """Remember where a URI came from. Returns its owner: this server, or the one that was first."""
        if len(uri) > _LONGEST:
            return server
        owner = self._owners.setdefault(uri, server)
        self._owners.move_to_end(uri)
        if len(self._owners) > _MOST:
            self._owners.popitem(last=False)
        return owner
