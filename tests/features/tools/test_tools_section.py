"""Tools of `[tools]`, packs and specs through the front, beside those of servers, with a real client (issue 8)."""

import json
from pathlib import Path
from typing import Any

import anyio

from support.harness import Place, eventually, python_server
from support.upstreams.scripted_http import Ask, http_server, reply

MODULE = '''
import asyncio
from collections.abc import AsyncIterator


def greet(who: str, times: int = 1) -> str:
    """Greet somebody.

    Args:
        who: The one to greet.
        times: How often.
    """
    return " ".join([f"hello {who}"] * times)


async def count(to: int) -> AsyncIterator[dict]:
    """Count, and tell of each step."""
    for number in range(1, to + 1):
        yield {"progress": number, "total": to, "message": f"at {number}"}


class Adder:
    """Adds to a start."""

    def __init__(self, start: int = 0) -> None:
        self.start = start

    def execute(self, number: int) -> dict:
        return {"sum": self.start + number}

    def execute_command(self, name: str, data: dict) -> dict:
        self.start = data["start"]
        return {"start": self.start}
'''

DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{id}": {
            "get": {
                "operationId": "getPet",
                "summary": "A pet",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "responses": {
                    "200": {"description": "It", "content": {"application/json": {"schema": {"type": "object"}}}}
                },
            }
        }
    },
}


async def service(ask: Ask) -> bytes:
    if ask.path == "/openapi.json":
        return reply(DOCUMENT)
    if ask.path.startswith("/pets/"):
        return reply({"id": int(ask.path.rpartition("/")[2]), "name": "Rex"})
    return reply({"city": ask.path.rpartition("/")[2], "degrees": 21})


def write(folder: Path, url: str) -> dict[str, Any]:
    (folder / "mymod.py").write_text(MODULE)
    spec = {
        "tool_id": "weather",
        "tool_description": "The weather of a city",
        "tool_calling_config": {"protocol": "http", "endpoint": f"{url}/weather/{{city}}"},
    }
    (folder / "spec.json").write_text(json.dumps([spec]))
    return {
        "tools": {
            "greet": {"function": "mymod:greet"},
            "count": {"function": "mymod:count"},
            "add": {"executor_class": "mymod.Adder", "constructor_args": {"start": 10}},
            "upper": {"command": ["tr", "a-z", "A-Z"], "stdin": "{text}"},
            "pets": {"openapi": f"{url}/openapi.json"},
            "absent": {"openapi": "http://127.0.0.1:9/nothing.json"},
        },
        "spec": ["spec.json"],
    }


async def test_tools_of_every_kind_stand_beside_those_of_servers(place: Place) -> None:
    async with http_server(service) as server:
        sections = write(place.folder, server.url.removesuffix("/mcp"))
        async with place.bridge({"up": python_server("modern")}, **sections) as client:
            await client.initialize()

            async def names() -> set[str]:
                return {tool["name"] for tool in (await client.request("tools/list")).result["tools"]}

            wanted = {"greet", "count", "add", "upper", "weather", "pets__getPet"}
            await eventually(names, lambda found: wanted <= found and any(name.startswith("up__") for name in found))
            assert (await client.call("greet", who="ann", times=2)).text == "hello ann hello ann"
            assert (await client.call("add", number=5)).result["structuredContent"] == {"sum": 15}
            assert (await client.call("upper", text="quiet")).text == "QUIET"
            assert "21" in (await client.call("weather", city="Rome")).text
            assert (await client.call("pets__getPet", id=7)).result["structuredContent"] == {"id": 7, "name": "Rex"}
            wrong = await client.call("greet", times=2)
            assert wrong.failed
            assert "who" in wrong.text


async def test_progress_of_a_generator_reaches_the_client(place: Place) -> None:
    sections = write(place.folder, "http://127.0.0.1:9")
    async with place.bridge({}, tools={"count": sections["tools"]["count"]}) as client:
        await client.initialize()
        await client.tools_with("count")
        with anyio.fail_after(20):
            reply_ = await client.call("count", to=3, meta={"progressToken": "p"})
        assert not reply_.failed
        told = [one["params"] for one in client.arrived if one.get("method") == "notifications/progress"]
        assert [one["progress"] for one in told] == [1, 2, 3]
        assert told[-1]["message"] == "at 3"


async def test_a_tool_that_cannot_be_made_takes_no_other_down(place: Place) -> None:
    tools = {
        "gone": {"function": "no_such_module:f"},
        "silent": {"endpoint": "http://127.0.0.1:9/x", "call_timeout": "5s"},
        "fine": {"command": ["echo", "ok"], "sandbox": "off"},
    }
    async with place.bridge({}, tools=tools) as client:
        await client.initialize()
        await client.tools_with("silent")
        assert {"silent", "fine"} <= set(await client.tools_with("fine"))
        assert (await client.call("fine")).text.strip() == "ok"
        silent = await client.call("silent")
        assert silent.failed
        assert "tools/silent" in silent.text
