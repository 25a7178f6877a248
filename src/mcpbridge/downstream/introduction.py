"""How the bridge introduces itself: what it can do and how to use it, in `initialize` and in `server/discover`.

Capabilities are those of everything that may ever be behind the bridge, since servers come and go; each is told to
revisions that have it. Instructions are the bridge's own and, within a budget, an excerpt of each server's: clients cut
what is long, and often put the whole into every prompt.
"""

from collections.abc import Callable, Mapping

from mcpbridge.upstream.pool import Pool
from mcpbridge.wire.extensions import TASKS, extensions_of, published_down
from mcpbridge.wire.revisions import FIRST_WITH_ANNOTATIONS, FIRST_WITH_STRUCTURE, LATEST_LEGACY, is_modern

__all__ = ["Introduction", "compose"]

LEAST_EXCERPT = 80
"""Characters; an excerpt that would be shorter tells nothing and is left out."""


class Introduction:
    """Tells each client what is behind the bridge now."""

    def __init__(self, pool: Pool, own: str, budget: int, extensions: frozenset[str] = frozenset()) -> None:
        """What is told besides what the servers say.

        `own`: the bridge's own instructions. `budget`: characters of all instructions together. `extensions`:
        identifiers that may cross besides those that the bridge understands.
        """
        self._pool, self._own, self._budget, self._extensions = pool, own, budget, extensions

    def of_server(self, view: str) -> str:
        """For clients of one server: its own, whole."""
        upstream = self._pool.upstreams.get(view)
        return upstream.instructions if upstream is not None else ""

    def instructions(self, shows: Callable[[str], bool], more: str = "") -> str:
        """For clients of several servers, those that `shows` names. `more`: what the bridge says to this client."""
        said = {name: upstream.instructions for name, upstream in self._pool.upstreams.items() if shows(name)}
        return compose(" ".join(part for part in (self._own, more) if part), said, self._budget)

    def capabilities(self, version: str, shows: Callable[[str], bool]) -> dict[str, object]:
        """The capabilities to declare to a client of this revision that sees these servers."""
        declared: dict[str, object] = {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "logging": {},
        }
        if version >= FIRST_WITH_ANNOTATIONS:
            declared["completions"] = {}
        upstreams = [one for name, one in sorted(self._pool.upstreams.items()) if shows(name)]
        extensions = published_down((extensions_of(one.capabilities) for one in upstreams), self._extensions)
        if version == LATEST_LEGACY and any(one.runs_tasks for one in upstreams):
            declared["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        if is_modern(version) and any(one.modern and TASKS in extensions_of(one.capabilities) for one in upstreams):
            extensions[TASKS] = {}
        if extensions and version >= FIRST_WITH_STRUCTURE:  # MCP Apps came with clients of these revisions
            declared["extensions"] = extensions
        return declared


def compose(own: str, servers: Mapping[str, str], budget: int) -> str:
    """The bridge's own instructions and an excerpt of each server's, by name, in at most `budget` characters.

    The same servers give the same text: clients cache prompts by prefix. What a server says is quoted line by line,
    so that none can speak for another or for the bridge. The bridge's own are whole, whatever the budget.
    """
    quoted = {name: _quoted(text) for name, text in sorted(servers.items()) if text.strip()}
    excerpts = _shared_out(quoted, budget - len(own))
    return "\n\n".join([own, *excerpts] if own else excerpts)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


def _shared_out(texts: Mapping[str, str], room: int) -> list[str]:
    """Equal shares for all; what a short text does not need goes to the longer ones."""
    headings = {name: f"Server `{name}`:\n" for name in texts}
    shown: dict[str, str] = {}
    for place, name in enumerate(sorted(texts, key=lambda name: (len(headings[name]) + len(texts[name]), name))):
        share = room // (len(texts) - place) - len(headings[name]) - len("\n\n")
        text = texts[name] if len(texts[name]) <= share else _cut(texts[name], share)
        if text:
            shown[name] = headings[name] + text
            room -= len(shown[name]) + len("\n\n")
    return [shown[name] for name in texts if name in shown]


def _cut(text: str, length: int) -> str:
    """The beginning of a text, up to the last whole word; empty when that would tell nothing."""
    if length < LEAST_EXCERPT:
        return ""
    head = text[: length - 1]
    cut = max(head.rfind(" "), head.rfind("\n"))
    return f"{head[:cut].rstrip() if cut > length // 2 else head}…"
