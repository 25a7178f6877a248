"""Decides how the URIs of many servers live in one list, and which server a URI belongs to.

A URI is an identity that clients echo anywhere, so it stays as it is where only one server has it. Where several have
the same one, each gets a form that names its server and can be undone:

    file:///notes   of server `work`  ->  mcpb+work+file:///notes
    ui://chart      of server `work`  ->  ui://work/chart            hosts know apps by this scheme
    https://…                         ->  never rewritten: clients may fetch it themselves

RFC 6570 variables survive all of it, so templates are treated alike.

The owner of a URI is looked for in this order:

1. what is listed
2. the form that names its server
3. the original of a rewritten URI
4. templates
5. the only server that uses this scheme and host
6. links that results brought; a tool may return a link that is in no list (spec, tools)

A URI that several servers could own is refused with the forms that name one of them. It is never guessed: the wrong
file is worse than an error. What results brought is remembered as long as the process lives.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from urllib.parse import unquote

from msgspec import Struct

from mcpbridge.base.errors import UnknownName
from mcpbridge.base.late_pattern import late
from mcpbridge.catalog.name_index import likely_meant
from mcpbridge.catalog.tool_names import fingerprint
from mcpbridge.catalog.upstream_filter import lets_through, matches_any
from mcpbridge.catalog.uri_templates import UriBits, UriTemplate
from mcpbridge.core.source_settings import NameFilter
from mcpbridge.protocol.body import Body
from mcpbridge.results.header_line import URI as KEPT

_MARK = "mcpb+"
_WRAPPED = late(r"mcpb\+([a-z0-9.-]+)(?:\+|:)")
_SCHEME = late(r"([A-Za-z][A-Za-z0-9+.-]*):")
_AUTHORITY = late(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#{}]*)(?=[/?#]|$)")
_FOREIGN = late(r"[^a-z0-9.-]")

_Owned = tuple[str, str]


def scheme_of(uri: str) -> str:
    """The scheme in lower case; empty where there is none, as in a template that begins with a variable."""
    match = _SCHEME.match(uri)
    return match[1].lower() if match else ""


def authority_of(uri: str) -> str:
    """What is between `//` and the path; empty where there is none, or a template leaves it open."""
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
    """How each (server, URI) is listed: unchanged, or rewritten where that is needed to distinguish it.

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


_URI_MEMBER = late(rb'"uri"')
_APP_MEMBER = late(rb'resourceUri"')
_URI_WORD = b'uri"'
"""Either of them, as it is found in large results while they arrive."""
_DOT_SEGMENT = late(r"(?:^|[/\\])\.\.?(?:[/\\?#]|$)")
_CANDIDATES = 8

_Target = tuple[str, str]

_EVERYTHING = NameFilter.model_construct()


class ServerUris(Struct, frozen=True):
    """The URIs of one server."""

    server: str
    listed: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    """Known from elsewhere, such as the apps of tools."""
    templates: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    """Resources that the configuration hides."""
    hidden_templates: tuple[str, ...] = ()
    names: NameFilter = _EVERYTHING


class UriIndex:
    """All servers' URIs, both ways. Immutable but for what it learns from results; that only settles open questions."""

    def __init__(self, servers: Iterable[ServerUris], seen: SeenUris | None = None, *, keeps_all: bool = False) -> None:
        """Every server belongs in, also one that offers nothing now: slugs must not change as servers come and go.

        `seen` goes from one index to the next, so that a link in an old result keeps its meaning. `keeps_all`: this
        is one server by itself, no listed URI of it is rewritten.
        """
        self._seen = seen or SeenUris()
        self._sees: Callable[[str, str], bool] | None = None
        ordered = sorted(servers, key=lambda one: one.server)
        self._gates = {one.server: _Gate(one) for one in ordered}
        self._slugs = slugs(self._gates)
        self._servers = {slug: server for server, slug in self._slugs.items()}
        spelling = _as_they_are if keeps_all else published_uris
        self.resources = spelling(
            ((one.server, uri) for one in ordered for uri in (*one.listed, *one.unlisted)), self._slugs
        )
        """(server, URI) to how it is published."""
        self.templates = spelling(
            ((one.server, template) for one in ordered for template in one.templates), self._slugs
        )
        """(server, template) to how it is published."""
        self.moving = frozenset(
            server
            for published in (self.resources, self.templates)
            for (server, own), shown in published.items()
            if own != shown
        )
        """Servers with a URI that clients see rewritten."""
        self.searched = self.moving if len(self._gates) == 1 else frozenset(self._gates)
        """Servers whose results may hold URIs to rewrite."""
        self._with_apps = frozenset(server for server, uri in self.resources if scheme_of(uri) == "ui")
        self._published = _first_owner(self.resources)
        self._published_templates = _first_owner(self.templates)
        self._owners = defaultdict[str, list[str]](list)
        for server, uri in self.resources:
            self._owners[uri].append(server)
        self._matchers = [(server, UriTemplate(template)) for server, template in self.templates]
        self._by_scheme = defaultdict[str, set[str]](set)
        self._by_authority = defaultdict[tuple[str, str], set[str]](set)
        for server, uri in (*self.resources, *self.templates):
            scheme = scheme_of(uri)
            self._by_scheme[scheme].add(server)
            self._by_authority[scheme, authority_of(uri)].add(server)

    def seen_by(self, sees: Callable[[str, str], bool]) -> "UriIndex":
        """The same for somebody for whom there is only what `sees` says of a server and its URI or template.

        What it learns from results is learned for all.
        """
        other = copy(self)
        other._sees = sees  # noqa: SLF001 - it is one of us
        seen = {target: uri for target, uri in self.resources.items() if sees(*target)}
        other._published = _first_owner(seen)  # noqa: SLF001 - the same
        templates = {target: text for target, text in self.templates.items() if sees(*target)}
        other._published_templates = _first_owner(templates)  # noqa: SLF001 - the same
        return other

    def resolve(self, uri: str) -> _Target:
        """(server, the server's own URI) for a URI from a client.

        Raises:
            UnknownName: nobody's, hidden, or more than one server's.
        """
        slug, original = unwrapped(uri) or ("", uri)
        target = self._published.get(uri)
        if target is None:
            target = self._named(slug, original) if slug in self._servers else self._unlisted(uri)
        if target is None or (self._sees is not None and not self._sees(*target)):
            raise UnknownName("resource", uri, candidates=lambda: likely_meant(uri, self._published))
        return target

    def resolve_template(self, template: str) -> _Target:
        """(server, the server's own template) for a published template.

        Raises:
            UnknownName: no such template is published.
        """
        target = self._published_templates.get(template)
        if target is None:
            raise UnknownName(
                "resource template", template, candidates=lambda: likely_meant(template, self._published_templates)
            )
        return target

    def publish(self, server: str, uri: str) -> str:
        """The spelling that clients must use for this server's URI, listed or not."""
        if uri.startswith(KEPT):  # the bridge's own link in this result, or that of a bridge which the server is
            self._seen.note(server, uri)
            return uri
        known = self.resources.get((server, uri))
        if known is not None or is_web(uri):
            return known or uri
        slug = self._slugs.get(server)
        if slug is None or self._is_left_to(server, uri):
            return uri
        kept = rewritten(slug, uri)
        return kept if self._is_read_as(kept, server, uri) else rewritten_firmly(slug, uri)

    def seen_in(self, uri: str) -> str:
        """The server in whose results this URI stood lately; empty: nobody's."""
        owner = self._seen.owner(uri)
        return owner if owner is not None and owner in self._gates else ""

    def may_hold_uris(self, server: str, result: Body) -> bool:
        """Whether `publish` may have to do with this result. A search, far cheaper than a parse."""
        if server not in self.searched:
            return False
        if result.words is not None:
            return _URI_WORD in result.words
        if _URI_MEMBER.search(result.data) is not None:
            return True
        return server in self._with_apps and _APP_MEMBER.search(result.data) is not None

    def _is_left_to(self, server: str, uri: str) -> bool:
        """Whether this unlisted URI of a server can stay as it is: it, or nobody, is asked for it so far."""
        if self._names_a_server(uri) or uri in self._published:  # what another server has may be listed like this
            return False
        try:
            target = self._claimed(uri)
        except UnknownName:
            return False
        if target is not None:
            return target == (server, uri)
        return self._seen.note(server, uri) == server

    def _is_read_as(self, spelling: str, server: str, uri: str) -> bool:
        try:
            return self.resolve(spelling) == (server, uri)
        except UnknownName:
            return False

    def _names_a_server(self, uri: str) -> bool:
        parts = unwrapped(uri)
        return parts is not None and parts[0] in self._servers

    def _named(self, slug: str, uri: str) -> _Target | None:
        """What is asked of the server that the URI names; None when the configuration hides it."""
        server = self._servers[slug]
        gate = self._gates[server]
        return (server, uri) if uri in gate.listed or gate.lets_read(uri) else None

    def _unlisted(self, uri: str) -> _Target | None:
        """Who is asked for what nobody lists."""
        target = self._claimed(uri)
        if target is None and (owner := self._seen.owner(uri)) in self._gates:
            target = self._only((owner,), uri, "seen")
        return target or self._only(self._gates_with_uris() or self._gates_if_one(), uri, "alone")

    def _claimed(self, uri: str) -> _Target | None:
        """The server whose lists and templates say that the URI is its own, by itself or by its likes."""
        scheme = scheme_of(uri)
        return (
            self._only(self._owners.get(uri, ()), uri, "listed")
            or self._only(self._matching(uri), uri, "templates")
            or self._only(self._by_authority.get((scheme, authority_of(uri)), ()), uri, "address")
            or self._named_app(uri)
            or self._only(self._by_scheme.get(scheme, ()), uri, "scheme")
        )

    def _only(self, servers: Iterable[str], uri: str, how: str) -> _Target | None:
        """The one server among these that may be asked for the URI."""
        able = sorted(server for server in set(servers) if how == "listed" or self._gates[server].lets_read(uri, how))
        if self._sees is not None:
            able = [server for server in able if self._sees(server, uri)]
        if len(able) > 1 and not is_web(uri):
            forms = [rewritten_firmly(self._slugs[server], uri) for server in able[:_CANDIDATES]]
            # That several could be asked for it, as for anything, does not make it known.
            raise UnknownName("resource", uri, candidates=forms, ambiguous=how != "alone")
        return (able[0], uri) if able else None

    def _matching(self, uri: str) -> list[str]:
        bits = UriBits(uri)
        return [server for server, template in self._matchers if template.matches(bits)]

    def _named_app(self, uri: str) -> _Target | None:
        """`ui://<server>/…`, where no server uses this host itself."""
        if scheme_of(uri) != "ui":
            return None
        slug, slash, rest = uri[5:].partition("/")
        server = self._servers.get(slug)
        if server is None or not slash:
            return None
        original = f"{uri[:5]}{rest}"
        return (server, original) if self._gates[server].lets_read(original) else None

    def _gates_with_uris(self) -> list[str]:
        return [server for server, gate in self._gates.items() if gate.has_uris]

    def _gates_if_one(self) -> list[str]:
        return list(self._gates) if len(self._gates) == 1 else []


class _Gate:
    """What clients may read of one server beyond its list."""

    def __init__(self, uris: ServerUris) -> None:
        self.listed = frozenset((*uris.listed, *uris.unlisted))
        self.has_uris = bool(self.listed or uris.templates)
        self._names = uris.names
        self._hidden = uris.hidden
        self._offered = [UriTemplate(template) for template in uris.templates]
        self._hidden_templates = [UriTemplate(template) for template in uris.hidden_templates]
        self._is_open = not uris.hidden and not uris.hidden_templates and uris.names == _EVERYTHING

    def lets_read(self, uri: str, how: str = "") -> bool:
        """Whether the configuration lets this unlisted URI through. `how`: what led here; templates include theirs."""
        if self._is_open:
            return True
        plain = unquote(uri)
        if _DOT_SEGMENT.search(plain):
            return False  # `public/../secret` is not what a filter on the text can judge
        if uri in self._hidden or plain in self._hidden:
            return False
        if how == "templates" or self._is_offered(uri):
            return not matches_any(self._names.exclude, uri, plain)
        bits = UriBits(uri)
        if any(template.matches(bits) for template in self._hidden_templates):
            return False
        return lets_through(self._names, uri) and lets_through(self._names, plain)

    def _is_offered(self, uri: str) -> bool:
        bits = UriBits(uri)
        return any(template.matches(bits) for template in self._offered)


def _as_they_are(owned: Iterable[_Target], _: dict[str, str]) -> dict[_Target, str]:
    return {pair: pair[1] for pair in sorted(set(owned))}


def _first_owner(published: Mapping[_Target, str]) -> dict[str, _Target]:
    owners: dict[str, _Target] = {}
    for target, uri in published.items():
        owners.setdefault(uri, target)
    return owners
