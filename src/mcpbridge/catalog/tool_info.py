"""Tools in a searchable form, for `/api/tools`, `mcpbridge list --query` and programs. Pure.

`tokens_sent` counts a tool as its server sends it, under the name that clients see, so that servers can be compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct

from mcpbridge.catalog.slim.slim import visible
from mcpbridge.catalog.snapshot import ToolRef
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.results.token_count import Counter


class Origin(Struct, frozen=True):
    """Where a tool comes from, as far as its definition does not say."""

    sub_type: str
    """`mcp`, `builtin`, or the kind of its backend: `function`, `http`, `openapi`, …"""
    runtime_type: Literal["local", "remote"]
    """Whether it runs on this machine."""
    protocol_type: str
    """How it is reached: `stdio`, `streamable-http`, `sse`, `websocket`, `http`, `grpc`, `a2a`, `process`, `python`."""
    tags: tuple[str, ...] = ()
    examples: tuple[Any, ...] = ()
    """Arguments or texts, as the configuration has them."""


class Representation(Struct, frozen=True):
    """One tool."""

    id: str
    """`server/tool`."""
    name: str
    """What clients call it."""
    server: str
    type: Literal["tool"]
    sub_type: str
    runtime_type: str
    protocol_type: str
    description: str
    tags: tuple[str, ...]
    schema: Mapping[str, Any]
    """`input`, and `output` where it has one: JSON Schema."""
    examples: tuple[Any, ...]
    annotations: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        return msgspec.to_builtins(self)

    def texts(self) -> Mapping[str, Sequence[str]]:
        """What queries look at, by field."""
        arguments = list(_object(self.schema["input"].get("properties")))
        return {
            "id": (self.id,),
            "name": (self.name, self.id.partition("/")[2]),
            "server": (self.server,),
            "type": (self.type,),
            "sub_type": (self.sub_type,),
            "runtime_type": (self.runtime_type,),
            "protocol_type": (self.protocol_type,),
            "description": (self.description,),
            "tag": self.tags,
            "schema": arguments,
            "example": [example if isinstance(example, str) else str(example) for example in self.examples],
        }


def represented(ref: ToolRef, origin: Origin) -> Representation:
    """The form of a tool."""
    definition: dict[str, Any] = msgspec.json.decode(ref.definition)
    schema: dict[str, Any] = {"input": _object(definition.get("inputSchema"))}
    if "outputSchema" in definition:
        schema["output"] = _object(definition["outputSchema"])
    annotations = _object(definition.get("annotations"))
    described = definition.get("description")
    title = definition.get("title") or annotations.get("title")
    texts = [text for text in (title, described) if isinstance(text, str) and text]
    return Representation(
        id=ref.id,
        name=ref.wire,
        server=ref.server,
        type="tool",
        sub_type=origin.sub_type,
        runtime_type=origin.runtime_type,
        protocol_type=origin.protocol_type,
        description=": ".join(dict.fromkeys(texts)),
        tags=origin.tags,
        schema=schema,
        examples=origin.examples,
        annotations=annotations,
    )


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_sent(ref: ToolRef) -> bytes:
    """The definition, with all that the server says."""
    body = Body(Raw(ref.definition))
    body.put("name", Raw(encode(ref.wire)))
    return bytes(body.data)


def tokens_sent(ref: ToolRef, count: Counter) -> int:
    """Tokens of what clients show models of it: name, description and input schema."""
    return count(visible(as_sent(ref)))
