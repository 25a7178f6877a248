"""A server whose results are as large as they are wanted, after some progress."""

from typing import Any

from plain import Result, Server, text, tool


class Large(Server):
    """One tool: `large`."""

    def __init__(self) -> None:
        super().__init__()
        self.tools += [tool("large", size="integer", steps="integer")]

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Result | None:
        if params["name"] != "large":
            return super().on_tools_call(id_, params)
        token = (params.get("_meta") or {}).get("progressToken")
        for step in range(1, params["arguments"]["steps"] + 1):
            if token is not None:
                self.notify("notifications/progress", progressToken=token, progress=step)
        return text("x" * params["arguments"]["size"])


if __name__ == "__main__":
    Large().run()
