"""People whose tokens were checked, and what a client of theirs meets in a bridge."""

from collections.abc import Mapping
from typing import Any

from mcpbridge.core.identity import Identity, principal_of
from mcpbridge.downstream.client import Client
from mcpbridge.downstream.server import Server
from support.in_process_bridge import Ear
from support.upstreams.scripted_upstream import Refusal, ScriptedTransport

ISSUER = "https://login.example.com"


def person(subject: str, *, scopes: tuple[str, ...] = (), client_id: str = "", **claims: Any) -> Identity:
    """What a checked token says of somebody."""
    said = {"iss": ISSUER, "sub": subject, **claims}
    return Identity(principal_of(ISSUER, subject), ISSUER, subject, said, frozenset(scopes), client_id, subject)


def introduce(client: Client, identity: Identity | None, principal: str = "") -> None:
    """What a front does with a request that came with this token."""
    client.identity = identity
    client.principal = identity.principal if identity is not None else principal


async def ear_of(server: Server, identity: Identity | None, principal: str = "") -> Ear:
    """A legacy client of this person, or of this name in `http.tokens`, which has begun."""
    ear = Ear(server)
    introduce(ear.client, identity, principal)
    await ear.initialize()
    return ear


def office(name: str, *tools: str) -> ScriptedTransport:
    """A server with these tools, two prompts, two resources and a template."""
    listed = [
        {"name": tool, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": tool.startswith("get_")}}
        for tool in tools
    ]
    capabilities = {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "completions": {},
    }

    def call(params: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"{name} did {params['name']}"}]}

    def read(params: dict[str, Any]) -> dict[str, Any] | Refusal:
        if not str(params["uri"]).startswith(f"{name}://"):
            return Refusal(-32002, "Unknown resource: it is none of mine")
        return {"contents": [{"uri": params["uri"], "text": name}]}

    script: Mapping[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "serverInfo": {"name": name, "version": "1"},
            "instructions": f"about {name}",
        },
        "ping": {},
        "tools/list": {"tools": listed},
        "tools/call": call,
        "prompts/list": {"prompts": [{"name": "hello"}, {"name": "secret"}]},
        "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": name}}]},
        "resources/list": {
            "resources": [{"uri": f"{name}://open/1", "name": "one"}, {"uri": f"{name}://closed/1", "name": "two"}]
        },
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": f"{name}://open/{{id}}", "name": "any"}]},
        "resources/read": read,
        "resources/subscribe": {},
        "resources/unsubscribe": {},
        "completion/complete": {"completion": {"values": [name], "total": 1, "hasMore": False}},
        "logging/setLevel": {},
    }
    return ScriptedTransport(script)
