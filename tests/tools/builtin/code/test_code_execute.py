"""`code-execute`: what programs do and what is told of it, what they cannot reach, and when it refuses."""

import asyncio
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from mcpbridge.base.errors import ArgumentsRefused, ToolInactive
from mcpbridge.core.model import BUILTIN, Call
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import encode
from mcpbridge.sandbox.runner import Isolation
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.tools.builtin.code.code_execute import CodeExecute
from mcpbridge.tools.builtin.code.languages import Interpreter
from mcpbridge.tools.builtin.code.settings import CodeExecuteSettings
from support.virtual_time import pass_time

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no sandbox elsewhere")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")

_SANDBOX = Isolation(SandboxSettings())
_ALONE = Isolation(SandboxSettings(mode="launcher"))

either = pytest.mark.parametrize("runner", [_SANDBOX, _ALONE], ids=["best", "launcher"])


def made(runner: Isolation = _SANDBOX, *, path: str | None = None, **settings: Any) -> CodeExecute:
    return CodeExecute(CodeExecuteSettings.model_validate(settings), runner, path=path)


async def ran(code: str, language: str = "python", *, tool: CodeExecute | None = None, **more: Any) -> dict[str, Any]:
    params = Body(encode({"name": "code-execute", "arguments": {"language": language, "code": code, **more}}))
    with anyio.fail_after(150):
        return (await (tool or made()).run(Call("tools/call", BUILTIN, "code-execute", params))).value()


def text_of(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


def a_pipe(folder: Path) -> Path:
    """One in a directory of its own, which programs may be allowed to use."""
    folder.chmod(0o755)
    pipe = folder / "out" / "pipe"
    pipe.parent.mkdir()
    pipe.parent.chmod(0o777)
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    return pipe


async def test_python_runs_and_everything_is_told() -> None:
    code = "import sys\nprint(sum(range(10)))\nprint('hm', file=sys.stderr)\nopen('out.csv', 'w').write('a,b')"
    result = await ran(code)
    assert text_of(result) == "45\nstderr:\nhm\nfiles: out.csv (3 bytes)"
    value = result["structuredContent"]
    assert value.pop("seconds") > 0
    assert value == {
        "ended": "exit",
        "exitCode": 0,
        "stdout": "45\n",
        "stderr": "hm\n",
        "cut": {"stdout": 0, "stderr": 0},
        "files": [{"name": "out.csv", "size": 3}],
    }
    assert "isError" not in result
    assert result["_meta"]["mcpbridge/sandbox"] in ("bubblewrap", "launcher")


async def test_what_it_is_given_is_there() -> None:
    code = "import sys\nprint(sys.stdin.read(), open('data.txt').read())\nimport helper\nprint(helper.x, exit)"
    result = await ran(code, stdin="in", files={"data.txt": "ä", "helper.py": "x = 1"})
    assert text_of(result).splitlines()[:2] == ["in ä", text_of(result).splitlines()[1]]
    assert result["structuredContent"]["files"] == []


@needs_node
@pytest.mark.parametrize(
    "code",
    [
        "console.log([1, 2, 3].map(x => x * 2).join())",
        "import os from 'node:os';\nconst a = await Promise.resolve('2,4,6');\nconsole.log(a)",
        "const {EOL} = require('os');\nprocess.stdout.write('2,4,6' + EOL)",
    ],
)
@either
async def test_javascript_runs_as_either_kind_of_module(runner: Isolation, code: str) -> None:
    result = await ran(code, "javascript", tool=made(runner))
    assert text_of(result) == "2,4,6", result


@needs_node
@either
async def test_the_memory_of_javascript_is_limited(runner: Isolation) -> None:
    code = "const all = []; for (;;) all.push('x'.repeat(1 << 20) + all.length)"
    result = await ran(code, "javascript", tool=made(runner, sandbox={"memory": "128 MB", "timeout": 120}))
    assert result["isError"]
    assert result["structuredContent"]["ended"] != "timeout"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import x from 'y'", "main.mjs"),
        ("const x = await f()", "main.mjs"),
        ("export default 1", "main.mjs"),
        ("const x = require('y')\nasync function f() {\n  await g()\n}", "main.cjs"),
        ("const x = import('y')", "main.cjs"),
        ("console.log(1)", "main.cjs"),
    ],
)
def test_the_kind_of_a_module_is_told_from_its_code(code: str, name: str) -> None:
    assert Interpreter("javascript", "/usr/bin/node").file_for(code) == name


async def test_a_shell_runs_if_it_is_switched_on() -> None:
    shell = made(languages=["shell"])
    assert text_of(await ran("echo $((6 * 7)) | cat", "shell", tool=shell)) == "42"
    with pytest.raises(ToolInactive, match=r"shell \(sh\) is not switched on"):
        await ran("echo", "shell")
    assert shell.definition["inputSchema"]["properties"]["language"]["enum"] == ["shell"]
    assert "shell" not in made().definition["inputSchema"]["properties"]["language"]["enum"]


async def test_a_failure_is_an_error_with_all_that_was_said() -> None:
    result = await ran("print('before')\nraise SystemExit(3)")
    assert result["isError"]
    assert text_of(result) == "The program failed: exit code 3\nstdout:\nbefore"
    result = await ran("1 / 0")
    assert 'main.py", line 1' in text_of(result)
    assert "ZeroDivisionError" in text_of(result)
    assert result["structuredContent"]["exitCode"] == 1


async def test_a_fence_around_the_code_is_none_of_it() -> None:
    assert text_of(await ran("```python\nprint(1)\n```")) == "1"


async def test_time_is_limited_and_a_call_may_take_less(tmp_path: Path) -> None:
    sign = a_pipe(tmp_path)
    tool = made(sandbox={"allow_fs": {"read_write": [str(sign.parent)]}})
    call = asyncio.ensure_future(
        ran(f"print('begun')\nopen({str(sign)!r}, 'w')\nwhile True: pass", tool=tool, timeout=20)
    )
    async with await anyio.open_file(sign) as stream:
        assert await stream.read() == ""  # it has said what it had to say
    pass_time(20)
    result = await call
    assert result["isError"]
    assert text_of(result) == "The program failed: stopped after 20s: it had no more time\nstdout:\nbegun"
    assert result["structuredContent"]["ended"] == "timeout"
    assert made(sandbox={"timeout": 5}).definition["inputSchema"]["properties"]["timeout"]["maximum"] == 5
    result = await ran("import time\ntime.sleep(60)", tool=made(sandbox={"timeout": 0.2}), timeout=50)
    assert "stopped after 200ms" in text_of(result)


async def test_output_is_cut_and_how_much_is_said() -> None:
    result = await ran("print('x' * 99)", tool=made(sandbox={"output": 10}))
    assert text_of(result) == "xxxxxxxxxx\n[stdout had 100 bytes: the first 10 are shown, 90 were cut]"
    assert result["structuredContent"]["cut"] == {"stdout": 90, "stderr": 0}


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("memory", "x = bytearray(10 ** 9); x[::4096] = b'1' * len(x[::4096]); print('got', 'it')"),
        (
            "size of files",
            "f = open('x', 'wb'); [f.write(bytes(1 << 20)) for _ in range(100)]; f.close(); print('got', 'it')",
        ),
        (
            "processes",
            "import os, time\nfor _ in range(99):\n  if not os.fork(): time.sleep(20); os._exit(0)\nprint('got', 'it')",
        ),
    ],
)
@either
async def test_limits_hold(runner: Isolation, what: str, code: str) -> None:
    result = await ran(code, tool=made(runner))
    assert result["isError"], what
    assert "got it" not in text_of(result)


@either
async def test_nothing_outside_is_reached(runner: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, the environment, the network, sockets, and other processes."""
    monkeypatch.setenv("SECRET_CANARY", "canary")
    tmp_path.chmod(0o777)
    secret = tmp_path / "secret"
    secret.write_text("canary")
    (tmp_path / "link").symlink_to(secret)
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(tmp_path / "socket"))
    local.listen()
    tcp = socket.create_server(("127.0.0.1", 0))
    code = f"""
import ctypes, os, signal, socket, subprocess
def unix():
    one = socket.socket(socket.AF_UNIX); one.connect({str(tmp_path / "socket")!r})
def udp():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
tries = dict(
    read=lambda: open({str(secret)!r}).read(),
    link=lambda: open({str(tmp_path / "link")!r}).read(),
    own_link=lambda: (os.symlink({str(secret)!r}, "mine"), open("mine").read()),
    hard_link=lambda: os.link({str(secret)!r}, "hard"),
    accounts=lambda: open("/etc/shadow").read(),
    write=lambda: open({str(tmp_path / "made")!r}, "w"),
    system=lambda: open("/usr/bin/made-by-a-test", "w"),
    tcp=lambda: socket.create_connection({tcp.getsockname()!r}, 2),
    udp=udp,
    unix=unix,
    name=lambda: socket.getaddrinfo("example.com", 80)[0],
    environment=lambda: os.environ["SECRET_CANARY"],
    parent=lambda: open("/proc/{os.getpid()}/environ", "rb").read(),
    kill=lambda: os.kill({os.getpid()}, 0),
    program=lambda: subprocess.run(["cat", {str(secret)!r}], check=True, stderr=subprocess.DEVNULL),
    root=lambda: os.setuid(0) if os.getuid() else 1 / 0,
)
for name, tried in tries.items():
    try:
        tried()
    except Exception as error:
        print(name, "stopped")
    else:
        print(name, "DONE")
"""
    try:
        result = await ran(code, tool=made(runner))
    finally:
        local.close()
        tcp.close()
    lines = text_of(result).splitlines()
    assert len([line for line in lines if line.endswith(" stopped")]) == 16, lines
    assert "DONE" not in text_of(result)
    assert not (tmp_path / "made").exists()


@either
async def test_nothing_outlives_a_program(runner: Isolation, tmp_path: Path) -> None:
    """A grandchild in a session of its own neither goes on nor holds the answer up."""
    held = a_pipe(tmp_path)
    code = f"""
import os, time
held = open({str(held)!r}, "w")
print("begun", flush=True)
if not os.fork():
    try: os.setsid()
    except OSError: pass
    if not os.fork():
        time.sleep(600)
"""
    tool = made(runner, sandbox={"allow_fs": {"read_write": [str(held.parent)]}})
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ran(code, tool=tool))
            async with await anyio.open_file(held) as stream:
                assert await stream.read() == ""  # nobody has it open any more


async def test_two_programs_share_nothing() -> None:
    await ran("open('left', 'w').write('x'); open('/tmp/left-by-a-test', 'w').write('x')")
    assert text_of(await ran("import os; print(os.listdir('.'), os.path.exists('/tmp/left-by-a-test'))")).startswith(
        "['main.py'] False"
    )


async def test_limits_of_the_section_hold_where_the_tool_says_nothing() -> None:
    section = SandboxSettings(timeout=7, env={"A": "section", "B": "section"}, output=100)
    tool = made(Isolation(section), sandbox={"env": {"B": "own"}, "output": 5})
    assert tool.definition["inputSchema"]["properties"]["timeout"]["maximum"] == 7
    result = await ran("import os; print(os.environ['A'], os.environ['B'])", tool=tool)
    assert result["structuredContent"]["stdout"] == "secti"
    switched_off = made(Isolation(SandboxSettings(enabled=False)))
    with pytest.raises(ToolInactive, match="sandboxes are switched off"):
        await ran("1", tool=switched_off)


@pytest.mark.parametrize(
    "files",
    [{"../x": ""}, {"a/b": ""}, {"": ""}, {"..": ""}, {".": ""}, {"a\0": ""}, {"x" * 300: ""}, {"main.py": ""}],
)
async def test_names_that_are_no_plain_files_are_refused(files: dict[str, str]) -> None:
    with pytest.raises(ArgumentsRefused, match="files"):
        await ran("1", files=files)


async def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(ArgumentsRefused, match="at most 1,024"):
        await ran("1", stdin="x" * 1024, tool=made(max_input=1024))


async def test_without_a_sandbox_it_is_not_listed_and_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(self: Isolation) -> tuple[str, str]:
        return "no sandbox keeps programs from files outside", "Install bubblewrap."

    monkeypatch.setattr(Isolation, "why_none", none)
    tool, told = made(), anyio.Event()
    assert not tool.is_ready
    async with tool.running(told.set):
        await tool.prepare()
    assert not tool.is_ready
    assert tool.why_not == "no sandbox keeps programs from files outside. Install bubblewrap"
    with pytest.raises(ToolInactive, match="files outside"):
        await ran("1", tool=tool)


async def test_it_tells_once_it_is_ready() -> None:
    tool, told = made(), anyio.Event()
    assert tool.why_not
    with anyio.fail_after(60):
        async with tool.running(told.set):
            await told.wait()
    assert tool.is_ready
    assert tool.why_not == ""


async def test_switched_off_it_says_so_and_asks_a_person() -> None:
    for tool in (made(Isolation(SandboxSettings(mode="off"))), made(sandbox="off")):
        result = await ran("import os; print(os.getuid())", tool=tool)
        assert text_of(result) == str(os.getuid())
        assert result["_meta"] == {"mcpbridge/sandbox": "off"}
        assert tool.treatment.permission == "require_approval"
        assert tool.definition["annotations"]["destructiveHint"]
        assert "all rights of the user" in tool.definition["description"]
    assert made().treatment.permission == "allow"
    assert made().treatment.risk == "high"
    assert not made().definition["annotations"]["destructiveHint"]


async def test_a_language_without_a_program_is_not_offered(tmp_path: Path) -> None:
    tool = made(languages=["python", "javascript"], interpreters={"javascript": "no-such-program"}, path=str(tmp_path))
    assert tool.definition["inputSchema"]["properties"]["language"]["enum"] == ["python"]
    with pytest.raises(ToolInactive, match="nothing here runs JavaScript"):
        await ran("1", "javascript", tool=tool)


async def test_an_interpreter_of_the_users_own() -> None:
    """The bridge's own Python stands for a virtual environment somewhere."""
    tool = made(interpreters={"python": sys.executable})
    result = await ran("import sys, msgspec; print(sys.prefix)", tool=tool)
    assert text_of(result) == sys.prefix, result


@pytest.mark.parametrize(
    "settings",
    [{"languages": []}, {"languages": ["ruby"]}, {"interpreters": {"python": "here/python"}}, {"sandbox": "on"}],
)
def test_mistakes_of_the_settings_are_told(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CodeExecuteSettings.model_validate(settings)
