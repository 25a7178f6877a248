"""Servers that rules and hooks name, though there is no such server. Pure.

A rule about nothing is worse than none: whoever wrote it believes that it holds. Names with wildcards may be meant for
servers to come, so they are only worth a warning. Whether there is such a tool is known when the servers have listed
theirs (`catalog/unmatched.py`).
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from mcpbridge.backends.pack_names import pack_name
from mcpbridge.config.schema import Settings
from mcpbridge.errors import nearest
from mcpbridge.model import BRIDGE, BUILTIN, TOOLS

__all__ = ["Stranger", "strangers"]

_WILD = frozenset("*?[")


class Stranger(Struct, frozen=True):
    """A name of a server that none has."""

    key: tuple[str, ...]
    """Where it stands."""
    what: str
    hint: str
    is_certain: bool
    """Nothing that comes later can make it right."""


def strangers(settings: Settings) -> Iterator[Stranger]:
    """All of them, in the order of the file."""
    known = [*settings.servers, *settings.tools, *map(pack_name, settings.packs), TOOLS, BUILTIN, BRIDGE]
    sections: dict[str, Sequence[tuple[Sequence[str], Sequence[str]]]] = {
        "permissions": [(rule.servers, rule.tools) for rule in settings.permissions],
        "hooks": [(hook.servers, hook.tools) for hook in settings.hooks],
    }
    for section, members in sections.items():
        for number, (servers, tools) in enumerate(members):
            key = section, str(number)
            for glob in servers:
                yield from _server((*key, "servers"), glob, known)
            for glob in tools:
                server, slash, name = glob.partition("/")
                if slash:
                    yield from _server((*key, "tools"), server, known, shown=glob, rest=f"/{name}")
                else:
                    yield from _wire_name((*key, "tools"), glob, known)


def _server(
    key: tuple[str, ...], glob: str, known: list[str], *, shown: str = "", rest: str = ""
) -> Iterator[Stranger]:
    if any(fnmatchcase(name, glob) for name in known):
        return
    found = f" (found {shown[:80]!r})" if shown else ""
    if _WILD.intersection(glob):
        if glob.strip("*"):  # what matches everything waits for the first server
            yield Stranger(key, f"no server has a name like {glob[:80]!r}{found}", "", is_certain=False)
        return
    close = nearest(glob, known, limit=1)
    hint = f"Did you mean `{close[0]}{rest}`?" if close else f"There are: {', '.join(known[:-3]) or 'none'}."
    yield Stranger(key, f"no server is called {glob[:80]!r}{found}", hint, is_certain=True)


def _wire_name(key: tuple[str, ...], glob: str, known: list[str]) -> Iterator[Stranger]:
    """A name as clients see it, `server__tool`; without a slash a glob is compared with the tool's own name alone."""
    for server in sorted(known, key=len, reverse=True):
        if glob.startswith(f"{server}__"):
            meant = f"{server}/{glob.removeprefix(f'{server}__')}"
            what = f"expected an id (`server/tool`), not the name that clients see (found {glob[:80]!r})"
            yield Stranger(key, what, f"Did you mean `{meant}`?", is_certain=True)
            return
