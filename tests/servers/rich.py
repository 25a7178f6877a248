"""A server with resources, templates, prompts, completion, logging and progress."""

from typing import Any, ClassVar

from plain import Result, Server, text, tool


class Rich(Server):
    """Everything that a legacy server can offer beside tools."""

    capabilities: ClassVar[Result] = {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
        "completions": {},
        "logging": {},
    }

    def __init__(self) -> None:
        super().__init__()
        self.tools += [tool("touch", uri="string"), tool("work", steps="integer"), tool("say", level="string")]
        self.subscribed: set[str] = set()

    def on_resources_list(self, _id: object, _params: dict[str, Any]) -> Result:
        return {"resources": [{"uri": "memo://one", "name": "one"}, {"uri": "memo://two", "name": "two"}]}

    def on_resources_templates_list(self, _id: object, _params: dict[str, Any]) -> Result:
        return {"resourceTemplates": [{"uriTemplate": "memo://page/{number}", "name": "page"}]}

    def on_resources_read(self, id_: object, params: dict[str, Any]) -> Result | None:
        uri = params["uri"]
        if not uri.startswith("memo://"):
            self.refuse(id_, -32002, f"Resource not found: {uri}")
            return None
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"content of {uri}"}]}

    def on_resources_subscribe(self, _id: object, params: dict[str, Any]) -> Result:
        self.subscribed.add(params["uri"])
        return {}

    def on_resources_unsubscribe(self, _id: object, params: dict[str, Any]) -> Result:
        self.subscribed.discard(params["uri"])
        return {}

    def on_prompts_list(self, _id: object, _params: dict[str, Any]) -> Result:
        return {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]}

    def on_prompts_get(self, _id: object, params: dict[str, Any]) -> Result:
        words = f"Greet {params['arguments']['who']}."
        return {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]}

    def on_completion_complete(self, _id: object, params: dict[str, Any]) -> Result:
        start = params["argument"]["value"]
        return {"completion": {"values": [f"{start}1", f"{start}2"], "total": 2, "hasMore": False}}

    def on_logging_setlevel(self, _id: object, _params: dict[str, Any]) -> Result:
        return {}

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Result | None:
        token = (params.get("_meta") or {}).get("progressToken")
        if params["name"] == "work":
            steps = params["arguments"]["steps"]
            for step in range(1, steps + 1):
                if token is not None:
                    self.notify("notifications/progress", progressToken=token, progress=step, total=steps)
            return text("done" if token is not None else "done, unseen")
        return super().on_tools_call(id_, params)

    def tool_touch(self, _id: object, arguments: dict[str, Any]) -> Result:
        """Tells those who subscribed that a resource changed."""
        if arguments["uri"] in self.subscribed:
            self.notify("notifications/resources/updated", uri=arguments["uri"])
        return text(str(sorted(self.subscribed)))

    def tool_say(self, _id: object, arguments: dict[str, Any]) -> Result:
        self.notify("notifications/message", level=arguments["level"], logger="rich", data="said")
        return text("said")


if __name__ == "__main__":
    Rich().run()
