"""Two bridges of a fleet behind Sentinels, while the master dies: no call is made twice, and all heals (issue 24)."""

import json
import sys
import threading
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import cast

import httpx2
import pytest

from support.fleet_clients import HEADERS, Client, message, read
from support.redis_groups import Sentinels
from support.redis_server import Server
from support.replicas import Fleet, fleet, needs_fleet, until

pytestmark = needs_fleet

SERVER = """
import json, sys
ABOUT = {"name": "w", "version": "1"}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    name = asked["method"]
    if name == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": ABOUT}
    elif name == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        result = {"tools": [{"name": "write", "description": "Not idempotent.", "inputSchema": schema}]}
    elif name == "tools/call":
        with open(sys.argv[1], "a") as file:
            file.write(asked["params"]["arguments"]["text"] + "\\n")
        result = {"content": [{"type": "text", "text": "written"}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture
def group(tmp_path: Path) -> Generator[Sentinels]:
    found = Sentinels(tmp_path / "redis")
    yield found
    found.end()


def write(http: httpx2.Client, bridges: Fleet, client: Client, text: str) -> bool:
    """By way of the balancer. False: it was not sent, or its outcome is unknown."""
    body = message("tools/call", 2, name="w__write", arguments={"text": text})
    answer = http.post(bridges.url, json=body, headers={**HEADERS, "mcp-session-id": client.session})
    if answer.status_code in (502, 503):
        return False
    assert answer.status_code == 200, answer.text
    found = read(answer)
    return "result" in found and not found["result"].get("isError")


def test_no_call_is_made_twice_over_a_failover_and_sessions_move_again_after_it(
    tmp_path: Path, group: Sentinels
) -> None:
    script, written = tmp_path / "server.py", tmp_path / "written.txt"
    script.write_text(SERVER, "utf-8")
    written.touch()
    servers = f'[servers.w]\ncommand = "{sys.executable}"\nargs = {json.dumps([str(script), str(written)])}\n'
    made, numbers = list[str](), count()
    is_over = threading.Event()
    redis = cast(Server, group)  # of which the bridges need no more than the URL
    with fleet(tmp_path, redis, size=2, servers=servers) as bridges:

        def work(number: int) -> None:
            with httpx2.Client(trust_env=False, timeout=60) as http:
                client = Client(http).begin(bridges.replicas[number % 2])
                while not is_over.is_set():
                    text = f"{number}-{next(numbers)}"
                    if write(http, bridges, client, text):
                        made.append(text)
                # And now that all is well again, so are calls of the same session.
                until(lambda: write(http, bridges, client, f"{number}-again-{next(numbers)}"), "it heals")

        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(work, number) for number in range(4)]
            until(lambda: len(made) > 20, "calls are made")
            group.fail_over()
            known = len(made)
            until(lambda: len(made) > known + 20, "calls are made after the failover")
            is_over.set()
            for one in working:
                one.result(120)
        counted = Counter(written.read_text("utf-8").split())
        assert max(counted.values()) == 1, "each call once"
        assert all(counted[text] for text in made)
        with httpx2.Client(trust_env=False, timeout=60) as http:  # the records are those of the new master
            client = Client(http).begin(bridges.replicas[0])
            # A server that did not answer in time then is asked again later: until then a session ends with its bridge.
            record = f"*:s:{sha256(client.session.encode()).hexdigest()}"
            until(lambda: bool(group.master.cli("--scan", "--pattern", record)), "it is written down")
            bridges.replicas[0].kill()
            until(
                lambda: write(http, bridges, client, f"moved-{next(numbers)}"), "the other one takes the session over"
            )
