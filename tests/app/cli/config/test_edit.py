"""`add`, `remove`, `enable`, `disable`; and what `check`, `list` and `status` say of tools (issue 8)."""

import json
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.cli.daemon import status
from mcpbridge.config.schema import Settings
from mcpbridge.library.bridge import Bridge
from support.harness import Finished, Place, python_server

Run = Callable[..., Finished]

START = """# mine

[servers.clock]   # a clock
command = "clockwork"

[tools.today]
command = ["date"]
"""

X = {"url": "https://x.example"}


@pytest.fixture
def here(alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on the configuration of the test."""
    path = tmp_path / "servers.toml"
    path.write_text(START)
    monkeypatch.setenv("MCPBRIDGE_CONFIG", str(path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return alone


def written(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "servers.toml").read_text())


@pytest.mark.parametrize(
    ("words", "section", "table"),
    [
        ("new -- uvx mcp-server-time --utc", "servers", {"command": "uvx", "args": ["mcp-server-time", "--utc"]}),
        ("new --env K='${K:-x}' -- uvx x", "servers", {"command": "uvx", "args": ["x"], "env": {"K": "${K:-x}"}}),
        ("new https://x.example --header 'A=B x=y'", "servers", {**X, "headers": {"A": "B x=y"}}),
        (
            "new https://x.example --set max_queued=3 --set start=eager",
            "servers",
            {**X, "max_queued": 3, "start": "eager"},
        ),
        ("new https://x.example --set tool.a.disabled=true", "servers", {**X, "tool": {"a": {"disabled": True}}}),
        ("new --tool https://x.example/{city}", "tools", {"endpoint": "https://x.example/{city}"}),
        ("new --tool -- cal {year}", "tools", {"command": ["cal", "{year}"]}),
        ("new --tool --set function=math:sqrt --set tags='[\"a\"]'", "tools", {"function": "math:sqrt", "tags": ["a"]}),
        (
            'new --tool --table \'{"grpc": "localhost:1", "tls": false}\'',
            "tools",
            {"grpc": "localhost:1", "tls": False},
        ),
    ],
)
def test_what_is_added_stands_in_the_file_and_the_rest_stays(
    here: Run, tmp_path: Path, words: str, section: str, table: dict[str, Any]
) -> None:
    finished = here("add", "--no-check", *shlex.split(words))
    assert (finished.code, finished.err) == (0, "")
    assert f"{section}.new is there" in finished.out
    text = (tmp_path / "servers.toml").read_text()
    assert written(tmp_path)[section]["new"] == table
    assert "# mine" in text
    assert "# a clock" in text
    assert [path.read_text() for path in (tmp_path / "state").rglob("change-*.bak")] == [START]
    assert here("remove", "new" if section == "servers" else "tools/new").code == 0
    assert (tmp_path / "servers.toml").read_text().strip() == START.strip()


async def test_who_adds_a_server_reads_whether_it_works(place: Place) -> None:
    """Issue 18. One that does not is in the file all the same: a variable or a sign-in may be all that it lacks."""
    config = ["--config", str(place.folder / "servers.toml")]
    plain, begun = python_server("plain"), place.folder / "begun"
    added = await place.run("add", "good", *config, "--", plain["command"], *plain["args"])
    assert (added.code, added.out.splitlines()[1:], added.err) == (0, ["good works: 2025-11-25, 6 tools"], "")
    failing = ["sh", "-c", f"touch {begun}; echo 'error: no licence' >&2; exit 3"]
    added = await place.run("add", "bad", *config, "--", *failing)
    assert (added.code, added.out.splitlines()[1:]) == (0, ["bad does not work: exit code 3: error: no licence"])
    assert "`mcpbridge doctor bad` says what to do" in added.err
    begun.unlink()
    for words in (["--no-check"], ["--set", "disabled=true", "--replace"], ["--dry-run", "--replace"]):
        added = await place.run("add", "other", *words, *config, "--", *failing)
        assert (added.code, "works" in added.out + added.err, begun.exists()) == (0, False, False)
    assert set(written(place.folder)["servers"]) == {"good", "bad", "other"}


async def test_programs_read_it_too_and_of_tools_as_well(place: Place) -> None:
    config = ["--config", str(place.folder / "servers.toml"), "--json"]
    added = await place.run("add", "--tool", "gone", *config, "--", "no-such-program-here", "{path}")
    told = json.loads(added.out)
    assert (told["written"], told["check"]["ok"]) == (True, False)
    assert "`no-such-program-here` is not installed" in told["check"]["detail"]
    added = await place.run("add", "--tool", "root", "--set", "function=math:sqrt", *config)
    assert json.loads(added.out)["check"]["ok"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("add clock https://x.example", "there is one already"),
        ("add new", "nothing to add"),
        ("add new https://x.example more", "nothing may follow the URL"),
        ("add new --set x", "NAME=VALUE"),
        ("add new --header x https://x.example", "NAME=VALUE"),
        ("add new --table [1]", "JSON object"),
        ("add new --table {", "no JSON"),
        ("add new https://x.example --set nonsense=1", "unknown key"),
        ("add new ftp://x.example", "URL"),
        ("add today https://x.example", "a server is called so too"),
        ("add tools https://x.example", "the bridge's own tools"),
        ("add --tool ../x https://x.example", "not usable as the name"),
        ("remove nobody", "no server or tool 'nobody'"),
        ("remove cloc", "Did you mean `clock`"),
        ("remove clock/tick", "mcpbridge disable clock/tick"),
        ("enable nobody/x", "no server or tool"),
        ("disable ''", "no server or tool"),
    ],
)
def test_a_mistake_changes_nothing_and_is_told(here: Run, tmp_path: Path, words: str, told: str) -> None:
    finished = here(*shlex.split(words))
    assert finished.code == 2
    assert told in finished.err
    as_json = here(*shlex.split(words), "--json")
    assert json.loads(as_json.err)["error"]["code"] == 2
    assert (tmp_path / "servers.toml").read_text() == START
    assert not (tmp_path / "state").exists()


def test_what_is_there_is_switched(here: Run, tmp_path: Path) -> None:
    for words in ("disable clock", "disable clock/tick", "disable tools/today"):
        assert here(*words.split()).code == 0
    tables = written(tmp_path)
    assert tables["servers"]["clock"] == {
        "command": "clockwork",
        "disabled": True,
        "tool": {"tick": {"disabled": True}},
    }
    assert tables["tools"]["today"]["disabled"]
    for words in ("enable clock", "enable clock/tick", "enable today"):
        assert here(*words.split()).code == 0
    assert "disabled" not in (tmp_path / "servers.toml").read_text()
    again = here("enable", "clock")
    assert (again.code, "nothing to change" in again.out) == (0, True)
    said = json.loads(here("disable", "clock", "--json").out)
    assert (said["changed"], said["written"], said["bridges"]) == (True, True, [])


def test_a_dry_run_shows_what_would_change(here: Run, tmp_path: Path) -> None:
    finished = here("add", "clock", "https://x.example", "--replace", "--dry-run")
    assert finished.code == 0
    assert '+url = "https://x.example"' in finished.out
    assert not json.loads(here("remove", "clock", "--dry-run", "--json").out)["written"]
    assert (tmp_path / "servers.toml").read_text() == START


def test_files_that_are_not_ours_are_not_written(here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "mcp.json"
    other.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    finished = here("add", "new", "https://x.example", "--no-check", "--config", str(other))
    assert (finished.code, "of another program" in finished.err) == (2, True)
    (tmp_path / "servers.toml").write_text("[broken")
    assert here("add", "new", "https://x.example").code == 2
    assert (tmp_path / "servers.toml").read_text() == "[broken"
    monkeypatch.setenv("MCPBRIDGE_CONFIG", str(tmp_path / "deep" / "servers.toml"))
    assert here("add", "new", "https://x.example", "--no-check").code == 0
    made = tmp_path / "deep" / "servers.toml"
    assert made.stat().st_mode & 0o777 == 0o600
    link = tmp_path / "link.toml"
    link.symlink_to(made)
    assert here("disable", "new", "--config", str(link)).code == 0
    assert link.is_symlink()
    assert "disabled" in made.read_text()


async def test_running_bridges_take_it_in_and_clients_are_told(place: Place) -> None:
    # It does not look by itself: what is told is what came of the command.
    async with place.bridge({"one": python_server("plain")}, daemon={"watch": False}) as client:
        await client.initialize()
        await client.tools_with("one__echo")
        seen = len(client.arrived)
        config = str(place.folder / "servers.toml")
        table = json.dumps({"function": "math:sqrt", "description": "the root"})
        added = await place.run("add", "--tool", "root", "--table", table, "--config", config)
        assert "has taken it in" in added.out, added.err
        await client.notice("notifications/tools/list_changed", after=seen)
        assert "root" in await client.tools()
        removed = await place.run("remove", "tools/root", "--config", config, "--json")
        [told] = json.loads(removed.out)["bridges"]
        assert told["sections"] == ["tools"]
        assert "root" not in await client.tools()


# -- looking


@pytest.fixture
def looking(here: Run, tmp_path: Path) -> Run:
    plain = python_server("plain")
    (tmp_path / "servers.toml").write_text(
        f"[servers.one]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(plain['args'])}\ntags = ['near']\n"
        "[servers.off]\nurl = 'http://127.0.0.1:9/mcp'\ndisabled = true\n"
        "[tools.root]\nfunction = 'math:sqrt'\ndescription = 'the square root'\ntags = ['sums']\n"
        "[tools.away]\nendpoint = 'http://127.0.0.1:9/x'\n"
        "[builtin]\nenable = ['file-read']\n"
    )
    return here


def test_everything_is_checked_or_what_is_named(looking: Run) -> None:
    whole = looking("check")
    assert whole.code == 4
    lines = [" ".join(line.split()) for line in whole.out.splitlines()]
    assert any(line.startswith("ok one stdio") for line in lines)
    assert any(line.startswith("ok root") for line in lines)
    assert any(line.startswith("FAILED away") for line in lines)
    assert any(line.startswith("inactive: file-read: ") and "roots" in line for line in lines)
    named = looking("check", "one", "tools/root", "root", "one/echo", "--json")
    assert named.code == 0
    assert [(one["name"], one["kind"]) for one in json.loads(named.out)["checks"]] == [
        ("one", "server"),
        ("tools/root", "tool"),
        ("root", "backend"),
        ("one/echo", "tool"),
    ]
    for name, told in (("off", "switched off"), ("away", "127.0.0.1"), ("builtin/file-read", "roots")):
        finished = looking("check", name)
        assert (finished.code, told in finished.out) == (4, True), finished
    by_wire_name = looking("check", "one__echo")
    assert by_wire_name.code == 0
    unknown = looking("check", "rot")
    assert (unknown.code, "root" in unknown.err) == (2, True)


def test_tools_are_listed_for_which_a_query_holds(looking: Run) -> None:
    found = looking("list", "--query", "tag:sums OR kind:http", "--json")
    assert [(tool["id"], tool["sub_type"]) for tool in json.loads(found.out)["tools"]] == [
        ("tools/away", "http"),
        ("tools/root", "function"),
    ]
    shown = looking("list", "--query", "square AND NOT remote").out.splitlines()
    assert [line.split()[:3] for line in shown[-1:]] == [["root", "function", "sums"]]
    assert looking("list", "--query", "tag:nothing").out == "no tools\n"
    wrong = looking("list", "--query", "(a")
    assert (wrong.code, "not closed" in wrong.err) == (2, True)
    assert looking("list", "--query", "a", "--prompts").code == 2


async def test_the_status_says_what_was_added_and_what_does_not_work(capsys: pytest.CaptureFixture[str]) -> None:
    tools = {"bad": {"function": "nowhere:at_all"}, "away": {"endpoint": "http://127.0.0.1:9/x"}}
    own = {"builtin": {"enable": ["file-read"]}, "bridge": {"startup_wait": 60}}
    settings = Settings.model_validate({"tools": tools, **own})
    async with Bridge(settings) as bridge:
        await bridge.startup.settled()
        await bridge.registry.put("tools", "weather", {"endpoint": "http://127.0.0.1:9/"}, by="api:chief", keep=True)
        await bridge.registry.switch("tools", "away", on=False)
        await bridge.registry.remove("tools", "away")
        await bridge.health_checks.check("weather")
        status._show({**bridge.status(), "front": "stdio"})  # pyright: ignore[reportPrivateUsage] - what it prints
    out = capsys.readouterr().out
    assert "tool bad (function) does not work: " in out
    assert "tool file-read is inactive: " in out
    assert "backend weather did not work at " in out
    assert "tool weather: added over the API by chief at " in out
    assert "tool away: removed by the library at " in out
    assert "until it ends" in out
