"""A cassette of a single call, made afterwards of what is known of it: enough to replay the call in a test. Pure."""

from msgspec import Raw

from mcpbridge.engine.cassettes.format import HEADER, Entry, as_line
from mcpbridge.protocol.error_codes import METHOD_NOT_FOUND
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.protocol.revisions import is_modern

_CAPABILITIES: dict[str, object] = {"tools": {}}


def cassette_of_call(
    server: str, revision: str, tool: str, definition: bytes, arguments: bytes, result: bytes
) -> bytes:
    """A cassette that answers this one call, and lists this one tool.

    `revision`: the one that the server speaks. `tool`: its own name there; `definition` and `result` are JSON as the
    server sent them, `arguments` as it got them.
    """
    about = {"name": server, "version": ""}
    if is_modern(revision):
        found = {"supportedVersions": [revision], "capabilities": _CAPABILITIES, "serverInfo": about}
        opening = [Entry(server, "server/discover", result=Raw(encode(found)))]
    else:
        refused = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
        agreed = {"protocolVersion": revision, "capabilities": _CAPABILITIES, "serverInfo": about}
        opening = [
            Entry(server, "server/discover", error=Raw(encode(refused))),
            Entry(server, "initialize", result=Raw(encode(agreed))),
        ]
    entries = [
        *opening,
        Entry(server, "tools/list", result=Raw(encode({"tools": [Raw(definition)]}))),
        Entry(
            server,
            "tools/call",
            Raw(encode({"name": tool, "arguments": Raw(arguments)})),
            result=Raw(result),
        ),
    ]
    return b"\n".join([HEADER, *map(as_line, entries), b""])
