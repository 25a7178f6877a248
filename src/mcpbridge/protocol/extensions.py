"""Extensions of the protocol: which the bridge declares to servers, and which it declares to clients; pure.

An extension is named in the `extensions` map of the capabilities, with settings of its own (SEP-2133). It may add
methods, results and notices, so only those cross that the bridge understands, or that whoever runs it allows because
they are pure data. For every other one both sides fall back to the core protocol (MCP 2026-07-28, Versioning and
Compatibility, Extension Negotiation).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, cast

UI: Final = "io.modelcontextprotocol/ui"
"""MCP Apps: a tool names a `ui://` resource, which the host shows."""

APP_MIME_TYPE: Final = "text/html;profile=mcp-app"
"""What such a resource is."""

TASKS: Final = "io.modelcontextprotocol/tasks"
"""A modern server may answer a call with a task, which whoever called follows."""

Extensions = Mapping[str, Mapping[str, Any]]
"""Identifier to settings."""

_OWN: Extensions = {UI: {"mimeTypes": [APP_MIME_TYPE]}}
"""Declared to every server, whoever the client is: a session of the handshake era is declared once, before anybody
calls, and a server that offers an app offers text beside it for hosts without apps."""

_PURE_DATA = frozenset({UI})
"""Extensions that are nothing but members of definitions and results, so that they cross as they are."""


def extensions_of(capabilities: Mapping[str, Any]) -> Extensions:
    """The extensions that a peer declared; entries that are no objects are none."""
    declared: object = capabilities.get("extensions")
    if not isinstance(declared, dict):
        return {}
    entries = cast("dict[str, object]", declared).items()
    return {name: cast("dict[str, Any]", settings) for name, settings in entries if isinstance(settings, dict)}


def declared_to_servers(
    client: Extensions, allowed: Collection[str] = (), *, tasks: bool = False
) -> dict[str, Mapping[str, Any]]:
    """What to declare to a server: the bridge's own, and what the client behind the call declared and may use.

    `client` is empty where one declaration to the server is for all clients. `allowed`: identifiers from the
    configuration.
    `tasks`: whoever sends this follows a task itself, or hands it to the client (the modern era alone has them so).
    """
    relayed = {name: settings for name, settings in client.items() if name in _PURE_DATA or name in allowed}
    own: Extensions = {**_OWN, TASKS: {}} if tasks else _OWN
    return {name: _joined([own.get(name, {}), relayed.get(name, {})]) for name in sorted({*own, *relayed})}


def declared_to_clients(upstreams: Iterable[Extensions], allowed: Collection[str] = ()) -> dict[str, Mapping[str, Any]]:
    """What to declare to clients: what some server declares. Settings of several are joined, in the order given."""
    declared = list(upstreams)
    names = sorted({name for one in declared for name in one if name in _PURE_DATA or name in allowed})
    return {name: _joined([one[name] for one in declared if name in one]) for name in names}


def _joined(settings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Lists together, each entry once; of anything else the first that is said."""
    joined: dict[str, Any] = {}
    for one in settings:
        for key, value in one.items():
            known: object = joined.setdefault(key, value)
            if isinstance(known, list) and isinstance(value, list):
                known_entries = cast("list[object]", known)
                joined[key] = [*known_entries, *(entry for entry in value if entry not in known_entries)]  # pyright: ignore[reportUnknownVariableType] - JSON
    return joined
