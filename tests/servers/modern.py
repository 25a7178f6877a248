"""A server of the modern era alone (2026-07-28): no handshake, an envelope in every request, listen streams."""

from typing import Any

from plain import Result, Server, text, tool

REVISION = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"


class Modern(Server):
    """Answers `server/discover`, the tools and `subscriptions/listen`; refuses `initialize`."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [tool("echo", text="string"), tool("journal"), tool("grow"), tool("hold"), tool("release")]
        self.streams: list[Any] = []

    def answer(self, id_: object, result: Result) -> None:
        info = {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "1"}}
        super().answer(id_, {"resultType": "complete", "_meta": info, **result})

    def on_initialize(self, id_: object, _params: dict[str, Any]) -> None:
        data = {"supported": [REVISION], "requested": "an older one"}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
        self.send({"jsonrpc": "2.0", "id": id_, "error": error})

    def on_server_discover(self, _id: object, _params: dict[str, Any]) -> Result:
        capabilities = {"tools": {"listChanged": True}}
        return {"supportedVersions": [REVISION], "capabilities": capabilities, "ttlMs": 1000, "cacheScope": "private"}

    def on_tools_list(self, _id: object, _params: dict[str, Any]) -> Result:
        return {"tools": self.tools, "ttlMs": 60_000, "cacheScope": "public"}

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Result | None:
        if (params.get("_meta") or {}).get(VERSION_KEY) != REVISION:
            self.refuse(id_, -32602, "the envelope is missing")
            return None
        return super().on_tools_call(id_, params)

    def on_subscriptions_listen(self, id_: object, params: dict[str, Any]) -> None:
        self.streams.append(id_)
        self.notify_listener(id_, "notifications/subscriptions/acknowledged", notifications=params["notifications"])

    def notify_listener(self, id_: object, method: str, **params: object) -> None:
        """Send on one listen stream."""
        self.notify(method, _meta={"io.modelcontextprotocol/subscriptionId": id_}, **params)

    def tool_grow(self, _id: object, _arguments: dict[str, Any]) -> Result:
        self.tools.append(tool(f"grown_{len(self.tools)}"))
        for stream in self.streams:
            self.notify_listener(stream, "notifications/tools/list_changed")
        return text(str(len(self.streams)))


if __name__ == "__main__":
    Modern().run()
