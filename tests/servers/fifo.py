"""A server whose tool answers with what is written to a FIFO: a test decides when, without asking the bridge."""

from pathlib import Path

from plain import Result, Server, text, tool


class Fifo(Server):
    """Its `read` waits for a writer."""

    def __init__(self) -> None:
        super().__init__()
        self.tools.append(tool("read", path="string"))

    def tool_read(self, _id: object, arguments: dict[str, str]) -> Result:
        return text(Path(arguments["path"]).read_text())


if __name__ == "__main__":
    Fifo().run()
