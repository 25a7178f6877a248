"""Commands that ask the daemon which runs: the same output as with servers of their own, without starting any
(issue 19).
"""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.cli.tools import call
from mcpbridge.protocol import meta
from support.harness import Finished, Place, eventually, python_server
from support.programs.daemon_process import daemon
from support.programs.terminal import on_terminal

SERVERS = {"one": python_server("plain"), "rich": python_server("rich")}
FAILS = json.dumps({"raw": '{"content":[{"type":"text","text":"no luck"}],"isError":true}'})
UNPRINTABLE = json.dumps({"raw": '{"content":[{"type":"text","text":"a\\u001b[2Jb\\u202ec"}]}'})

COMMANDS = [
    "list",
    "list --json",
    "list --all",
    "list --all --json",
    "list --server rich",
    "list --server rich --json",
    "list --server rich --resources",
    "list --server rihc",
    "list --resources --prompts",
    "list --query server:one",
    "list --query echo --server rich --json",
    "list --query ((",
    "search echo a text",
    "search echo --json --limit 2",
    "search echo --detail schemas --profile few",
    "search echo --profile fwe",
    "search echo --server one",
    "search qwertz yxcvb",
    "search qwertz yxcvb --json",
    "tokens",
    "tokens --json --tools 2",
    "tokens --server one",
    "call one/echo text=12",
    "call one__echo text=hi --raw",
    "call work steps=1",
    "call echo text=ambiguous",
    "call one/ecko",
    "call one/ecko --json {}",
    "call nope/x",
    "call nope",
    "call one/echo text",
    "call one/echo wrong=1 text=1",
    "call one/raw_arguments a=[1,null] c=yes d=1.50",
    "call recall handle=none",
    "call find_tools query=echo",
    f"call one/raw_result --json {FAILS.replace(' ', '')}",
    "call one/raw_result --json -",
    "call one/echo text=abc --transform result.length",
    "read memo://one",
    "read memo://one --json",
    "read nothing://here",
]


@pytest.fixture
def config(place: Place) -> Path:
    return place.config(SERVERS, profiles={"few": {"servers": ["rich"]}}, results={})


@asynccontextmanager
async def with_daemon(place: Place, config: Path) -> AsyncIterator[None]:
    """A daemon runs, and commands ask it."""
    async with daemon(place, config):
        place.env["MCPBRIDGE_STANDALONE"] = "0"
        yield
        place.env["MCPBRIDGE_STANDALONE"] = "1"


async def run(place: Place, config: Path, words: str, given: str = "") -> Finished:
    is_alone = place.environment()["MCPBRIDGE_STANDALONE"] == "1"  # what asks the daemon loads less than what forks
    process = await place.start(*words.split(" "), "--config", str(config), is_start_tested=not is_alone)
    async with asyncio.timeout(60):
        out, err = await process.communicate(given.encode())
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize("part", range(3))
async def test_a_command_prints_the_same_with_the_daemon_and_with_servers_of_its_own(
    place: Place, config: Path, part: int
) -> None:
    """A third of the commands at a time: all of them take minutes on a busy machine."""
    commands = COMMANDS[part::3]

    async def all_of_them() -> dict[str, Finished]:
        return {words: await run(place, config, words, '{"raw": "{\\"content\\": []}"}') for words in commands}

    alone = await all_of_them()
    async with with_daemon(place, config):
        asked = await all_of_them()
    differ = {words: (alone[words], asked[words]) for words in commands if alone[words] != asked[words]}
    assert not differ, "\n".join(f"{words}\n  {one}\n  {other}" for words, (one, other) in differ.items())
    assert {finished.code for finished in alone.values()} == {0, 2, 5}


async def test_no_server_is_started_for_a_command_while_the_daemon_runs(place: Place) -> None:
    starts = place.folder / "starts"
    words = ("-c", f'echo x >> {starts}; exec "$@"', "sh", SERVERS["one"]["command"], *SERVERS["one"]["args"])
    config = place.config({"one": {"command": "sh", "args": list(words)}})
    async with with_daemon(place, config):
        for command in ("list", "search echo", "tokens", "call one/echo text=a", "call echo text=a", "list --query x"):
            assert (await run(place, config, command)).code == 0
        assert starts.read_text() == "x\n"
        assert (await run(place, config, "call one/echo text=a --standalone")).out == "a\n"
        assert starts.read_text() == "x\nx\n"
    assert (await run(place, config, "list")).code == 0
    assert starts.read_text() == "x\nx\nx\n"


async def test_nothing_of_the_engine_is_loaded_for_a_command_that_asks_the_daemon(place: Place, config: Path) -> None:
    """The budget: 150 ms against a warm daemon. What is loaded decides it."""
    async with with_daemon(place, config):
        place.env["PYTHONPROFILEIMPORTTIME"] = "1"
        for words in ("list", "search echo", "tokens", "call one/echo text=a", "read memo://one"):
            finished = await run(place, config, words)
            assert finished.code == 0
            lines = [line for line in finished.err.splitlines() if "import time:" in line]
            imported = {line.rpartition("|")[2].strip() for line in lines}
            assert "click" in imported
            slow = {"asyncio", "anyio", "msgspec", "pydantic", "rich", "mcp", "uvicorn", "structlog", "sqlite3"}
            assert not imported & slow, words
            own = {name.split(".")[1] for name in imported if name.count(".") > 1 and name.startswith("mcpbridge.")}
            assert own <= {"app", "base"}, words
        place.env["PYTHONPROFILEIMPORTTIME"] = ""


async def _calls_under_way(place: Place) -> int:
    place.env["MCPBRIDGE_STANDALONE"] = "0"
    [bridge] = json.loads((await place.run("status", "--json")).out)["bridges"]
    return sum(server["running"] for server in bridge["servers"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_interrupted_command_cancels_its_call_at_the_daemon(
    place: Place, config: Path, number: signal.Signals, code: int
) -> None:
    async with with_daemon(place, config), place.started("call", "one/hold", "--config", str(config)) as command:
        await eventually(lambda: _calls_under_way(place), lambda running: running == 1)
        command.process.send_signal(number)
        async with asyncio.timeout(15):
            assert await command.process.wait() == code
        assert await eventually(lambda: _calls_under_way(place), lambda running: running == 0) == 0
        command.process._transport.close()  # pyright: ignore
        place.env["MCPBRIDGE_STANDALONE"] = "1"


async def test_a_call_that_needs_approval_says_in_a_pipe_how_to_approve_it(place: Place) -> None:
    config = place.config({"up": python_server("plain", permission="require_approval")})
    async with with_daemon(place, config):
        refused = await run(place, config, "call up/echo text=a")
        assert refused.code == 5
        found = re.search(r"mcpbridge approve (\w+)", refused.out)
        assert found, refused.out
        assert (await run(place, config, f"approve {found[1]}")).code == 0
        passed = await run(place, config, "call up/echo text=a")
        assert (passed.code, passed.out) == (0, "a\n")


@pytest.mark.parametrize(("typed", "code"), [("1\n", 0), ("3\n", 5), ("\n", 5)])
async def test_a_person_at_the_terminal_approves_a_call_of_the_daemon(place: Place, typed: str, code: int) -> None:
    config = place.config({"up": python_server("plain", permission="require_approval")})
    async with with_daemon(place, config):
        ended, shown = await on_terminal(place, typed, "call", "up/echo", "text=abc", "--config", str(config))
    assert ended == code, shown
    assert "1) Yes, this once" in shown
    assert ('"abc"' in shown, shown.endswith("abc\n")) == (True, code == 0)


@pytest.mark.parametrize("standalone", [[], ["--standalone"]])
async def test_a_server_that_asks_back_is_answered_at_the_terminal(place: Place, standalone: list[str]) -> None:
    config = place.config({"asking": python_server("asking", "legacy")})
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    asks: dict[str, Any] = {"method": "elicitation/create", "params": {"message": "Hi", "requestedSchema": schema}}
    steps = [{"send": {"jsonrpc": "2.0", "id": "age", **asks}}, {"await": ["age"]}]
    words = ["call", "asking/play", "--json", json.dumps({"steps": steps}), "--config", str(config), *standalone]
    async with with_daemon(place, config):
        code, shown = await on_terminal(place, "old\n42\n", *words)
    assert code == 0, shown
    assert "Type a whole number." in shown
    assert '"age":42' in shown.replace(" ", "")


def test_the_keys_of_a_call_are_those_of_the_protocol() -> None:
    assert (call.TRANSFORM, call.WHOLE, call.APPROVALS) == (meta.TRANSFORM, meta.WHOLE, meta.APPROVALS)
