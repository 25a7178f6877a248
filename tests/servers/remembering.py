"""A server that keeps what it is given in its memory: `remembering.py FILE [modern]`.

Its starts and calls are lines of the file. It speaks the legacy revisions, or 2026-07-28 alone.
"""

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

from modern import Modern
from plain import Result, Server, text, tool


class Remembering(Server):
    """One value, and who asks."""

    capabilities: ClassVar[Result] = {"tools": {"listChanged": True}, "logging": {}}

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.value = file, ""
        self.tools += [tool("remember", value="string"), tool("recall"), tool("report"), tool("news")]
        self.note("started")

    def note(self, what: str) -> None:
        """Write a line."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {what}\n")

    def on_initialize(self, id_: object, params: dict[str, Any]) -> Result:
        self.note("initialize")
        return super().on_initialize(id_, params)

    def tool_remember(self, id_: object, arguments: dict[str, Any]) -> Result:
        self.value = arguments["value"]
        self.note(f"remember {self.value}")
        return text(f"{os.getpid()}")

    def tool_recall(self, id_: object, arguments: dict[str, Any]) -> Result:
        self.note("recall")
        return text(f"{os.getpid()} {self.value}")

    def tool_news(self, id_: object, arguments: dict[str, Any]) -> Result:
        self.notify("notifications/tools/list_changed")
        return text("sent")

    def tool_report(self, id_: object, arguments: dict[str, Any]) -> Result:
        token = self.journal[-1]["params"].get("_meta", {}).get("progressToken")
        if token is not None:
            self.notify("notifications/progress", progressToken=token, progress=1, message=self.value)
        return text("reported")


class ModernRemembering(Remembering, Modern):
    """The same of the modern era, with listen streams."""

    def on_subscriptions_listen(self, id_: object, params: dict[str, Any]) -> None:
        self.note("listen")
        super().on_subscriptions_listen(id_, params)

    def on_notifications_cancelled(self, _id: object, params: dict[str, Any]) -> None:
        self.note(f"cancelled {params['requestId']}")


if __name__ == "__main__":
    (ModernRemembering if "modern" in sys.argv else Remembering)(Path(sys.argv[1])).run()
