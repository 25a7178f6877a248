"""A server whose tool must not be called twice: it writes down the id of each call in a file that others share."""

import json
import os
import sys
import time

from plain import Result, Server, text, tool


class Once(Server):
    """`once(id, seconds)`: writes the id down, and answers after so long with who it is."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.tools = [tool("once", id="string", seconds="number")]
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def tool_once(self, _id: object, arguments: dict[str, object]) -> Result:
        os.write(self._file, f"{arguments['id']}\n".encode())
        time.sleep(float(str(arguments["seconds"])))
        return text(json.dumps([arguments["id"], os.getpid()]))


if __name__ == "__main__":
    Once(sys.argv[1]).run()
