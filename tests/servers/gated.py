"""A server whose tool `pass_gate` answers once somebody has opened a named pipe for writing, and closed it again."""

import threading
from pathlib import Path
from typing import Any

from plain import Server, text, tool


class Gated(Server):
    """Waits in threads, so that other messages are handled meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [tool("echo", text="string"), tool("pass_gate", gate="string")]

    def tool_pass_gate(self, id_: object, arguments: dict[str, Any]) -> None:
        def wait() -> None:
            Path(arguments["gate"]).read_bytes()
            self.answer(id_, text("passed"))

        threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    Gated().run()
