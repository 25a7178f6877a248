"""A plain server whose tools end the process instead of answering, a few times; and one that shows that it lives.

Each tool has a file in which its calls are counted over all lives of the server.
"""

import os
import time
from pathlib import Path
from typing import Any

from plain import Result, Server, text, tool


class Flaky(Server):
    """See above."""

    def __init__(self) -> None:
        super().__init__()
        read = {"annotations": {"readOnlyHint": True}}
        self.tools += [
            {**tool("look", file="string", crashes="integer"), **read},
            tool("change", file="string", crashes="integer"),
            tool("beat", beats="integer", pause="number"),
        ]
        self.token: Any = None

    def on_tools_call(self, id_: object, params: dict[str, Any]) -> Result | None:
        self.token = (params.get("_meta") or {}).get("progressToken")
        return super().on_tools_call(id_, params)

    def tool_look(self, _id: object, arguments: dict[str, Any]) -> Result:
        """Reads something; ends the process the first so many times."""
        return self._count(arguments)

    def tool_change(self, _id: object, arguments: dict[str, Any]) -> Result:
        """Changes something; ends the process the first so many times, after it did."""
        return self._count(arguments)

    def tool_beat(self, _id: object, arguments: dict[str, Any]) -> Result:
        """Progress every so many seconds, so many times."""
        for beat in range(arguments["beats"]):
            time.sleep(arguments["pause"])
            if self.token is not None:
                self.notify("notifications/progress", progressToken=self.token, progress=beat)
        return text("done")

    def _count(self, arguments: dict[str, Any]) -> Result:
        with Path(arguments["file"]).open("a") as file:
            file.write("call\n")
        count = len(Path(arguments["file"]).read_text().split())
        if count <= arguments["crashes"]:
            os._exit(3)
        return text(f"call {count}")


if __name__ == "__main__":
    Flaky().run()
