"""A stdio server whose every word is hostile: instructions, tools, prompts, resources, results, errors, output.

`markup.py` takes the texts from `support/hostile_texts.py`; tool `t0`, `t1`, … each tell another part of them.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.hostile_texts import HOSTILE, SHORT

EACH = 10
"""Texts that one tool tells."""
TOOLS = (len(HOSTILE) + EACH - 1) // EACH


def of_json(text: str) -> str:
    """Half a pair of surrogates has no place in UTF-8."""
    return text.encode("utf-8", "replace").decode()


def tool(at: int) -> dict[str, Any]:
    texts = [of_json(text) for text in SHORT[at * EACH : (at + 1) * EACH]] or ["x"]
    return {
        "name": f"t{at}",
        "title": texts[0],
        "description": "\n".join(texts),
        "inputSchema": {
            "type": "object",
            "properties": {
                "say": {"type": "string", "description": texts[-1], "default": texts[0], "enum": texts},
                texts[0][:40] or "x": {"type": "string"},
            },
        },
        "annotations": {"title": texts[-1], "readOnlyHint": True},
    }


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    at = int(name.removeprefix("t"))
    texts = [of_json(text) for text in HOSTILE[at * EACH : (at + 1) * EACH]]
    rows = [{"text": text[:2000], of_json(text[:60]): at, "n": number} for number, text in enumerate(texts)]
    return {"content": [{"type": "text", "text": json.dumps(rows)}], "isError": bool(at % 3 == 2)}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    first = of_json(SHORT[0])
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "experimental": {first: {"x": first}}},
            "serverInfo": {"name": first, "title": first, "version": first},
            "instructions": "\n".join(map(of_json, SHORT[:40])),
        }
    if method == "tools/list":
        return {"tools": [tool(at) for at in range(TOOLS)]}
    if method == "prompts/list":
        return {"prompts": [{"name": of_json(text)[:80], "description": of_json(text)} for text in SHORT[:20]]}
    if method == "resources/list":
        named = [{"uri": f"x://r/{at}", "name": of_json(text)[:80]} for at, text in enumerate(SHORT[:20])]
        return {"resources": named}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}))
    return {} if method == "ping" else None


def main() -> None:
    for text in SHORT[:30]:
        print(of_json(text).replace("\n", " "), file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        error = {"code": -32601, "message": of_json(SHORT[1])}
        reply = {"result": result} if result is not None else {"error": error}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


main()
