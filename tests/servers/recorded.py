"""A server that answers with recorded texts, byte for byte, and writes down the lines that it was sent.

    recorded.py FRAMES JOURNAL legacy|modern

FRAMES is a file like `features/protocol/recorded/frames.txt`; `number` in the `_meta` says which exchange is meant.
"""

import json
import sys
from pathlib import Path
from typing import Any

from plain import Result, Server, text, tool
from recording import Exchange, exchanges

REVISION = "2026-07-28"


class Recorded(Server):
    """Knows the recording, of its own era."""

    def __init__(self, frames: str, journal: str, era: str) -> None:
        super().__init__()
        self.exchanges = exchanges(Path(frames).read_text("utf-8"))
        self.journal_file = Path(journal)
        self.is_modern = era == "modern"
        self.tools = [{**tool("gaze"), "cost": {"amount": 0.5, "per": None}}, tool("stray"), tool("result_type")]
        self.capabilities = {
            "tools": {},
            "prompts": {},
            "resources": {},
            "completions": {},
            "experimental": {"later": {}},
        }  # type: ignore[misc]
        self.asking: dict[Any, tuple[Any, Exchange]] = {}

    def take(self, line: bytes) -> None:
        with self.journal_file.open("ab") as journal:
            journal.write(line)
        message = json.loads(line)
        if "method" not in message:
            if message["id"] in self.asking:
                id_, exchange = self.asking.pop(message["id"])
                self.write_result(id_, exchange.result[1])
            return
        number = ((message.get("params") or {}).get("_meta") or {}).get("number")
        if number is None or "id" not in message:
            super().take(line)
            return
        exchange = self.exchanges[number]
        if not exchange.question[0] or "inputResponses" in message["params"]:
            self.write_result(message["id"], exchange.result[1])
        elif self.is_modern:
            method, params = exchange.question
            question = f'{{"method":"{method}","params":{params}}}'
            asked = f'"inputRequests":{{"one":{question}}},"requestState":"state"'
            self.write_result(message["id"], f"{{{asked}}}", kind="input_required")
        else:
            method, params = exchange.question
            self.asking[f"question-{number}"] = (message["id"], exchange)
            head = f'{{"jsonrpc":"2.0","id":"question-{number}","method":"{method}"'
            self.write(f'{head},"params":{params}}}\n'.encode())

    def write_result(self, id_: Any, result: str, kind: str = "complete") -> None:
        """Answer with this very text; in the modern era with the kind of result put before it."""
        if self.is_modern:
            result = f'{{"resultType":"{kind}",{result[1:]}'
        self.write(f'{{"jsonrpc":"2.0","id":{json.dumps(id_)},"result":{result}}}\n'.encode())

    def answer(self, id_: object, result: Result) -> None:
        if self.is_modern:
            result = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private", **result}
        super().answer(id_, result)

    def on_initialize(self, id_: object, params: dict[str, Any]) -> Result | None:
        if not self.is_modern:
            return super().on_initialize(id_, params)
        data = {"supported": [REVISION], "requested": params["protocolVersion"]}
        self.send({"jsonrpc": "2.0", "id": id_, "error": {"code": -32022, "message": "too old", "data": data}})
        return None

    def on_server_discover(self, id_: object, _params: dict[str, Any]) -> Result | None:
        if self.is_modern:
            return {"supportedVersions": [REVISION], "capabilities": self.capabilities}
        self.refuse(id_, -32601, "Method not found: server/discover")
        return None

    def on_prompts_list(self, _id: object, _params: dict[str, Any]) -> Result:
        return {"prompts": [{"name": "gaze", "arguments": [{"name": "who", "hint": {"of": None}}], "mood": "dry"}]}

    def on_resources_list(self, _id: object, _params: dict[str, Any]) -> Result:
        return {"resources": [{"uri": "memo://one", "name": "one", "versions": [1.0, None]}]}

    def on_resources_templates_list(self, _id: object, _params: dict[str, Any]) -> Result:
        return {"resourceTemplates": []}

    def tool_stray(self, _id: object, _arguments: dict[str, Any]) -> Result:
        """Says and asks meanwhile what nobody knows."""
        self.notify("notifications/future", much={"n": 1})
        if not self.is_modern:
            self.send({"jsonrpc": "2.0", "id": "stray", "method": "future/question", "params": {"n": 1}})
        return text("done")

    def tool_result_type(self, id_: object, _arguments: dict[str, Any]) -> None:
        """Answers with a kind of result from the future."""
        self.write_result(id_, '{"content":[]}', kind="postponed")


if __name__ == "__main__":
    Recorded(*sys.argv[1:]).run()
