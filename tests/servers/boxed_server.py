"""An MCP server of the standard library alone, for containers: its tool `look` tells what it sees from in there.

The tool `fill` takes memory until it is ended; `deaf` makes it ignore the end of its input and SIGTERM.
"""

# It runs with as little of Python as there is in the image:
# ruff: noqa: PTH109, PTH112, PTH123, PTH208

import json
import os
import signal
import sys
import time

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("look", "fill", "deaf", "write")]


def look() -> str:
    mounts = {place: sorted(os.listdir(place)) for place in ("/data", "/more") if os.path.isdir(place)}
    seen = {"env": dict(os.environ), "cwd": os.getcwd(), "args": sys.argv[1:], "mounts": mounts, "uid": os.getuid()}
    return json.dumps({**seen, "net": sorted(os.listdir("/sys/class/net"))})


def call(name: str) -> str:
    if name == "fill":
        held = bytearray()
        while True:
            held += b"x" * (1 << 20)
    if name == "write":
        with open("/data/written", "w") as file:
            file.write("x")
    if name == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return look()


def main() -> None:
    is_deaf = False
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            continue
        answer: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
        if method == "initialize":
            answer["result"] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "boxed", "version": "1"},
            }
        elif method == "tools/list":
            answer["result"] = {"tools": TOOLS}
        elif method == "tools/call":
            is_deaf = is_deaf or params["name"] == "deaf"
            try:
                answer["result"] = {"content": [{"type": "text", "text": call(params["name"])}]}
            except OSError as error:
                answer["result"] = {"content": [{"type": "text", "text": str(error)}], "isError": True}
        elif method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": -32601, "message": "no such method"}
        print(json.dumps(answer), flush=True)
    while is_deaf:
        time.sleep(3600)


if __name__ == "__main__":
    main()
