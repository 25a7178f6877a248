"""The merged catalog of all upstreams at one moment: what can be looked up in it. Immutable.

`snapshot_builder.py` makes it and decides everything beforehand, off the call path: names, URIs, what clients see of
each definition, and in which order. What a client asks for is then a look-up.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.catalog.definitions.check import KINDS, Kind
from mcpbridge.catalog.listing.pagination import Entry, Listing
from mcpbridge.catalog.name_index import NameIndex
from mcpbridge.catalog.upstream_filter import Dropped
from mcpbridge.catalog.uris import UriIndex
from mcpbridge.core.call_options import NO_HINTS, Hints


class ToolRef(Struct, frozen=True, gc=False):
    """One tool: whose it is, what it is called where, and its definition."""

    server: str
    name: str
    """The upstream's own name, the one to call it by there."""
    wire: str
    """The name that clients see."""
    id: str
    """`server/tool`, the name in configuration and logs; a renamed tool's new one."""
    definition: bytes
    """As the upstream sent it; arguments are checked against this one."""
    published: bytes
    """As clients of 2025-11-25 see it; those of older revisions get less (`older_form`)."""
    published_modern: bytes
    """As clients from 2026-07-28 on see it; the same object where it is the same."""
    headers: Mapping[tuple[str, ...], str]
    """Path of an argument to the token of the `Mcp-Param-…` header that repeats it to a modern HTTP upstream."""
    is_marked: bool = False
    """Modern clients over HTTP repeat arguments in such headers too; `published_modern` says which."""
    app_only: bool = False
    """Meant for the apps of its server, not for models: listed and callable, but nothing to find or recommend."""
    has_app: bool = False
    """An app of its server shows its results, or it is such an app's: hosts must have it in their lists."""
    hints: Hints = NO_HINTS
    """What it says of itself, whoever believes it."""
    task_support: str = ""
    """`optional` or `required`: the tool may, or must, run as a task (2025-11-25); empty: it does not."""


class PromptRef(Struct, frozen=True):
    """One prompt; the fields mean what they do in `ToolRef`."""

    server: str
    name: str
    wire: str
    id: str
    definition: bytes
    published: bytes
    published_modern: bytes


class ResourceRef(Struct, frozen=True):
    """One listed resource. `uri` is the upstream's own, `published_uri` what clients see."""

    server: str
    uri: str
    published_uri: str
    definition: bytes
    published: bytes
    published_modern: bytes


class TemplateRef(Struct, frozen=True):
    """One resource template. `template` is the upstream's own, `published_template` what clients see."""

    server: str
    template: str
    published_template: str
    definition: bytes
    published: bytes
    published_modern: bytes


class Snapshot(Struct, frozen=True):
    """What all upstreams offer together. Made by a `SnapshotBuilder`."""

    digest: str
    """Changes when, and only when, something that is listed changed."""
    tools: Mapping[str, ToolRef]
    """By wire name, in canonical order; so are the next three, by what clients see."""
    prompts: Mapping[str, PromptRef]
    resources: Mapping[str, ResourceRef]
    templates: Mapping[str, TemplateRef]
    unlisted: Mapping[str, ToolRef]
    """Tools of the bridge that can be called but are in no listing, by wire name."""
    dropped: tuple[Dropped, ...]
    """What clients do not see, or not in full, though it is offered and not hidden by the configuration."""
    by_wire: Mapping[str, ToolRef]
    """Every tool that can be called by its wire name, listed or not, as the fast way to `tool`. Not to be changed."""
    _tool_names: NameIndex[ToolRef]
    _prompt_names: NameIndex[PromptRef]
    uris: UriIndex
    """Whose each URI is, and which results may hold some. Looked up through the methods here; not to be changed."""
    _listings: Mapping[Kind, Listing]
    _unlisted: Mapping[str, Entry]
    seen_servers: frozenset[str] | None = None
    """Of somebody who is kept to roles: the servers of which it sees anything; None: it is everybody's catalog."""
    whole_servers: frozenset[str] = frozenset()
    """Of these servers it sees everything."""

    def tool(self, name: str) -> ToolRef:
        """The tool of this wire name, `server/tool`, `server.tool`, or bare name if one server alone has it.

        Raises:
            UnknownName: there is none, or several.
        """
        return self._tool_names.find(name)

    def prompt(self, name: str) -> PromptRef:
        """The prompt of this name; the names are those of `tool`, and so are the errors."""
        return self._prompt_names.find(name)

    def resource(self, uri: str) -> tuple[str, str]:
        """(server, the upstream's own URI) for a URI from a client, listed or not.

        Raises:
            UnknownName: no upstream's, hidden by the configuration, or several upstreams'.
        """
        return self.uris.resolve(uri)

    def template(self, uri_template: str) -> tuple[str, str]:
        """(server, the upstream's own template) for a published template, as in a completion's `ref.uri`.

        Raises:
            UnknownName: there is none.
        """
        return self.uris.resolve_template(uri_template)

    def published_uri(self, server: str, uri: str) -> str:
        """How clients must spell this upstream's URI: in updates, and in links and resources inside results.

        An unlisted URI that nobody else could be asked for stays as it is, and is remembered as this upstream's.
        """
        return self.uris.publish(server, uri)

    def seen_in(self, uri: str) -> str:
        """The server in whose results this URI stood lately; empty: nobody's."""
        return self.uris.seen_in(uri)

    def page(self, kind: Kind, cursor: str | None, *, revision: str) -> bytes:
        """The result object of one page of a listing, on one line, for clients of this revision.

        Raises:
            BadRequest: the cursor is none of ours (−32602).
        """
        return self._listings[kind].page(cursor, revision=revision)

    def listing(self, kind: Kind) -> Listing:
        """All that is listed of a kind."""
        return self._listings[kind]

    def entries(self, kind: Kind) -> Sequence[Entry]:
        """What `page` shows of a kind: for tools in the order of `tools`."""
        return self._listings[kind].entries

    def unlisted_entry(self, ref: ToolRef) -> Entry:
        """What a listing would show of one of `unlisted`."""
        return self._unlisted[ref.wire]

    def kind_digest(self, kind: Kind) -> str:
        """Changes when, and only when, what is listed of this kind changed."""
        return self._listings[kind].digest

    def hiding(self, wires: frozenset[str]) -> "Snapshot":
        """The same catalog, in which these tools are not listed and not guessed; all names mean what they meant."""
        if not wires:
            return self
        names = self._tool_names.hiding(wires)
        tools = self._listings["tools"].only(wire not in wires for wire in self.tools)
        listings: dict[Kind, Listing] = {**self._listings, "tools": tools}
        return replace(
            self,
            digest=digest_of(listings),
            tools=names.wires,
            unlisted={wire: ref for wire, ref in self.unlisted.items() if wire not in wires},
            _tool_names=names,
            _listings=listings,
        )

    def shows(self, server: str) -> bool:
        """Whether who sees this catalog may know that there is this server."""
        return self.seen_servers is None or server in self.seen_servers

    def shows_all_of(self, server: str) -> bool:
        """Whether nothing of this server is kept from who sees this catalog."""
        return self.seen_servers is None or server in self.whole_servers

    def without(self, tools: frozenset[str], visible: "Visible") -> "Snapshot":
        """The catalog of somebody for whom there are not these tools, nor anything but what is `visible`.

        What is left out is unknown: its names mean what they would mean if nobody had them.
        """
        names = self._tool_names.without(tools)
        unlisted = {wire: ref for wire, ref in self.unlisted.items() if wire not in tools}
        prompts = {
            wire: visible.prompt(ref.server, {ref.name, ref.id.removeprefix(f"{ref.server}/")})
            for wire, ref in self.prompts.items()
        }
        resources = {uri: visible.resource(ref.server, ref.uri) for uri, ref in self.resources.items()}
        templates = {text: visible.resource(ref.server, ref.template) for text, ref in self.templates.items()}
        kept = self.tools.keys() - tools
        listings: dict[Kind, Listing] = {
            "tools": self._listings["tools"].only(wire in kept for wire in self.tools),
            "prompts": self._listings["prompts"].only(prompts.values()),
            "resources": self._listings["resources"].only(resources.values()),
            "templates": self._listings["templates"].only(templates.values()),
        }
        everything: list[tuple[str, bool]] = [
            *((ref.server, wire not in tools) for wire, ref in self.by_wire.items()),
            *((ref.server, prompts[wire]) for wire, ref in self.prompts.items()),
            *((ref.server, resources[uri]) for uri, ref in self.resources.items()),
            *((ref.server, templates[text]) for text, ref in self.templates.items()),
        ]
        seen = frozenset(server for server, is_seen in everything if is_seen)
        unknown_prompts = frozenset(wire for wire, is_seen in prompts.items() if not is_seen)
        return replace(
            self,
            digest=digest_of(listings),
            tools={wire: ref for wire, ref in self.tools.items() if wire not in tools},
            prompts={wire: ref for wire, ref in self.prompts.items() if prompts[wire]},
            resources={uri: ref for uri, ref in self.resources.items() if resources[uri]},
            templates={text: ref for text, ref in self.templates.items() if templates[text]},
            unlisted=unlisted,
            dropped=(),
            by_wire=names.by_wire,
            _tool_names=names,
            _prompt_names=self._prompt_names.without(unknown_prompts),
            uris=self.uris.seen_by(visible.resource),
            _listings=listings,
            seen_servers=seen,
            whole_servers=seen - {server for server, is_seen in everything if not is_seen},
        )


class Visible(Protocol):
    """What there is for somebody besides tools."""

    def prompt(self, server: str, names: Collection[str]) -> bool:
        """Whether there is a prompt of this server that goes by these names."""
        ...

    def resource(self, server: str, uri: str) -> bool:
        """Whether there is this resource or template, as the server spells it."""
        ...


def digest_of(listings: Mapping[Kind, Listing]) -> str:
    """The digest of a whole catalog: of its listings."""
    return sha256("".join(listings[kind].digest for kind in KINDS).encode()).hexdigest()
