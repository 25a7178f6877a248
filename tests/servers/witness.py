"""A server whose calls say what else must hold of them: `witness.py JOURNAL`. It writes down each call, and when.

The id of a call begins with who makes it. `ask` asks for a word, `work` reports progress, `touch` announces that a
resource changed; `approved`, `counted` and `rated` do nothing but count, each under another rule of the bridge. `held`
has no answer before `release` is called.
"""

import json
import os
import sys
import time
from typing import Any, ClassVar

from plain import Result, Server, text, tool

NAMES = ("ask", "work", "approved", "counted", "rated", "held", "release")
RESOURCES = 10
FORM = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


class Witness(Server):
    """Writes `ID SECONDS` for each call, by the clock of the machine."""

    capabilities: ClassVar[Result] = {"tools": {}, "resources": {"subscribe": True}}

    def __init__(self, file: str) -> None:
        super().__init__()
        self.tools = [tool(name, id="string") for name in NAMES]
        self.tools.append(tool("touch", id="string", uri="string"))
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._asked: dict[str, tuple[object, str]] = {}
        self._subscribed = set[str]()
        self._held: list[tuple[object, str]] = []

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Result | None:
        arguments = params["arguments"]
        name = str(arguments["id"])
        os.write(self._file, f"{name} {time.monotonic()}\n".encode())
        if params["name"] == "ask":
            self._ask(id_, name)
            return None
        if params["name"] == "held":
            self._held.append((id_, name))
            return None
        if params["name"] == "release":
            held, self._held = self._held, []
            for one, of in held:
                self.answer(one, text(json.dumps([of, os.getpid()])))
        if params["name"] == "work":
            for number in range(3):
                token = (params.get("_meta") or {}).get("progressToken")
                self.notify("notifications/progress", progressToken=token, progress=number, message=f"{name} {number}")
                time.sleep(0.005)
        if params["name"] == "touch" and arguments["uri"] in self._subscribed:
            self.notify("notifications/resources/updated", uri=arguments["uri"])
        return text(json.dumps([name, os.getpid()]))

    def _ask(self, id_: object, name: str) -> None:
        question = f"question of {name}"
        self._asked[question] = id_, name
        params = {"message": name, "requestedSchema": FORM}
        self.send({"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params})

    def take(self, line: bytes) -> None:
        super().take(line)
        message = json.loads(line)
        if "method" not in message and message.get("id") in self._asked:
            id_, name = self._asked.pop(message["id"])
            word = message.get("result", {}).get("content", {}).get("word", "")
            self.answer(id_, text(json.dumps([name, os.getpid(), word])))

    def on_resources_list(self, _id: object, _params: object) -> Result:
        return {"resources": [{"uri": f"memo://witness/{at}", "name": f"w{at}"} for at in range(RESOURCES)]}

    def on_resources_subscribe(self, _id: object, params: dict[str, Any]) -> Result:
        self._subscribed.add(params["uri"])
        return {}

    def on_resources_unsubscribe(self, _id: object, params: dict[str, Any]) -> Result:
        self._subscribed.discard(params["uri"])
        return {}


if __name__ == "__main__":
    Witness(sys.argv[1]).run()
