"""What `mcpbridge call` starts for a tool: no more than the tool needs (issue 18)."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.admin.tool_owner import owner_of
from mcpbridge.app.cli.failures import CommandFailed
from mcpbridge.config.load import read
from support.harness import Place, python_server
from support.programs.daemon_process import daemon

TEXT = """
packs = ["more.pack:pack"]
builtin.enable = ["http-get"]
[servers.a]
command = "x"
[servers.a-b]
command = "x"
[servers.files]
command = "x"
[tools.weather]
endpoint = "https://x.invalid/{city}"
[tools.lint]
command = ["ruff"]
[tools.shop]
openapi = "https://x.invalid/openapi.json"
[tools.report]
function = "own:report"
[tools.helper]
agent = "own:agent"
"""


@pytest.mark.parametrize(
    ("name", "servers", "is_own"),
    [
        ("recall", [], True),
        ("mcpbridge/recall", [], True),
        ("mcpbridge__recall", [], True),
        ("mcpbridge.recall", [], True),
        ("find_tools", None, False),
        ("mcpbridge/call_tool", None, False),
        ("http-get", [], True),
        ("builtin/http-get", [], True),
        ("builtin__http-get", [], True),
        ("builtin/git-cli", [], True),
        ("weather", [], True),
        ("tools/weather", [], True),
        ("lint", [], True),
        ("shop/list_orders", [], True),
        ("shop__list_orders", [], True),
        ("shop.list_orders", [], True),
        ("report", None, True),
        ("tools/report", None, True),
        ("helper", None, True),
        ("a/x", ["a"], False),
        ("a__x", ["a"], False),
        ("a.x", ["a"], False),
        ("a-b/x", ["a-b"], False),
        ("files__read", ["files"], False),
        ("echo", None, False),
        ("weathers", None, False),
        ("git-cli", None, False),
    ],
)
def test_what_a_name_needs(tmp_path: Path, name: str, servers: list[str] | None, is_own: bool) -> None:
    (tmp_path / "servers.toml").write_text(TEXT)
    found = owner_of(read(tmp_path / "servers.toml", {}).settings, name)
    assert (found.servers, found.is_own) == (servers, is_own)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nope/x", "There are:"),
        ("file/x", "Did you mean `files/x`?"),
        ("wether/x", "Did you mean `weather/x`?"),
        ("A/x", "`a/x`"),
        ("tool/x", "`tools/x`"),
        ("x" * 500 + "/y", "There are:"),
        ("no pe/x/y", "There are:"),
    ],
)
def test_a_server_that_there_is_not_is_told_at_once(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / "servers.toml").write_text(TEXT)
    with pytest.raises(CommandFailed, match="no server is called") as refused:
        owner_of(read(tmp_path / "servers.toml", {}).settings, name)
    assert hint in refused.value.advice
    assert refused.value.code == 5


HANGS: dict[str, Any] = {"command": "sh", "args": ["-c", "touch started; exec sleep 600"], "init_timeout": 600}


def place_with(place: Place, **more: Any) -> str:
    (place.folder / "own.py").write_text(
        "import mcpbridge\n\n\ndef hello(name: str) -> str:\n    'Greets.'\n    return f'hello {name}'\n"
    )
    hangs = {**HANGS, "cwd": str(place.folder)}
    tools = {"hello": {"function": "own:hello"}}
    return str(place.config({"hangs": hangs, **more}, tools=tools))


async def test_a_tool_of_ours_waits_for_no_server(place: Place) -> None:
    """One that hangs has 600 s to start; a call of a tool that has nothing to do with it needs none of them."""
    config = place_with(place)
    finished = await place.run("call", "hello", "name=you", "--config", config)
    assert (finished.code, finished.out.strip()) == (0, "hello you"), finished.err
    finished = await place.run("call", "tools/hello", "name=12", "--config", config)
    assert finished.out.strip() == "hello 12", "text, since the schema wants text"
    (place.folder / "started").unlink(missing_ok=True)
    finished = await place.run("call", "recall", "handle=none", "--config", config)
    assert finished.code != 7
    assert not (place.folder / "started").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nope/x"], 5, "no server is called 'nope'"),
        (["hangs/x", "no-pair"], 2, "expected key=value"),
        (["hangs/x", "a=1", "a=2"], 2, "is given twice"),
        (["hangs/x", "--json", "{"], 2, "not valid JSON"),
        (["hangs/x", "--json", "[]"], 2, "expected a JSON object"),
        (["hangs/x", "a=1", "--json", "{}"], 2, "not both"),
    ],
)
async def test_what_is_wrong_with_a_call_is_said_before_anything_starts(
    place: Place, words: list[str], code: int, said: str
) -> None:
    finished = await place.run("call", *words, "--config", place_with(place))
    assert finished.code == code
    assert said in finished.err
    assert not (place.folder / "started").exists()


async def test_nobody_running_and_no_configuration_name_what_to_do(place: Place) -> None:
    assert "`mcpbridge up`" in (await place.run("status")).err
    said = (await place.run("list")).err
    assert "mcpbridge init" in said
    assert "mcpbridge add" in said


async def test_a_server_before_the_name_is_still_started_alone(place: Place) -> None:
    config = place_with(place, plain=python_server("plain"))
    finished = await place.run("call", "plain/echo", "text=hi", "--config", config)
    assert (finished.code, finished.out.strip()) == (0, "hi")
    assert not (place.folder / "started").exists()
    assert json.loads((await place.run("call", "plain/echo", "text=hi", "--raw", "--config", config)).out)["content"]


async def test_a_name_that_several_servers_have_is_refused_without_waiting_for_the_rest(place: Place) -> None:
    """A third server, which has 600 s to start, cannot make one tool of two."""
    config = place_with(place, one=python_server("plain"), two=python_server("plain"))
    finished = await place.run("call", "echo", "text=hi", "--config", config, within=60)
    assert finished.code == 5
    assert "Ambiguous tool name: echo" in finished.err


async def test_tools_are_found_while_a_server_does_not_start(place: Place) -> None:
    """`find_tools` of a command waits ten seconds for all, and says then what it knows."""
    config = Path(place_with(place, plain=python_server("plain")))
    config.write_text('expose = { mode = "search" }\n' + config.read_text())
    finished = await place.run("call", "find_tools", "query=echo", "--config", str(config), within=60)
    assert finished.code == 0, finished.err
    assert "plain__echo" in finished.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("call", "nothing"), "Unknown tool: nothing"),
        (("call", "call_tool", "name=nothing"), "Unknown tool: nothing"),
        (("read", "nothing://x"), "nothing://x"),
    ],
)
async def test_a_name_that_nobody_has_is_refused_while_a_server_does_not_start(
    place: Place, words: tuple[str, ...], said: str
) -> None:
    config = Path(place_with(place, plain=python_server("plain")))
    config.write_text("bridge = { startup_wait = 1 }\n" + config.read_text())
    finished = await place.run(*words, "--config", str(config), within=60)
    assert finished.code == 5, finished.err
    assert said in finished.err + finished.out


async def test_a_tool_of_ours_that_does_not_work_is_told_without_waiting_for_servers(place: Place) -> None:
    config = place.config({"hangs": {**HANGS, "cwd": str(place.folder)}}, tools={"gone": {"function": "own:gone"}})
    finished = await place.run("call", "gone", "--config", str(config), within=60)
    assert finished.code != 0
    assert "gone" in finished.err + finished.out


async def test_a_daemon_does_not_wait_for_a_server_that_hangs_either(place: Place) -> None:
    config = Path(place_with(place, plain=python_server("plain")))
    async with daemon(place, config):
        place.env["MCPBRIDGE_STANDALONE"] = "0"
        finished = await place.run("call", "nothing", "--config", str(config), within=60)
        assert finished.code == 5
        assert "Unknown tool: nothing" in finished.err
        finished = await place.run("call", "mcpbridge/find_tools", "query=echo", "--config", str(config), within=60)
        assert finished.code in {0, 5}, finished.err


async def test_a_failure_that_the_daemon_reports_names_its_page(place: Place) -> None:
    """It is the same with and without a daemon."""
    config = place.config({"plain": python_server("plain")})
    words = ("list", "--server", "nobody", "--json", "--config", str(config))
    alone = json.loads((await place.run(*words)).err)
    async with daemon(place, config):
        place.env["MCPBRIDGE_STANDALONE"] = "0"
        asked = json.loads((await place.run(*words)).err)
    assert asked == alone
    assert asked["error"]["page"]
