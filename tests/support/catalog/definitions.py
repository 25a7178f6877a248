"""Definitions for tests of the catalog, as the bytes that servers send."""

import json
from typing import Any

from mcpbridge.catalog.upstream_filter import Offer
from mcpbridge.upstream.settings import ServerSettings


def dumps(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def tool(name: str, **members: Any) -> bytes:
    return dumps({"name": name, "inputSchema": {"type": "object"}, **members})


def prompt(name: str, **members: Any) -> bytes:
    return dumps({"name": name, **members})


def resource(uri: str, **members: Any) -> bytes:
    return dumps({"uri": uri, "name": uri.rpartition("/")[2] or uri, **members})


def template(uri_template: str, **members: Any) -> bytes:
    return dumps({"uriTemplate": uri_template, "name": "template", **members})


def tools(server: str, *names: str) -> Offer:
    return Offer(server, tools=tuple(tool(name) for name in names))


def resources(server: str, *uris: str, templates: tuple[str, ...] = ()) -> Offer:
    return Offer(
        server,
        resources=tuple(resource(uri) for uri in uris),
        templates=tuple(template(one) for one in templates),
    )


def settings(**members: Any) -> ServerSettings:
    return ServerSettings.model_validate({"command": "server", **members})
