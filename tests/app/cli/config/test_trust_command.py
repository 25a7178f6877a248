"""Commands and a configuration of the working directory that nobody named: nothing of it runs unasked (issue 18)."""

import asyncio
import fcntl
import io
import json
import os
import pty
import shlex
import sys
import termios
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from mcpbridge.config.load import read
from mcpbridge.config.trust.content import whole_content
from mcpbridge.config.trust.decisions import TrustStore
from support.harness import Place, StdioClient, eventually, python_server

STARTING = [
    ["list"],
    ["list", "--json"],
    ["search", "anything"],
    ["check"],
    ["check", "evil"],
    ["doctor"],
    ["tokens"],
    ["call", "evil/x"],
    ["call", "recall"],
    ["read", "file:///x"],
    ["up"],
    ["restart"],
    ["login", "evil"],
    ["manage", "evil", "reindex"],
    ["bench", "routing"],
    ["service", "install"],
    ["install", "claude-code", "--force", "--dry-run"],
    ["init", "--yes"],
    ["daemon"],
    ["serve"],
    ["serve", "--http", "127.0.0.1:0"],
]


SERVER = python_server("plain")["args"][1]
"""A script that is a server."""


def touching(folder: Path) -> str:
    script = f"import pathlib; pathlib.Path({str(folder / 'owned')!r}).touch()"
    return f"[servers.evil]\ncommand = {json.dumps(sys.executable)}\nargs = ['-c', {json.dumps(script)}]\n"


@pytest.mark.parametrize("words", STARTING, ids=" ".join)
async def test_what_starts_servers_refuses_a_file_that_nobody_trusts(place: Place, words: list[str]) -> None:
    """Without a terminal; the refusal names what to type."""
    file = place.folder / "servers.toml"
    file.write_text(touching(place.folder))
    finished = await place.run(*words)
    said = finished.out + finished.err
    if "No such option" in said or "Usage:" in said:
        pytest.fail(said)
    assert finished.code == 2, said
    assert f"mcpbridge trust {file}" in said, said
    assert not (place.folder / "owned").exists()


async def test_what_the_refusal_names_lets_it_run_until_it_changes(place: Place) -> None:
    file = place.folder / "servers.toml"
    file.write_text(place.config({"one": python_server("plain")}).read_text())
    refused = await place.run("list", "--json")
    assert refused.code == 2
    told = json.loads(refused.err)["error"]
    [command] = [part for part in told["message"].split("`") if part.startswith("mcpbridge trust ")]
    trusted = await place.run(*shlex.split(command)[1:])
    assert trusted.code == 0
    assert "server one:" in trusted.out
    assert (await place.run("list", "--json")).code == 0
    file.write_text(file.read_text().replace("servers = {", 'servers = { more = { command = "more" },'))
    assert "has changed since it was trusted" in (await place.run("list")).err
    listed = json.loads((await place.run("trust", "--list", "--json")).out)
    assert [(one["path"], one["state"]) for one in listed["trusted"]] == [(str(file), "changed")]
    changed = await place.run("disable", "one")
    assert changed.code == 0, changed.err
    assert (await place.run("list")).code == 2, "our own change of an edit that nobody has seen says nothing for it"
    assert (await place.run("trust")).code == 0
    assert (await place.run("remove", "more")).code == 0
    assert (await place.run("enable", "one")).code == 0
    assert (await place.run("list", "--json")).code == 0, "what our own commands change stays trusted"
    assert "trusted no longer" in (await place.run("untrust", str(place.folder))).out
    assert (await place.run("list")).code == 2
    assert "was not trusted" in (await place.run("untrust")).out


async def test_a_named_file_is_never_asked_about(place: Place) -> None:
    config = place.config({"one": python_server("plain")})
    assert (await place.run("list", "--config", "servers.toml")).code == 0
    place.env["MCPBRIDGE_CONFIG"] = str(config)
    assert (await place.run("list")).code == 0


@pytest.mark.parametrize(
    "words", [["status"], ["down"], ["logs"], ["trust", "--list"], ["results"], ["log"]], ids=" ".join
)
async def test_what_starts_nothing_needs_no_trust(place: Place, words: list[str]) -> None:
    (place.folder / "servers.toml").write_text(touching(place.folder))
    finished = await place.run(*words)
    assert "mcpbridge trust" not in finished.out + finished.err
    assert not (place.folder / "owned").exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 2), ("\n", 2), ("", 2), ("maybe\n", 2)])
def test_a_person_is_shown_what_would_run_and_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    from mcpbridge.app.cli.config.config_path import load_trusted
    from mcpbridge.config.trust.decisions import NotTrusted

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MCPBRIDGE_CONFIG", raising=False)
    Path("servers.toml").write_text(
        '[servers.a]\ncommand = "run-a"\nargs = ["--key", "${KEY}", "\\u001b[2J"]\n'
        '[servers.a.env]\nAPI_KEY = "${KEY}"\n'
    )
    monkeypatch.setenv("KEY", "very-secret-value")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", screen)
    if code:
        with pytest.raises(NotTrusted):
            load_trusted(None)
    else:
        assert load_trusted(None).is_found
    shown = screen.getvalue()
    assert "server a: run-a --key" in shown
    assert "Trust it? [y/N]" in shown
    assert "very-secret-value" not in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("words", [["list"], ["trust"]], ids=" ".join)
@pytest.mark.parametrize(
    ("typed_ahead", "answer", "code"),
    [
        ("", "y\n", 0),
        ("", "yes\n", 0),
        ("", "n\n", 2),
        ("", "\n", 2),
        ("", "\x04", 2),
        ("", "\x03", 130),
        ("y\ny\n", "n\n", 2),
    ],
)
async def test_at_a_real_terminal_only_what_is_typed_after_the_question_answers_it(
    place: Place, words: list[str], typed_ahead: str, answer: str, code: int
) -> None:
    """What was typed while another command ran is no answer to a question that nobody had seen."""
    (place.folder / "servers.toml").write_text(place.config({"one": python_server("plain")}).read_text())
    ours, its = pty.openpty()
    shown = b""
    try:
        os.write(ours, typed_ahead.encode())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "mcpbridge", *words),
            stdin=its,
            stdout=its,
            stderr=its,
            cwd=place.folder,
            env=place.environment(),
            start_new_session=True,
            preexec_fn=partial(take_terminal, its),
        )
        os.close(its)
        async with asyncio.timeout(60):
            while b"[y/N]" not in shown:
                shown += await asyncio.to_thread(os.read, ours, 65536)
            assert b"server one:" in shown, "what it starts is shown before the question"
            os.write(ours, answer.encode())
            with suppress(OSError):  # its end
                while piece := await asyncio.to_thread(os.read, ours, 65536):
                    shown += piece
            assert await process.wait() == code, shown
        if words == ["list"]:
            assert (b"one__" in shown) is (code == 0)
        listed = json.loads((await place.run("trust", "--list", "--json")).out)
        assert bool(listed["trusted"]) is (code == 0)
    finally:
        os.close(ours)
        place.kill_survivors()


def take_terminal(terminal: int) -> None:
    """Make it the one whose Ctrl-C ends the process."""
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


async def test_a_daemon_goes_on_with_what_was_trusted_until_a_person_says_yes(place: Place) -> None:
    """Also after our own changes, which need no new yes."""
    place.env["MCPBRIDGE_STANDALONE"] = "0"
    file = place.config({"one": python_server("plain")}, daemon={"idle_exit": 60})
    first = file.read_text()
    assert (await place.run("trust")).code == 0
    place._running += 1  # commands that are run meanwhile leave the daemon alone
    try:
        up = await place.run("up")
        assert up.code == 0, up.err

        async def status() -> dict[str, object]:
            return json.loads((await place.run("status", "--json")).out)["bridges"][0]

        async def names() -> list[str]:
            return sorted(one["name"] for one in (await status())["servers"])  # pyright: ignore

        file.write_text(touching(place.folder))
        waits = await eventually(status, lambda one: bool(one["config_error"]), within=30)
        assert f"mcpbridge trust {file}" in str(waits["config_error"])
        assert "waits for a new yes" in (await place.run("status")).out
        reloaded = await place.run("reload")
        assert (reloaded.code, "mcpbridge trust" in reloaded.out) == (2, True)
        assert await names() == ["one"]
        assert not (place.folder / "owned").exists()
        assert (await place.run("restart")).code == 2, "it would start with the other content"
        assert await names() == ["one"]

        file.write_text(first)
        assert (await place.run("reload")).code == 0
        changed = await place.run("disable", "one")
        assert changed.code == 0, changed.err
        await eventually(status, lambda one: one["config_error"] is None, within=30)
        file.write_text(touching(place.folder))
        await eventually(status, lambda one: bool(one["config_error"]), within=30)
        assert (await place.run("trust")).code == 0
        await eventually(names, lambda found: found == ["evil"], within=30)
        await eventually(lambda: _exists(place.folder / "owned"), lambda is_there: is_there, within=30)
    finally:
        await place.run("down", "--all")
        place._running -= 1
        place.kill_survivors()


async def _exists(path: Path) -> bool:
    return path.exists()


@pytest.mark.parametrize("alone", ["1", "0"])
async def test_a_client_that_is_opened_there_gets_what_is_trusted_and_else_the_users_own(
    place: Place, alone: str
) -> None:
    place.env |= {"MCPBRIDGE_STANDALONE": alone, "XDG_CONFIG_HOME": str(place.folder / "config")}
    users = place.folder / "config/mcpbridge/servers.toml"
    users.parent.mkdir(parents=True)
    users.write_text(place.config({"mine": python_server("plain")}, daemon={"idle_exit": 0.2}).read_text())
    here = place.config({"repo": python_server("plain")}, daemon={"idle_exit": 0.2})
    place._running += 1  # the daemons may outlive their clients for a moment
    try:
        for expected in ("mine", "repo"):
            async with place.started("serve") as command:
                assert command.process.stdin
                assert command.process.stdout
                client = StdioClient(command.process.stdout, command.process.stdin, command)
                async with client.reading():
                    await client.initialize()
                    assert f"{expected}__echo" in await client.tools_with(f"{expected}__echo")
            loaded = read(here, {})
            TrustStore(place.environment()).add(here, whole_content(loaded.settings, loaded.content))
    finally:
        await place.run("down", "--all")
        place._running -= 1
        place.kill_survivors()


async def test_commands_of_secrets_are_shown_and_not_run_before_somebody_says_yes(place: Place) -> None:
    """Issue 22: `${cmd:…}` is something that runs, wherever it is in the file."""
    server = python_server("plain")
    env = {"TOKEN": "${cmd:touch owned-by-env}", "OTHER": "${secret:nowhere}"}
    place.config(
        {"one": {**server, "env": env}, "two": {"url": "${cmd:touch owned-by-url}"}}, store={"key": "${cmd:./key}"}
    )
    for words in (["list"], ["check"], ["serve"], ["status"], ["trust", "--list"], ["results"], ["log"], ["doctor"]):
        finished = await place.run(*words)
        assert not list(place.folder.glob("owned*")), words
        assert "canary" not in finished.out + finished.err
    trusted = await place.run("trust")
    assert trusted.code == 0, trusted.err
    for shown in ("${cmd:touch owned-by-env}", "${cmd:touch owned-by-url}", "${cmd:./key}", "${secret:nowhere}"):
        assert shown in trusted.out
    assert not list(place.folder.glob("owned*"))
    await place.run("list")
    assert {path.name for path in place.folder.glob("owned*")} == {"owned-by-env", "owned-by-url"}


async def test_a_yes_covers_the_scripts_of_a_repository_and_a_change_is_shown(place: Place) -> None:
    """Issue 22, with a real folder: what the configuration names is asked about again when it changes."""
    (place.folder / ".git").mkdir()
    script, helper = place.folder / "server.py", place.folder / "helper.py"
    script.write_text(f"import helper, runpy\nrunpy.run_path({SERVER!r}, run_name='__main__')\n")
    helper.write_text("# harmless\n")
    file = place.config({"one": {"command": sys.executable, "args": ["server.py"]}})
    told = await place.run("trust")
    assert "a yes covers the present content of helper.py, server.py" in told.out, told.out + told.err
    assert (await place.run("list", "--json")).code == 0
    for path in (script, helper):
        before = path.read_text()
        path.write_text(f"{before}import os\n")
        refused = await place.run("list")
        assert (refused.code, f"({path})" in refused.err) == (2, True), refused.err
        path.write_text(before)
    helper.write_text("import os\n")
    file.write_text(file.read_text().replace('"server.py"', '"server.py", "--verbose"'))
    shown = (await place.run("trust")).out
    assert "changed: helper.py" in shown
    assert "changed: servers.toml" in shown
    assert '--verbose"' in shown
    listed = json.loads((await place.run("trust", "--list", "--json")).out)
    assert [one["state"] for one in listed["trusted"]] == ["trusted"]


def test_the_question_after_a_change_shows_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcpbridge.app.cli.config.config_path import load_trusted

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.delenv("MCPBRIDGE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("run.sh").write_text("echo one\n")
    text = '[servers.a]\ncommand = "sh"\nargs = ["run.sh"]\n[servers.unchanged]\ncommand = "unchanged-program"\n'
    Path("servers.toml").write_text(text)
    screens = list[str]()

    def asked() -> str:
        screen = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
        monkeypatch.setattr(sys, "stderr", screen)
        assert load_trusted(None).is_found
        screens.append(screen.getvalue())
        return screens[-1]

    assert "unchanged-program" in asked()
    assert asked() == "", "nobody is asked twice about the same"
    Path("run.sh").write_text("echo two\n")
    assert "changed: run.sh" in asked()
    Path("servers.toml").write_text(text.replace("run.sh", "run.sh -x"))
    shown = asked()
    assert '-args = ["run.sh"]' in shown
    assert '+args = ["run.sh -x"]' in shown
    assert "unchanged-program" not in shown


async def test_a_running_bridge_starts_nothing_whose_script_changed_until_a_person_says_yes(place: Place) -> None:
    place.env["MCPBRIDGE_STANDALONE"] = "0"
    script = place.folder / "server.py"
    harmless = f"import runpy\nrunpy.run_path({SERVER!r}, run_name='__main__')\n"
    script.write_text(harmless)
    server = {"command": sys.executable, "args": ["server.py"], "start": "lazy", "idle_stop": 0.2}
    place.config({"one": server}, daemon={"idle_exit": 60})
    assert (await place.run("trust")).code == 0
    place._running += 1  # commands that are run meanwhile leave the daemon alone
    try:
        assert (await place.run("up")).code == 0

        async def status() -> dict[str, object]:
            return json.loads((await place.run("status", "--json")).out)["bridges"][0]

        async def state() -> str:
            [one] = (await status())["servers"]  # pyright: ignore
            return one["state"]  # pyright: ignore

        await eventually(state, lambda found: found in ("idle", "stopped"), within=60)
        script.write_text(f"import pathlib; pathlib.Path({str(place.folder / 'owned')!r}).touch()\n{harmless}")
        waits = await eventually(status, lambda one: bool(one["config_error"]), within=30)
        assert "server.py" in str(waits["config_error"])
        called = await place.run("call", "one/echo", "text=x")
        assert called.code != 0
        assert "changed since it was trusted" in called.out + called.err, called.out + called.err
        assert not (place.folder / "owned").exists()
        assert (await place.run("trust")).code == 0
        await eventually(status, lambda one: one["config_error"] is None, within=30)
    finally:
        await place.run("down", "--all")
        place._running -= 1
        place.kill_survivors()
