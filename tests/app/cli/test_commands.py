"""The commands against real servers: what they print, and their exit codes (issue 2, Config and commands)."""

import asyncio
import hashlib
import json
import os
import pty
import signal
import sys
from pathlib import Path

import httpx2
import pytest

from mcpbridge.config.load import read
from support.harness import Place, python_server

SERVERS = {"one": python_server("plain"), "rich": python_server("rich")}
ABSENT = {"command": "no-such-program-here"}


@pytest.fixture
def config(place: Place) -> str:
    return str(place.config(SERVERS))


async def test_list_shows_the_merged_tools(place: Place, config: str) -> None:
    finished = await place.run("list", "--config", config)
    assert finished.code == 0
    names = [line.split()[0] for line in finished.out.splitlines()]
    assert {"one__echo", "rich__echo", "rich__work"} <= set(names)
    assert names == sorted(names)


async def test_list_as_json_is_one_document_with_whole_definitions(place: Place, config: str) -> None:
    finished = await place.run("list", "--config", config, "--all", "--json")
    document = json.loads(finished.out)
    assert list(document) == ["format", "tools", "resources", "resourceTemplates", "prompts"]
    [echo] = [tool for tool in document["tools"] if tool["name"] == "one__echo"]
    assert echo["inputSchema"]["properties"]["text"] == {"type": "string"}
    assert [prompt["name"] for prompt in document["prompts"]] == ["rich__greet"]


async def test_list_can_show_one_server(place: Place, config: str) -> None:
    finished = await place.run("list", "--config", config, "--server", "rich", "--resources")
    assert "memo://one" in finished.out
    assert "memo://page/{number}" in finished.out
    finished = await place.run("list", "--config", config, "--server", "rihc")
    assert finished.code == 2
    assert "Did you mean 'rich'?" in finished.err


async def test_servers_of_a_project_are_started_for_the_one_that_the_command_runs_in(place: Place) -> None:
    config = str(place.config({"one": {**python_server("plain"), "cwd": "${PROJECT_ROOT}"}}))
    finished = await place.run("list", "--config", config)
    assert "no client has named one yet" in finished.err, "it runs in the home directory"
    project = place.folder / "project"
    project.mkdir()
    place.env["MCPBRIDGE_PROJECT"] = str(project)
    finished = await place.run("call", "one/echo", "text=hi", "--config", config)
    assert (finished.code, finished.out.strip()) == (0, "hi")
    assert (await place.run("check", "--config", config)).code == 0


async def test_list_tells_which_servers_are_missing(place: Place) -> None:
    finished = await place.run("list", "--config", str(place.config({**SERVERS, "gone": ABSENT})))
    assert finished.code == 0
    assert "one__echo" in finished.out
    assert "gone is missing" in finished.err
    assert "no-such-program-here" in finished.err


async def test_without_any_server_the_exit_code_is_4(place: Place) -> None:
    config = str(place.config({"gone": ABSENT}))
    for command in (["list"], ["check"]):
        assert (await place.run(*command, "--config", config)).code == 4


@pytest.mark.parametrize("name", ["one__echo", "one/echo", "one.echo"])
async def test_call_prints_the_result(place: Place, config: str, name: str) -> None:
    finished = await place.run("call", name, "text=12", "--config", config)
    assert (finished.code, finished.out) == (0, "12\n")  # text, because the schema wants text


async def test_call_takes_arguments_as_json_too(place: Place, config: str) -> None:
    finished = await place.run("call", "one/raw_arguments", "--json", '{"a": [1, null]}', "--config", config)
    assert json.loads(finished.out) == {"a": [1, None]}
    finished = await place.run("call", "one/raw_arguments", 'a=[1, "b"]', "c=yes", "d=1.50", "--config", config)
    assert json.loads(finished.out) == {"a": [1, "b"], "c": "yes", "d": 1.5}


async def test_call_can_print_the_whole_result(place: Place, config: str) -> None:
    finished = await place.run("call", "one/echo", "text=hi", "--raw", "--config", config)
    assert json.loads(finished.out)["content"] == [{"type": "text", "text": "hi"}]


async def test_a_bare_name_is_enough_if_only_one_server_has_it(place: Place, config: str) -> None:
    assert (await place.run("call", "work", "steps=1", "--config", config)).out.startswith("done")
    finished = await place.run("call", "echo", "text=x", "--config", config)
    assert finished.code == 5
    assert "one__echo, rich__echo" in finished.err


async def test_an_unknown_tool_is_5_and_names_the_nearest(place: Place, config: str) -> None:
    finished = await place.run("call", "one/ecko", "--config", config)
    assert (finished.code, finished.out) == (5, "")
    assert "one__echo" in finished.err
    as_json = await place.run("call", "one/ecko", "--json", "{}", "--config", config)
    assert json.loads(as_json.err)["error"]["code"] == 5


async def test_an_error_of_the_tool_is_5_and_is_printed(place: Place, config: str) -> None:
    failed = json.dumps({"raw": '{"content":[{"type":"text","text":"no luck"}],"isError":true}'})
    finished = await place.run("call", "one/raw_result", "--json", failed, "--config", config)
    assert (finished.code, finished.out) == (5, "no luck\n")


async def test_a_call_without_an_answer_is_7(place: Place) -> None:
    config = str(place.config({"one": python_server("plain", call_timeout=0.3)}))
    finished = await place.run("call", "one/hold", "--config", config)
    assert finished.code == 7
    assert "no answer within 0.3 s" in finished.out


async def test_a_call_to_a_server_that_cannot_be_reached_is_4(place: Place) -> None:
    finished = await place.run("call", "gone/x", "--config", str(place.config({**SERVERS, "gone": ABSENT})))
    assert finished.code == 4
    assert "no-such-program-here" in finished.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["one/echo", "text"], "expected key=value, found 'text'"),
        (["one/echo", "text=a", "text=b"], "is given twice"),
        (["one/echo", "--json", "{"], "not valid JSON"),
        (["one/echo", "--json", "[]"], "expected a JSON object"),
        (["one/echo", "a=b", "--json", "{}"], "not both"),
        ([], "Missing argument"),
    ],
)
async def test_wrong_arguments_are_2(place: Place, config: str, words: list[str], expected: str) -> None:
    finished = await place.run("call", *words, "--config", config)
    assert finished.code == 2
    assert expected in finished.err


async def test_read_prints_a_resource(place: Place, config: str) -> None:
    assert (await place.run("read", "memo://one", "--config", config)).out == "content of memo://one\n"
    finished = await place.run("read", "memo://one", "--json", "--config", config)
    assert json.loads(finished.out)["contents"][0]["uri"] == "memo://one"
    finished = await place.run("read", "nothing://here", "--config", config)
    assert finished.code == 5


async def test_check_tells_of_every_server_on_one_line(place: Place) -> None:
    off = python_server("plain", disabled=True)
    finished = await place.run("check", "--config", str(place.config({**SERVERS, "gone": ABSENT, "off": off})))
    assert finished.code == 4
    titles, *rows = finished.out.splitlines()
    assert titles.split() == ["Result", "Server", "Transport", "Protocol", "Offers"]
    lines = {line.split()[1]: line for line in rows}
    assert set(lines) == {"one", "rich", "gone"}
    assert lines["one"].startswith("ok ")
    assert "6 tools" in lines["one"]
    assert lines["gone"].startswith("FAILED")
    assert "no-such-program-here" in lines["gone"]


async def test_check_as_json(place: Place, config: str) -> None:
    finished = await place.run("check", "--json", "--config", config)
    document = json.loads(finished.out)
    assert (finished.code, document["ok"], document["config"]) == (0, True, config)
    assert [server["name"] for server in document["servers"]] == ["one", "rich"]


async def test_status_shows_every_bridge_that_runs(place: Place, config: str) -> None:
    assert (await place.run("status")).code == 4
    async with place.bridge(SERVERS) as first, place.http_bridge(SERVERS) as second:
        await first.initialize()
        await second.initialize()
        finished = await place.run("status")
        document = json.loads((await place.run("status", "--json")).out)
    assert finished.code == 0
    assert f"process {first.command.pid}, stdio" in finished.out
    assert second.url in finished.out
    assert {bridge["front"] for bridge in document["bridges"]} == {"stdio", second.url}
    assert (await place.run("status")).code == 4


async def test_an_mcp_servers_json_works_everywhere(place: Place) -> None:
    path = place.folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"one": {**SERVERS["one"], "type": "stdio", "sparkle": 1}}}))
    finished = await place.run("call", "one/echo", "text=hi", "--config", str(path))
    assert finished.out == "hi\n"
    assert "'sparkle' is not known here" in finished.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)])
@pytest.mark.parametrize("front", [[], ["--http", "127.0.0.1:0"]])
async def test_serve_ends_in_order_on_a_signal(
    place: Place, config: str, front: list[str], number: signal.Signals, code: int
) -> None:
    async with place.started("serve", "--config", config, *front) as command:
        await command.logged("upstream ready")
        command.process.send_signal(number)
        async with asyncio.timeout(15):
            assert await command.process.wait() == code
    assert place.survivors() == {}


async def test_serve_ends_when_the_client_closes_its_end(place: Place, config: str) -> None:
    finished = await place.run("serve", "--config", config)
    assert (finished.code, finished.out) == (0, "")


async def test_an_interrupted_command_is_130_and_leaves_nothing(place: Place) -> None:
    config = str(place.config({"one": python_server("plain")}))
    async with place.started("call", "one/hold", "--config", config) as command:
        async with asyncio.timeout(15):
            while len(place.survivors()) < 2:  # the bridge and the server
                await asyncio.sleep(0.02)
        command.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(15):
            assert await command.process.wait() == 130
    assert place.survivors() == {}


async def test_a_stray_print_of_a_library_cannot_reach_the_client(place: Place, config: str) -> None:
    """Standard output belongs to the protocol: Python's, C's and those of child processes."""
    (place.folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Stray:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'mcpbridge.library.bridge':\n"
        "            import os\n"
        "            print('stray print', flush=True); os.write(1, b'stray write\\n'); os.system('echo stray child')\n"
        "sys.meta_path.insert(0, Stray())\n"
    )
    place.env["PYTHONPATH"] = os.pathsep.join([str(place.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    finished = await place.run("serve", "--config", config)
    assert finished.out == ""
    for kind in ("print", "write", "child"):
        assert f"stray {kind}" in finished.err


async def test_a_terminal_gets_a_table_and_no_control_characters(place: Place) -> None:
    config = str(place.config({"one": python_server("plain")}))
    raw = json.dumps({"raw": '{"content":[{"type":"text","text":"a\\u001b[2Jb\\u202ec"}]}'})
    shown = await on_terminal(place, "call", "one/raw_result", "--json", raw, "--config", config)
    assert "a�[2Jb�c" in shown
    shown = await on_terminal(place, "list", "--config", config)
    assert "Tools" in shown
    assert "one__echo" in shown


async def test_a_narrow_terminal_cuts_no_names_and_no_reasons(place: Place) -> None:
    config = str(place.config({"a-rather-long-name": python_server("plain"), "gone": ABSENT}))
    shown = await on_terminal(place, "check", "--config", config, columns=60)
    assert "FAILED  gone" in shown
    assert "command not found: no-such-program-here" in " ".join(shown.split())
    shown = await on_terminal(place, "list", "--config", config, columns=40)
    assert "a-rather-long-name__raw_arguments" in shown


async def test_an_unknown_command_names_the_nearest_and_options_come_after_it(place: Place) -> None:
    finished = await place.run("sevre")
    assert finished.code == 2
    assert "Did you mean 'serve'?" in finished.err
    finished = await place.run("--config", "x", "list")
    assert finished.code == 2
    assert "come after it" in finished.err


async def on_terminal(place: Place, *args: str, columns: int = 100) -> str:
    """What a command shows on a terminal without colours."""
    ours, its = pty.openpty()
    place.env |= {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": str(columns)}
    process = await place.start(*args, terminal=its)
    os.close(its)
    shown = bytearray()
    try:
        async with asyncio.timeout(30):
            while piece := await asyncio.to_thread(_read, ours):
                shown += piece
            await process.wait()
    finally:
        os.close(ours)
    return shown.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # what Linux says when the other side of a terminal is closed
        return b""


async def test_a_reader_that_has_seen_enough_is_no_error(place: Place) -> None:
    """`mcpbridge list | head`"""
    config = str(place.config(SERVERS))
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcpbridge", "list", "--config", config),
        stdout=writer,
        stderr=asyncio.subprocess.PIPE,
        env=place.environment(),
    )
    os.close(writer)
    async with asyncio.timeout(30):
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


async def test_a_new_token_comes_with_what_the_configuration_needs(place: Place) -> None:
    made = json.loads((await place.run("token", "new", "ada", "--json")).out)
    assert made["sha256"] == hashlib.sha256(made["token"].encode()).hexdigest()
    shown = (await place.run("token", "new", 'a "b"')).out
    token, _, section = shown.partition("\n")
    path = place.folder / "servers.toml"
    path.write_text(section)
    [entry] = read(path, {}).settings.http.tokens
    assert (entry.name, entry.sha256) == ('a "b"', hashlib.sha256(token.encode()).hexdigest())


async def test_the_token_of_the_environment_opens_the_door_and_no_upstream_sees_it(place: Place) -> None:
    place.env["THE_TOKEN"] = "a-token-of-the-test"
    script = "import os, sys; print('seen' if 'THE_TOKEN' in os.environ else 'unseen', file=sys.stderr); sys.exit(1)"
    curious = {"command": sys.executable, "args": ["-c", script], "inherit_env": True}
    config = str(place.config({"curious": curious}))
    address = ["--http", "127.0.0.1:0", "--token-env"]
    async with place.started("serve", "--config", config, *address, "THE_TOKEN") as command:
        found = await command.logged(r"http://127\.0\.0\.1:[1-9]\d*")
        await command.logged("unseen")
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            assert (await client.get(f"{found[0]}/readyz")).status_code == 401
            header = {"Authorization": "Bearer a-token-of-the-test"}
            assert (await client.get(f"{found[0]}/readyz", headers=header)).status_code != 401
    finished = await place.run("serve", "--config", config, *address, "NOT_SET")
    assert finished.code == 2
    assert "NOT_SET is missing or empty" in finished.err


async def test_options_of_http_mean_nothing_on_stdio(place: Place, config: str) -> None:
    for option in (["--no-auth"], ["--token-env", "X"]):
        finished = await place.run("serve", "--config", config, *option)
        assert finished.code == 2
        assert "only means something with --http" in finished.err


async def test_the_version_imports_nothing_that_takes_time(tmp_path: Path) -> None:
    """Under 100 ms (issue 2): no package beside the standard library is loaded for it."""
    script = (
        "import sys; from mcpbridge.app.cli.main import main; code = main(['--version']);"
        "slow = {'click', 'rich', 'pydantic', 'anyio', 'asyncio', 'msgspec', 'structlog', 'argparse'};"
        "heavy = slow & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert out.startswith(b"mcpbridge 0.")


async def test_a_bridge_on_stdio_loads_only_what_it_needs(place: Place, config: str) -> None:
    """A client waits for `serve`: the other commands, the SDK and the HTTP server are for others."""
    place.env["PYTHONPROFILEIMPORTTIME"] = "1"
    finished = await place.run("serve", "--config", config)
    imported = {line.rpartition("|")[2].strip() for line in finished.err.splitlines() if "import time:" in line}
    assert "mcpbridge.library.bridge" in imported
    assert not imported & {
        "click",
        "mcp",
        "uvicorn",
        "starlette",
        "platformdirs",
        "structlog",
        "rich",
        "importlib.metadata",
    }


async def test_call_prints_large_results_whole_unless_less_is_wanted(place: Place) -> None:
    config = str(place.config({"one": python_server("plain")}, results={}))
    text = "a word and another " * 300
    whole = await place.run("call", "one/echo", f"text={text}", "--config", config)
    fitted = await place.run("call", "one/echo", f"text={text}", "--fit", "--config", config)
    script = await place.run("call", "one/echo", f"text={text}", "--transform", "result.length", "--config", config)
    suffix = await place.run("call", "one/echo | transform: result.length", f"text={text}", "--config", config)
    assert whole.out == f"{text}\n"
    assert fitted.out.startswith("[mcpbridge ")
    assert len(fitted.out) <= 2001
    assert script.out.splitlines()[0] == suffix.out.splitlines()[0] == str(len(text))
