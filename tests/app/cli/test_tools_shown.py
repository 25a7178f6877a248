"""What commands say of tools that no server has, where servers do not work or others said something (issue 8)."""

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from mcpbridge.app.admin.http_client import ApiClient
from mcpbridge.app.cli.config.overlay import holds_against, how_to_undo
from mcpbridge.app.cli.daemon import status
from mcpbridge.config.load import read
from mcpbridge.config.schema import Settings
from mcpbridge.engine.registry.http_rules import Section
from mcpbridge.library.bridge import Bridge
from support.harness import Finished, Place, python_server

Run = Callable[..., Finished]

GONE = "[servers.gone]\ncommand = 'no-such-program-here'\n"
ROOT = "[tools.root]\nfunction = 'math:sqrt'\ndescription = 'the root'\n"
BAD = "[tools.bad]\nfunction = 'nowhere_at_all:fn'\n"
OWN = "[builtin]\nenable = ['file-read', 'brief']\n"


@pytest.fixture
def here(alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Run]:
    """Runs commands on the configuration that is given."""
    monkeypatch.setenv("MCPBRIDGE_CONFIG", str(tmp_path / "servers.toml"))
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))

    def configured(text: str) -> Run:
        (tmp_path / "servers.toml").write_text(text)
        return alone

    return configured


@pytest.mark.parametrize("command", ["add", "list"])
def test_examples_of_a_help_stand_on_lines_of_their_own(alone: Run, command: str) -> None:
    lines = alone(command, "--help").out.splitlines()
    assert "\\b" not in "".join(lines)
    examples = [line for line in lines if line.startswith("    mcpbridge ")]
    assert len(examples) == 3
    assert all(line.count("mcpbridge ") == 1 for line in examples)


def test_tools_are_listed_where_no_server_works(here: Callable[[str], Run]) -> None:
    run = here(GONE + ROOT + BAD + OWN)
    listed = run("list")
    assert listed.code == 0
    assert {"root", "brief"} <= {line.split()[0] for line in listed.out.splitlines()}
    assert "gone is missing: command not found" in listed.err
    assert "bad is missing: `nowhere_at_all:fn`" in listed.err
    assert "file-read" not in listed.err, "that it lacks something is no news"
    assert run("search", "the root").code == 0
    assert run("list", "--server", "gone").code == 4, "nothing else was asked for"
    assert "It is a table of [tools]" in run("list", "--server", "root").err
    prompts = run("list", "--prompts")
    assert (prompts.code, "bad" in prompts.err) == (4, False)
    assert here(GONE + BAD)("list").code == 4
    only_bad = here(BAD)("list")
    assert (only_bad.code, "no tool works" in only_bad.err) == (4, True)
    assert here("[builtin]\nenable = ['file-read']\n")("list").code == 0, "nothing failed"


def test_a_tool_that_takes_its_time_to_start_is_waited_for(here: Callable[[str], Run], tmp_path: Path) -> None:
    """As a server is: nobody tells who has a list of the rest."""
    (tmp_path / "takes_its_time.py").write_text("import time\ntime.sleep(1.5)\ndef late() -> str:\n    return 'here'\n")
    listed = here("[tools.late]\nfunction = 'takes_its_time:late'\n")("list")
    assert (listed.code, listed.err) == (0, "")
    assert "late" in {line.split()[0] for line in listed.out.splitlines()}


def test_a_call_tells_of_what_it_is_about_alone(here: Callable[[str], Run]) -> None:
    run = here(GONE + ROOT + BAD + OWN)
    assert run("call", "root", "x=4") == Finished(0, "2.0\n", "")
    for name, code, told in (
        ("bad", 5, "nowhere_at_all"),
        ("file-read", 5, "is inactive"),
        ("tools/bad", 5, "nowhere"),
    ):
        finished = run("call", name)
        assert (finished.code, told in finished.out + finished.err) == (code, True), finished
        assert "is missing" not in finished.err
    whose = run("call", "gone/x")
    assert (whose.code, "bad" in whose.err) == (4, False)
    of_any = run("call", "some_tool")
    assert (of_any.code, "gone is missing" in of_any.err) == (5, True)


def test_a_check_without_servers_tells_of_tools(here: Callable[[str], Run]) -> None:
    finished = here(OWN)("check")
    assert finished.code == 0
    assert finished.out.splitlines() == [
        "built-in: brief",
        "inactive: file-read: no directory is open to it (`builtin.files.roots`)",
    ]
    assert here("")("check").out == "the configuration is right; no server and no tool is enabled in it\n"


def test_a_check_of_an_unknown_name_tells_of_the_others_too(here: Callable[[str], Run]) -> None:
    run = here(ROOT)
    finished = run("check", "root", "rot")
    assert finished.code == 2
    rows = [line.split()[:2] for line in finished.out.splitlines()]
    assert rows == [["Result", "Name"], ["ok", "root"], ["FAILED", "rot"]]
    assert "Unknown server or tool: rot" in finished.err
    as_json = run("check", "root", "rot", "--json")
    assert [(one["name"], one["kind"]) for one in json.loads(as_json.out)["checks"]] == [
        ("root", "backend"),
        ("rot", "unknown"),
    ]
    assert json.loads(as_json.err)["error"]["code"] == 2


async def test_the_status_names_what_runs_outside_of_a_sandbox(capsys: pytest.CaptureFixture[str]) -> None:
    tools = {"one": {"command": ["true"]}, "two": {"command": ["true"], "sandbox": "off"}}
    own = {"enable": ["code-execute", "git-cli", "gh-cli"], "code_execute": {"sandbox": "off"}}
    for mode, outside in (("auto", ["code-execute", "two"]), ("off", ["code-execute", "git-cli", "one", "two"])):
        settings = Settings.model_validate({"tools": tools, "builtin": own, "sandbox": {"mode": mode}})
        async with Bridge(settings) as bridge:
            told = bridge.status()
        assert told["sandbox"]["off"] == outside, "`gh-cli` is meant to run as the user, and judges its arguments"
        status._show({**told, "front": "stdio"})  # pyright: ignore[reportPrivateUsage] - what it prints
        out = capsys.readouterr().out
        assert f"outside of any sandbox: {', '.join(outside)}\n" in out
        assert ("the sandbox is switched off" in out) == (mode == "off")


# -- what was said over the API


def say(path: Path, section: Section, name: str, *, removed: bool = False, on: bool = False, tool: str = "") -> None:
    """What somebody said over the API to a bridge that has ended since."""

    async def saying() -> None:
        async with Bridge(read(path, {}).settings) as bridge:
            await bridge.registry.loaded.wait()
            if removed:
                await bridge.registry.remove(section, name, by="api:chief", keep=True)
            else:
                await bridge.registry.switch(section, name, on=on, tool=tool, by="api:chief", keep=True)

    anyio.run(saying)


def test_a_switch_that_has_no_effect_says_so(here: Callable[[str], Run], tmp_path: Path) -> None:
    path = tmp_path / "servers.toml"
    run = here("[servers.far]\nurl = 'http://127.0.0.1:9/mcp'\n" + ROOT)
    say(path, "tools", "root", removed=True)
    for words in (["enable", "root"], ["enable", "tools/root"]):
        finished = run(*words)
        assert finished.code == 2
        assert "it has no effect on bridges: tool root: removed over the API by chief" in finished.err
        assert '`PATCH /api/tools/root {"enabled": true}`' in finished.err
    assert run("disable", "root").code == 0, "it is off"
    say(path, "servers", "far", on=False)
    assert "server far: switched off over the API" in run("enable", "far").err
    assert run("enable", "far", "--dry-run").code == 0
    again = run("add", "far", "http://127.0.0.1:9/other", "--replace", "--json")
    assert (again.code, json.loads(again.out)["written"]) == (2, True)
    assert json.loads(again.err)["error"]["code"] == 2
    say(path, "servers", "far", tool="echo", on=False)
    finished = run("enable", "far/echo")
    assert '`PATCH /api/tools/far/echo {"enabled": true}`' in finished.err
    assert run("enable", "far/other").code == 0
    assert run("remove", "far").code == 0


async def test_running_bridges_are_asked_what_was_said(place: Place) -> None:
    place.env["MCPBRIDGE_ADMIN_TOKEN"] = admin = "the-token-of-the-administrator"
    async with place.http_bridge({"one": python_server("plain")}) as mcp:
        await mcp.initialize()
        config = ["--config", str(place.folder / "servers.toml")]
        async with ApiClient(mcp.url.removesuffix("/mcp"), token=admin) as api:
            await api.disable("servers", "one", keep=False)
            await api.add("tools", "weather", {"endpoint": "http://127.0.0.1:9/x"}, keep=False)
            held = await place.run("enable", "one", *config)
            assert (held.code, "it has no effect on bridges: server one: switched off over" in held.err) == (2, True)
            unwritten = await place.run("remove", "weather", *config)
            assert (unwritten.code, "`DELETE /api/tools/weather` takes it out" in unwritten.err) == (2, True)
            await api.enable("servers", "one", keep=False)
            assert (await place.run("enable", "one", *config)).code == 0


def test_what_holds_against_a_wish() -> None:
    base = {"section": "servers", "name": "a"}
    removed, added = {**base, "said": "removed"}, {**base, "said": "added"}
    on, off = ({**base, "said": "switched", "disabled": is_off} for is_off in (False, True))
    assert [holds_against(removed, "", wish) for wish in ("there", "on", "off", "gone")] == [True, True, False, False]
    assert all(holds_against(added, "", wish) for wish in ("there", "on", "off", "gone"))
    assert [holds_against(on, "", wish) for wish in ("there", "on", "off", "gone")] == [False, False, True, False]
    assert [holds_against(off, "", wish) for wish in ("there", "on", "off", "gone")] == [True, True, False, False]
    assert not holds_against({**off, "hidden": True}, "", "on")
    assert how_to_undo(added, "", "gone") == "`DELETE /api/servers/a` takes that out."


def test_a_name_that_stands_elsewhere_is_told_with_the_place(here: Callable[[str], Run], tmp_path: Path) -> None:
    item = {
        "tool_id": "weather",
        "tool_description": "Weather.",
        "tool_execution_mode": "remote",
        "tool_calling_config": {"endpoint": "http://127.0.0.1:9/x"},
    }
    (tmp_path / "spec.json").write_text(json.dumps([item]))
    run = here("spec = ['spec.json']\npacks = ['pkg.texts:pack']\n" + OWN)
    for words, told in (
        ("disable builtin/web-search", "`builtin.enable`"),
        ("disable brief", "`builtin.enable`"),
        ("remove texts", "the pack 'pkg.texts:pack': it is there if `packs` names it"),
        ("disable texts/upper", "`packs`"),
        ("remove weather", "described in a file of `spec` (spec.json)"),
        ("disable tools/weather", "spec.json"),
        ("remove nobody", "There are: none."),
    ):
        finished = run(*words.split())
        assert (finished.code, told in finished.err) == (2, True), finished
