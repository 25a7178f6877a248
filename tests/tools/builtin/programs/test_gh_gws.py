"""The tools `gh-cli` and `gws-cli`: what is run, asked and refused; real processes, whose program notes what it got."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.base.errors import ArgumentsRefused, NotPermitted, ToolInactive
from mcpbridge.tools.builtin.programs.gh import GhCli
from mcpbridge.tools.builtin.programs.gws import GwsCli
from mcpbridge.tools.builtin.programs.settings import GhCliSettings, GwsCliSettings
from support.program_calls import NoSandbox, Recorder, cli_call, program, said_by

HERE = Path(__file__).parent
NOTE = """python3 -c 'import json,os,sys; print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ),
"files": os.listdir(), "env_file": open(".env").read() if os.path.exists(".env") else None}))' "$@" """


def vectors(tool: str, kind: str) -> list[str]:
    lines = (HERE / f"{tool}_arguments.txt").read_text().splitlines()
    return [line[2:].replace("{secret}", "/etc/passwd") for line in lines if line.startswith(f"{kind} ")]


def tools() -> dict[str, Any]:
    return {"gh": GhCli(GhCliSettings(), NoSandbox), "gws": GwsCli(GwsCliSettings(), NoSandbox)}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`gh` and `gws` that tell what they were started with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("gh", "gws"):
        program(folder / name, NOTE)
    monkeypatch.setenv("PATH", f".:relative:{folder}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "GH_CONFIG_DIR", "GOOGLE_WORKSPACE_CLI_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_the_lists_are_as_long_as_the_bar() -> None:
    """136 cases of gh and gws together: more may come, none may drop out unnoticed."""
    assert sum(len(vectors(tool, kind)) for tool in ("gh", "gws") for kind in "ARW") >= 136


@pytest.mark.parametrize("tool", ["gh", "gws"])
async def test_every_attack_is_refused_with_a_reason(tool: str) -> None:
    made, passed = tools()[tool], list[str]()
    for command in vectors(tool, "A"):
        call = cli_call(f"{tool}-cli", command)
        assert made.asks(call) == ""
        try:
            await made.run(call)
            passed.append(command)
        except ToolInactive:
            passed.append(command)  # it would have been run
        except (ArgumentsRefused, NotPermitted) as refused:
            told = refused.full_message()
            if not 20 < len(told) < 3000:
                passed.append(told)
    assert passed == []


@pytest.mark.parametrize("tool", ["gh", "gws"])
def test_what_reads_asks_nobody_and_what_changes_asks(tool: str) -> None:
    made = tools()[tool]
    for command in vectors(tool, "R"):
        assert made.asks(cli_call(f"{tool}-cli", command)) == "", command
        made._verdict(cli_call(f"{tool}-cli", command))
    for command in vectors(tool, "W"):
        reason = made.asks(cli_call(f"{tool}-cli", command))
        assert reason.startswith("it changes something over the network"), command
        assert f": {tool} {command.split()[0]}" in reason


@pytest.mark.parametrize("tool", ["gh", "gws"])
async def test_what_may_run_reaches_the_program(programs: Path, tool: str) -> None:
    made = tools()[tool]
    for command in [*vectors(tool, "R")[:4], vectors(tool, "W")[0]]:
        text, is_error = await said_by(made, cli_call(f"{tool}-cli", command))
        assert not is_error
        assert json.loads(text)["argv"][:2] == [word for word in command.split() if word != tool][:2]


async def test_gh_gets_a_clean_environment_and_its_sign_in(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "GH_DEBUG", "LD_PRELOAD_X", "GH_PATH", "GIT_SSH_COMMAND"):
        monkeypatch.setenv(name, "theirs")
    tool = GhCli(GhCliSettings(repository="o/r"), NoSandbox)
    text, _ = await said_by(tool, cli_call("gh-cli", "api repos/o/r -f 'a=b c' -q .x"))
    noted = json.loads(text)
    assert noted["argv"] == ["api", "--method=GET", "-fa=b c", "-q.x", "repos/o/r"]
    env = noted["env"]
    assert env["GH_TOKEN"] == "theirs"
    assert env["GH_REPO"] == "o/r"
    assert env["GH_CONFIG_DIR"] == str(programs.parent / ".config" / "gh")
    assert {env[name] for name in ("BROWSER", "GH_BROWSER", "EDITOR", "GH_EDITOR", "VISUAL")} == {"false"}
    assert env["GH_PAGER"] == "cat"
    assert env["GH_PROMPT_DISABLED"] == "1"
    assert not {"AWS_SECRET_ACCESS_KEY", "GH_DEBUG", "LD_PRELOAD_X", "GH_PATH", "GIT_SSH_COMMAND"} & env.keys()
    assert noted["files"] == []


async def test_gws_takes_no_variables_of_a_file(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gws reads the first `.env` that it finds from its directory upwards; here that is an empty one."""
    monkeypatch.setenv("GOOGLE_WORKSPACE_CLI_TOKEN", "t")
    text, _ = await said_by(tools()["gws"], cli_call("gws-cli", 'drive files list --params \'{"a": "b"}\''))
    noted = json.loads(text)
    assert noted["argv"] == ["drive", "files", "list", '--params={"a": "b"}']
    assert noted["files"] == [".env"]
    assert noted["env_file"] == ""
    assert noted["env"]["GOOGLE_WORKSPACE_CLI_TOKEN"] == "t"
    assert noted["env"]["GOOGLE_WORKSPACE_CLI_CONFIG_DIR"] == str(programs.parent / ".config" / "gws")


@pytest.mark.parametrize("tool", ["gh", "gws"])
async def test_a_missing_program_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolInactive, match="there is no program") as told:
        await tools()[tool].run(cli_call(f"{tool}-cli", vectors(tool, "R")[0]))
    assert "Do not retry" in told.value.full_message()


async def test_a_failure_is_an_error_with_what_the_program_complained(programs: Path) -> None:
    program(programs / "gh", "echo partly; echo 'no such thing' >&2; exit 4")
    text, is_error = await said_by(tools()["gh"], cli_call("gh-cli", "pr view 1 --repo o/r"))
    assert is_error
    assert text == "partly\nno such thing\n[gh pr view failed with exit code 4]"


async def test_writing_can_be_switched_off() -> None:
    tool = GhCli(GhCliSettings(write=False), NoSandbox)
    call = cli_call("gh-cli", "issue close 1 --repo o/r")
    assert tool.asks(call) == ""
    with pytest.raises(NotPermitted, match=r"builtin\.gh_cli"):
        await tool.run(call)


async def test_in_a_sandbox_it_has_the_network_and_its_configuration_only(programs: Path) -> None:
    config = programs.parent / ".config" / "gh"
    config.mkdir(parents=True)
    runner = Recorder(stdout=b"done")
    tool = GhCli(GhCliSettings(sandbox="require"), lambda: runner)
    assert (await said_by(tool, cli_call("gh-cli", "status")))[0] == "done"
    (job,) = runner.jobs
    assert job.access.network
    assert job.access.read_only == (str(config),)
    assert job.access.read_write == ()
    assert "HOME" not in job.env
    assert job.argv == (str(programs / "gh"), "status")
