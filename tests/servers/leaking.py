"""A server that tells the secrets which it was started with, and does what recordings must bear: it counts, it ends.

Standard library only.
"""

import base64
import json
import os
from typing import Any

from plain import Result, Server, text, tool

SECRET = os.environ.get("LEAKED", "nothing")


class Leaking(Server):
    """Tells everything."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.tools += [tool("leak"), tool("login", password="string"), tool("open", url="string"), tool("refuse")]
        self.tools += [tool("count"), tool("crash"), tool("number")]

    def tool_leak(self, _id: object, _arguments: dict[str, Any]) -> Result:
        told = [f"the key is {SECRET}", base64.b64encode(f"user:{SECRET}".encode()).decode(), json.dumps({"a": SECRET})]
        return {**text("\n".join(told)), "structuredContent": {"nested": [{SECRET: f"<{SECRET}>"}]}}

    def tool_login(self, _id: object, arguments: dict[str, Any]) -> Result:
        answer = {"access_token": "minted-by-login-77", "user": "ann", "tokens_left": 7, "author": "bob"}
        said = {**text(json.dumps(answer)), "structuredContent": answer}
        said["content"].append({"type": "text", "text": f"Use minted-by-login-77, not {arguments['password']}."})
        return said

    def tool_open(self, _id: object, arguments: dict[str, Any]) -> Result:
        return text(f"opened {arguments['url']} with Authorization: Bearer abcdefghijkl")

    def tool_refuse(self, id_: object, _arguments: dict[str, Any]) -> None:
        self.refuse(id_, -32000, f"{SECRET} was refused")

    def tool_count(self, _id: object, _arguments: dict[str, Any]) -> Result:
        self.count += 1
        return text(str(self.count))

    def tool_number(self, _id: object, _arguments: dict[str, Any]) -> Result:
        return {"content": [], "structuredContent": {"big": 12345678901234567890, "float": 1.50}}

    def tool_crash(self, _id: object, _arguments: dict[str, Any]) -> Result:
        os.write(2, b"it crashed\n")
        os._exit(3)


if __name__ == "__main__":
    Leaking().run()
