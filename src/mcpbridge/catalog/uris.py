"""How the URIs of many servers live in one list.

A URI is an identity that clients echo anywhere, so it stays what it is where only one server has it. Where several have
the same, each gets a form that names its server and can be undone:

    file:///notes   of server `work`  ->  mcpb+work+file:///notes
    ui://chart      of server `work`  ->  ui://work/chart            hosts know apps by this scheme
    https://…                         ->  never rewritten: clients may fetch it themselves

RFC 6570 variables survive all of it, so templates are treated alike.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from mcpbridge.catalog.names import fingerprint

__all__ = [
    "authority_of",
    "is_web",
    "published_uris",
    "rewritten",
    "rewritten_firmly",
    "scheme_of",
    "slugs",
    "unwrapped",
]

_MARK = "mcpb+"
_WRAPPED = re.compile(r"mcpb\+([a-z0-9.-]+)(?:\+|:)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#{}]*)(?=[/?#]|$)")
_FOREIGN = re.compile(r"[^a-z0-9.-]")

_Owned = tuple[str, str]


def scheme_of(uri: str) -> str:
    """The scheme in lower case; empty where there is none, as in a template that begins with a variable."""
    match = _SCHEME.match(uri)
    return match[1].lower() if match else ""


def authority_of(uri: str) -> str:
    """What stands between `//` and the path; empty where there is none, or a template leaves it open."""
    match = _AUTHORITY.match(uri)
    return match[1] if match else ""


def is_web(uri: str) -> bool:
    """Whether clients may fetch it without the server, so that it must stay as it is."""
    return scheme_of(uri) in ("http", "https")


def slugs(servers: Iterable[str]) -> dict[str, str]:
    """A unique name for each server from the letters that a URI scheme may have; a pure function of the set."""
    wanted = {server: _FOREIGN.sub("-", server.lower()) or "s" for server in sorted(set(servers))}
    sharing = defaultdict[str, list[str]](list)
    for server, slug in wanted.items():
        sharing[slug].append(server)
    taken = {slug: group[0] for slug, group in sharing.items() if len(group) == 1}
    for group in sharing.values():
        for server in group if len(group) > 1 else ():
            attempt = 0
            while (slug := f"{wanted[server]}-{fingerprint(server, str(attempt))}") in taken:
                attempt += 1
            taken[slug] = server
    return {server: slug for slug, server in taken.items()}


def rewritten(slug: str, uri: str) -> str:
    """The form that names its server, keeping `ui://` recognisable."""
    if scheme_of(uri) == "ui" and uri[2:5] == "://":
        return f"{uri[:5]}{slug}/{uri[5:]}"
    return rewritten_firmly(slug, uri)


def rewritten_firmly(slug: str, uri: str) -> str:
    """The form that `unwrapped` undoes whatever else is listed."""
    return f"{_MARK}{slug}+{uri}" if scheme_of(uri) else f"{_MARK}{slug}:{uri}"


def unwrapped(uri: str) -> tuple[str, str] | None:
    """(slug, original) of a URI made by `rewritten_firmly`; None for every other."""
    match = _WRAPPED.match(uri)
    return (match[1], uri[match.end() :]) if match else None


def published_uris(owned: Iterable[_Owned], slug: dict[str, str]) -> dict[_Owned, str]:
    """How each (server, URI) is listed: unchanged, or rewritten where that is needed to tell it apart.

    Unique but for web addresses, which the first server in order owns; a pure function of the set.
    """
    published = {pair: pair[1] for pair in sorted(set(owned))}
    # A form of ours that a server lists itself (another bridge) must not be taken for one that we made.
    changing = {pair for pair in published if pair[1].startswith(_MARK)}
    for server, uri in changing:
        published[server, uri] = rewritten(slug[server], uri)
    # A rewritten `ui://` form may meet another server's own URI, which is then rewritten as well.
    while changing := _clashing(published):
        for server, uri in changing:
            published[server, uri] = rewritten(slug[server], uri)
    return published


def _clashing(published: dict[_Owned, str]) -> set[_Owned]:
    """Pairs listed alike that are not rewritten yet, and may be. Two rewritten ones cannot be alike."""
    sharing = defaultdict[str, list[_Owned]](list)
    for pair, uri in published.items():
        sharing[uri].append(pair)
    return {
        pair for uri, group in sharing.items() if len(group) > 1 for pair in group if pair[1] == uri and not is_web(uri)
    }
