"""A server over stdio whose tools return what they are given: upstream_payloads.py FOLDER

For each FOLDER/NAME.payload there is a tool `get_NAME`, which takes nothing and returns the text of that file.
"""

import json
import sys
from pathlib import Path
from typing import Any

PAYLOADS = {f"get_{path.stem}": path for path in sorted(Path(sys.argv[1]).glob("*.payload"))}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for one that is not understood."""
    if method == "initialize":
        version = params.get("protocolVersion", "2025-06-18")
        server = {"name": "payloads", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"name": n, "description": "Returns a text.", "inputSchema": schema} for n in PAYLOADS]}
    if method == "tools/call" and params.get("name") in PAYLOADS:
        text = PAYLOADS[params["name"]].read_text(encoding="utf-8")
        return {"content": [{"type": "text", "text": text}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        result = answer(request["method"], request.get("params") or {})
        said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "not understood"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}) + "\n")
        sys.stdout.flush()
