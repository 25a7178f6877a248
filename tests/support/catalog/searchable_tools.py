"""Tools that can be found, a ranker over them, and a caller's view of both."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcpbridge.catalog.search.index import CatalogRankers
from mcpbridge.catalog.search.ranker import ServerText, ToolText
from mcpbridge.catalog.search.visible_tools import Look, VisibleTools
from mcpbridge.core.call_options import NO_HINTS, Hints
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode


@dataclass(frozen=True)
class Tool:
    """A tool of a server, as a catalog has it."""

    server: str
    name: str
    description: str = ""
    schema: Any = None
    output: Any = None
    hints: Hints = NO_HINTS
    app_only: bool = False
    task_support: str = ""

    @property
    def wire(self) -> str:
        return f"{self.server}__{self.name}"

    @property
    def id(self) -> str:
        return f"{self.server}/{self.name}"

    @property
    def definition(self) -> bytes:
        schema = {"type": "object"} if self.schema is None else self.schema
        members = {"name": self.wire, "description": self.description, "inputSchema": schema}
        return json.dumps(members if self.output is None else {**members, "outputSchema": self.output}).encode()

    published = definition

    @property
    def text(self) -> ToolText:
        return ToolText(self.id, self.server, self.name, "", self.description, self.schema)


def an_object(*required: str, **properties: Any) -> dict[str, Any]:
    """A schema: `owner="string"` is short for `owner={"type": "string"}`."""
    members = {name: {"type": one} if isinstance(one, str) else one for name, one in properties.items()}
    return {"type": "object", "properties": members, "required": list(required)}


def visible_tools(tools: Iterable[Tool], map_: str = "~3 tools of 1 server: demo (3)") -> VisibleTools:
    """What somebody sees who may call these tools; the ranker knows them all."""
    every = list(tools)
    texts: dict[str, list[ToolText]] = {}
    for tool in every:
        texts.setdefault(tool.server, []).append(tool.text)
    made = CatalogRankers().of([(ServerText(server), found) for server, found in texts.items()])

    async def ranker(_: str) -> Any:
        return made

    return VisibleTools({tool.wire: tool for tool in every}, ranker, lambda: map_)


def looking_at(seen: VisibleTools) -> Look:
    """Everybody sees this."""

    async def look(_: Call) -> VisibleTools:
        return seen

    return look


def a_call(name: str, arguments: Mapping[str, Any] | object = None) -> Call:
    params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
    return Call("tools/call", "mcpbridge", name, Body(encode(params)))


GITHUB = Tool(
    "github",
    "create_issue",
    "Create a new issue in a GitHub repository. The token needs the scope `repo`.",
    an_object(
        "owner",
        "repo",
        "title",
        owner="string",
        repo="string",
        title="string",
        body={"type": "string", "description": "Text in Markdown"},
        labels={"type": "array", "items": {"type": "string"}},
        state={"enum": ["open", "closed"], "default": "open"},
    ),
)
