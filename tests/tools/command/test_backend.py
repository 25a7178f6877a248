"""Commands as tools: what a program is run with, where, what it may reach, and what its output becomes."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from mcpbridge.base.errors import ArgumentsRefused, ToolInactive, UnknownName
from mcpbridge.core.model import TOOLS, Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.tools.backend import BackendContext
from mcpbridge.tools.command.backend import CommandBackend
from mcpbridge.tools.command.settings import CommandSettings
from support.virtual_time import pass_time

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no sandbox elsewhere")

PYTHON = "python3"
_SANDBOX = Isolation(SandboxSettings())


@pytest.fixture(autouse=True)
def _system_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")


def made(directory: Path = Path("/nonexistent"), **settings: Any) -> CommandBackend:
    checked = CommandSettings.model_validate(settings)
    return CommandBackend("tool", checked, BackendContext(runner=_SANDBOX, directory=directory))


async def called(backend: CommandBackend, **arguments: Any) -> dict[str, Any]:
    params = Body(encode({"name": "tool", "arguments": arguments}))
    with anyio.fail_after(60):
        result = await backend.run(Call("tools/call", TOOLS, "tool", params))
    return result.value()


def text_of(result: dict[str, Any]) -> str:
    assert not result.get("isError"), result
    return result["content"][0]["text"]


def failure_of(result: dict[str, Any]) -> str:
    assert result["isError"]
    return result["content"][0]["text"]


async def test_words_reach_the_program_whole_and_the_result_names_the_sandbox() -> None:
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    backend = made(command=[PYTHON, "-c", code, "{all}", "--n={n}"], output="json", input_schema={"type": "object"})
    result = await called(backend, all=["a b", "$HOME", "*"], n=3)
    assert result["structuredContent"] == {"result": ["a b", "$HOME", "*", "--n=3"]}
    assert result["_meta"] == {"mcpbridge/sandbox": result["_meta"]["mcpbridge/sandbox"]}
    assert result["_meta"]["mcpbridge/sandbox"] in ("bubblewrap", "launcher")


async def test_the_program_sees_no_files_no_network_and_no_environment_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_CANARY", "canary")
    secret = tmp_path / "secret"
    secret.write_text("canary")
    code = f"""
import os, socket
def tried(what):
    try: return what()
    except Exception as error: return type(error).__name__
print(tried(lambda: open({str(secret)!r}).read()))
print(tried(lambda: open({str(tmp_path / "made")!r}, "w")))
print(tried(lambda: socket.create_connection(("127.0.0.1", 9), 1)))
print(os.environ.get("SECRET_CANARY"), os.listdir("."), os.environ["OWN"])
"""
    said = text_of(await called(made(command=[PYTHON, "-c", code], env={"OWN": "mine"})))
    assert "canary" not in said
    assert said.splitlines()[-1] == "None [] mine"
    assert not (tmp_path / "made").exists()


async def test_cwd_is_read_and_what_the_settings_name_is_written(tmp_path: Path) -> None:
    for name in ("project", "out"):
        (tmp_path / name).mkdir(mode=0o777)
        (tmp_path / name).chmod(0o777)
    tmp_path.chmod(0o755)
    (tmp_path / "project" / "data.txt").write_text("found me")
    write = f"open({str(tmp_path / 'out' / 'x')!r}, 'w').write('y')"
    backend = made(
        tmp_path,
        command=[
            PYTHON,
            "-c",
            f"print(open('data.txt').read()); {write}\ntry: open('new', 'w')\nexcept OSError: print('no')",
        ],
        cwd="project",
        sandbox={"allow_fs": {"read_write": [str(tmp_path / "out")]}},
    )
    assert text_of(await called(backend)) == "found me\nno"
    assert (tmp_path / "out" / "x").read_text() == "y"
    assert not (tmp_path / "project" / "new").exists()


async def test_standard_input_has_places() -> None:
    assert text_of(await called(made(command=["cat"], stdin="<{text}>"), text="a\nb {text}")) == "<a\nb {text}>"


async def test_lines_are_a_list() -> None:
    result = await called(made(command=["printf", "a\\nb\\n"], output="lines"))
    assert result["structuredContent"] == {"lines": ["a", "b"]}


async def test_a_failure_shows_exit_code_and_both_outputs() -> None:
    result = await called(made(command=["sh", "-c", "echo out; echo err >&2; exit 3"]))
    assert failure_of(result) == "It failed: exit code 3\nstderr:\nerr\nstdout:\nout"


async def test_secrets_in_what_a_failure_says_are_masked() -> None:
    given = {"command": ["sh", "-c", "echo $KEY $N >&2; exit 1"], "env": {"KEY": "s3cret", "N": 1}}
    settings = CommandSettings.model_validate(given)
    around = BackendContext(runner=_SANDBOX, redact=lambda text: text.replace("s3cret", "[redacted]"))
    assert failure_of(await called(CommandBackend("tool", settings, around))).endswith("stderr:\n[redacted] 1")


async def test_exit_codes_that_are_no_failure() -> None:
    assert text_of(await called(made(command=["sh", "-c", "exit 1"], exit_codes=[0, 1]))) == "(no output)"


async def test_output_beyond_the_cap_is_cut_and_how_much_is_said() -> None:
    backend = made(command=[PYTHON, "-c", "print('ä' * 3000)"], output_cap="1025 B", output="text")
    said = text_of(await called(backend))
    assert said == "ä" * 512 + "\n[the output had 6,001 bytes: the first 1,025 are shown, 4,976 were cut]"


async def test_json_that_is_none_does_not_fit_or_is_too_large_is_an_error() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    backend = made(command=["cat"], stdin="{text}", output="json", output_schema=schema)
    assert (await called(backend, text='{"n": 1}'))["structuredContent"] == {"n": 1}
    assert "no JSON" in failure_of(await called(backend, text="nope"))
    assert "does not fit the output schema" in failure_of(await called(backend, text='{"n": "x"}'))
    small = made(command=["cat"], stdin="{text}", output="json", sandbox={"output": 10})
    assert "larger than `sandbox.output`" in failure_of(await called(small, text="[" + "1," * 10 + "1]"))


async def test_time_and_memory_are_limited(tmp_path: Path) -> None:
    sign = tmp_path / "out" / "sign"
    sign.parent.mkdir()
    sign.parent.chmod(0o777)
    os.mkfifo(sign)
    sign.chmod(0o666)
    tmp_path.chmod(0o755)
    slow = made(
        command=["sh", "-c", f"echo begun; echo x >{sign}; sleep 600"],
        timeout=30,
        sandbox={"allow_fs": {"read_write": [str(sign.parent)]}},
    )
    call = asyncio.ensure_future(called(slow))
    async with await anyio.open_file(sign) as stream:
        assert await stream.readline() == "x\n"  # it has said what it had to say
    pass_time(30)
    assert failure_of(await call) == "It failed: stopped after 30s: it had no more time\nstdout:\nbegun"
    greedy = made(command=[PYTHON, "-c", "x = bytearray(10 ** 9)"], sandbox={"memory": "64 MB"})
    assert failure_of(await called(greedy))


async def test_an_argument_becomes_no_option_and_nothing_runs() -> None:
    with pytest.raises(ArgumentsRefused, match="dash"):
        await called(made(command=["ls", "{path}"]), path="--version")


async def test_a_missing_program_is_said_at_once() -> None:
    backend = made(command=["no-such-program-here", "{a}"])
    with pytest.raises(ToolInactive) as caught:
        await called(backend, a="x")
    assert str(caught.value) == "tool is inactive: the program `no-such-program-here` is not installed"
    assert caught.value.full_message().count("Do not retry.") == 1
    health = await backend.check()
    assert not health.ok
    assert "not installed" in health.detail


async def test_a_missing_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolInactive, match="`cwd` does not exist"):
        await called(made(tmp_path, command=["ls"], cwd="gone"))


async def test_without_a_sandbox_it_refuses_and_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(self: Isolation) -> tuple[str, str]:
        return "no sandbox keeps programs from files outside", "Install bubblewrap."

    plain, off = made(command=["echo", "x"]), made(command=["echo", "x"], sandbox="off")
    is_off = Isolation.is_off
    why_none: Callable[[Isolation], Awaitable[Any]] = Isolation.why_none

    async def unless_off(self: Isolation) -> Any:
        return await why_none(self) if is_off.__get__(self) else await none(self)

    monkeypatch.setattr(Isolation, "why_none", unless_off)
    with pytest.raises(ToolInactive, match="files outside") as caught:
        await called(plain)
    assert "Install bubblewrap." in caught.value.full_message()
    assert not (await plain.check()).ok
    result = await called(off)
    assert text_of(result) == "x"
    assert result["_meta"] == {"mcpbridge/sandbox": "off"}
    assert "outside of any sandbox" in (await off.check()).detail


async def test_a_program_of_a_virtual_environment_runs_with_what_it_brings_along(tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    (prefix / "lib" / "words.txt").write_text("brought along")
    program = prefix / "bin" / "tell"
    program.write_text('#!/bin/sh\ncat "${0%/*}/../lib/words.txt"\n')
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    link = tmp_path / "tell"
    link.symlink_to(program)
    assert text_of(await called(made(tmp_path, command=["./env/bin/tell"]))) == "brought along"
    backend = made(command=["tell"], env={"PATH": f"{prefix / 'bin'}:/usr/bin:/bin"})
    assert text_of(await called(backend)) == "brought along"


async def test_a_cancelled_call_ends_its_program(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)
    tmp_path.chmod(0o755)
    sign = tmp_path / "out" / "pid"
    os.mkfifo(sign, 0o666)
    sign.chmod(0o666)
    backend = made(
        command=["sh", "-c", f"exec 3>{sign}; echo x >&3; sleep 60"],
        sandbox={"allow_fs": {"read_write": [str(tmp_path / "out")]}},
    )
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: called(backend))
            async with await anyio.open_file(sign) as stream:
                assert await stream.readline() == "x\n"
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    assert await stream.read() == ""  # nobody has it open any more: they are all gone


async def test_left_while_the_sandbox_is_tried_out_nothing_of_that_goes_on() -> None:
    """A trial that nobody waits for would be cut off with the loop, and its processes left behind."""
    tasks = asyncio.all_tasks()
    context = BackendContext(runner=Isolation(SandboxSettings()), directory=Path("/nonexistent"))
    backend = CommandBackend("tool", CommandSettings.model_validate({"command": ["true"]}), context)

    with anyio.fail_after(60):
        async with backend.running(lambda: None):
            while len(asyncio.all_tasks()) < len(tasks) + 2:  # the look, and the trial
                await asyncio.sleep(0)

    assert asyncio.all_tasks() == tasks


async def test_it_has_one_tool_and_no_management_commands() -> None:
    command = ["ruff", "check", ["--select", "{rules?}"], "{path}"]
    backend = made(command=command, description="Checks code.", sandbox="off")
    assert backend.tools == (
        {
            "name": "tool",
            "description": "Checks code.",
            "inputSchema": {
                "type": "object",
                "properties": {"rules": {"type": "string"}, "path": {"type": "string"}},
                "required": ["path"],
                "additionalProperties": False,
            },
        },
    )
    with pytest.raises(UnknownName):
        await backend.command("warmup", {})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"command": ["{program}"]}, "the program is fixed"),
        ({"command": []}, "at least 1 item"),
        ({"command": ["ls", "-{how}"]}, "choose the option"),
        ({"command": ["ls"], "options": ["x"]}, "is in no word"),
        ({"command": ["ls"], "sandbox": False}, 'sandbox = "off"'),
        ({"command": ["ls"], "sandbox": {"allow_fs": {"read_only": ["here"]}}}, "not an absolute path"),
        ({"command": ["ls", "{a}"], "input_schema": {"type": "object", "properties": {}}}, "no such property"),
        ({"command": ["ls"], "output_schema": {"type": "object"}}, "goes with output"),
        ({"command": ["ls"], "output": "json", "output_schema": {"type": "nonsense"}}, "nonsense"),
        ({"command": ["ls"], "stdin": "a\0"}, "pattern"),
    ],
)
def test_mistakes_of_the_settings_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=None) as caught:
        CommandSettings.model_validate(settings)
    assert told in json.dumps(str(caught.value)).replace('\\"', '"')


async def test_without_a_sandbox_it_is_not_listed_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: where no sandbox is ready a tool is not listed, and refuses, naming what is missing and the fix."""

    async def none(self: Isolation) -> tuple[str, str]:
        return "no sandbox keeps programs from files outside", "Install bubblewrap."

    monkeypatch.setattr(Isolation, "why_none", none)
    backend, told = made(command=["echo", "x"]), anyio.Event()
    async with backend.running(told.set):
        with anyio.fail_after(60):
            await told.wait()
        assert backend.condition.state == "failed"
        assert "files outside" in backend.condition.reason
        assert backend.tools == ()
        monkeypatch.undo()
        assert (await backend.check()).ok
        assert backend.condition.state == "ready"
        assert len(backend.tools) == 1
