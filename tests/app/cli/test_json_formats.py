"""Every command has `--json`, and prints what docs/reference/json.md says (issue 19).

`Place.run` compares each document of each test with the page's schema. Here each format is printed at least once.
"""

import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import tomlkit

from mcpbridge.app.cli.commands import COMMANDS, command_of, run
from mcpbridge.app.cli.json_formats.formats import FORMATS, WITHOUT
from support.harness import Finished, Place, python_server
from support.json_output import check, documents
from support.programs.daemon_process import daemon
from support.upstreams.oauth_server import oauth_world

ROOT = Path(__file__).parents[3]
DEMO = "demo/1"
"""Checked where the demo is played, in tests/app/demo."""

Run = Callable[..., Finished]
Case = tuple[str, Sequence[str], int]
"""A format, the command that prints it, and its exit code."""

ROWS = json.dumps([{"id": number, "name": f"row {number}"} for number in range(400)])
LARGE = json.dumps({"raw": json.dumps({"content": [{"type": "text", "text": ROWS}]})})

WITH_DAEMON: Sequence[Case] = [
    ("up/1", ["up", "--json"], 0),
    ("up/1", ["up", "--json"], 0),
    ("list/1", ["list", "--all", "--json"], 0),
    ("list-query/1", ["list", "--query", "echo", "--json"], 0),
    ("list-original/1", ["list", "--original", "--all", "--json"], 0),
    ("search/1", ["search", "echo", "--json", "--detail", "schemas"], 0),
    ("search/1", ["search", "qqqq", "--json"], 5),
    ("call/1", ["call", "one/echo", "text=hi", "--json"], 0),
    ("call/1", ["call", "rich/raw_result", "--args", LARGE, "--fit", "--json"], 0),
    ("error/1", ["call", "one/nothing", "--json"], 5),
    ("read/1", ["read", "memo://one", "--json"], 0),
    ("scan/1", ["scan", "one", "--json"], 0),
    ("lock/1", ["lock", "--check", "--json"], 1),
    ("lock/1", ["lock", "--json"], 0),
    ("lock-diff/1", ["lock", "diff", "--json"], 0),
    ("lock-approve/1", ["lock", "approve", "one", "--json"], 0),
    ("lock-sign/1", ["lock", "sign", "--new-key", "--json"], 0),
    ("lock-verify/1", ["lock", "verify", "--json"], 0),
    ("tokens/1", ["tokens", "--tools", "2", "--json"], 0),
    ("status/1", ["status", "--json"], 0),
    ("stats/1", ["stats", "--json"], 0),
    ("stats/1", ["stats", "--by", "day", "--by", "client", "--json"], 0),
    ("usage/1", ["usage", "--by", "user,tool,client,role,day", "--price", "3", "--json"], 0),
    ("usage-quotas/1", ["usage", "--quotas", "--json"], 0),
    ("cache/1", ["cache", "--json"], 0),
    ("cache-clear/1", ["cache", "clear", "--json"], 0),
    ("log/1", ["log", "--json"], 0),
    ("results/1", ["results", "--json"], 0),
    ("approvals/1", ["approvals", "--json"], 0),
    ("reload/1", ["reload", "--json"], 0),
    ("add/1", ["add", "more", "--json", "--", "no-such-program-here"], 0),
    ("disable/1", ["disable", "more", "--json"], 0),
    ("enable/1", ["enable", "more", "--json", "--dry-run"], 0),
    ("remove/1", ["remove", "more", "--json"], 0),
    ("manage/1", ["manage", "hello", "no-such-command", "--json"], 2),
    ("doctor/1", ["doctor", "--no-start", "--json"], 0),
    ("ui/1", ["ui", "--json"], 0),
    ("logs/1", ["logs", "--json"], 0),
    ("restart/1", ["restart", "--json"], 0),
    ("down/1", ["down", "--json"], 0),
    ("status/1", ["status", "--json"], 4),
    ("audit-show/1", ["audit", "show", "--json"], 0),
    ("audit-export/1", ["audit", "export", "--json"], 0),
    ("audit-verify/1", ["audit", "verify", "--json"], 0),
    ("audit-key/1", ["audit", "key", "--json"], 0),
]
ALONE: Sequence[Case] = [
    ("check/1", ["check", "--json"], 4),
    ("check-names/1", ["check", "one", "one/echo", "hello", "gone", "--json"], 4),
    ("doctor/1", ["doctor", "one", "gone", "--fix", "--yes", "--json"], 4),
    ("bench-routing/1", ["bench", "routing", "--misses", "--json"], 0),
    ("trust/1", ["trust", "--json", "servers.toml"], 0),
    ("trust-list/1", ["trust", "--list", "--json"], 0),
    ("untrust/1", ["untrust", "--json", "servers.toml"], 0),
    ("import/1", ["import", "clients.json", "--dry-run", "--json"], 0),
    ("install/1", ["install", "cursor", "--force", "--json"], 0),
    ("uninstall/1", ["uninstall", "cursor", "--json"], 0),
    ("init/1", ["init", "--yes", "--config", "new.toml", "--json"], 0),
    ("service-install/1", ["service", "install", "--name", "of-a-test", "--dry-run", "--json"], 0),
    ("service-install/1", ["service", "install", "--name", "of-a-test", "--json"], 0),
    ("service-status/1", ["service", "status", "--name", "of-a-test", "--json"], 0),
    ("service-uninstall/1", ["service", "uninstall", "--name", "of-a-test", "--json"], 0),
    ("token-new/1", ["token", "new", "--admin", "--json"], 0),
    ("auth-explain/1", ["auth", "explain", "--user", "ci", "one/echo", "--json"], 0),
    ("error/1", ["status", "--json", "--no-such-option"], 2),
    ("error/1", ["init", "--json"], 2),
]
ELSEWHERE = {
    *("login/1", "logout/1", "approve/1", "deny/1", "log-events/1", "results-show/1", "results-rm/1"),
    *("users-list/1", "users-revoke/1", "connections-link/1", "connections-set/1", "connections-rotate/1"),
    *("secret-set/1", "secret-list/1", "secret-rm/1", "auth-break-glass/1"),
    *("fleet-members/1", "fleet-status/1", "fleet-drain/1"),
}
"""Printed by tests below, one for each part of the bridge that they need; of a fleet in `tests/fleet`."""


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in the test process, in the folder and with the environment of the place."""
    for name in [*os.environ]:
        if name.startswith(("XDG_", "MCPBRIDGE")):
            monkeypatch.delenv(name)
    for name, value in place.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MCPBRIDGE_STANDALONE")
    monkeypatch.chdir(place.folder)
    servers = {"one": python_server("plain"), "rich": python_server("rich")}
    sections: Any = {
        "tools": {"hello": {"command": ["echo", "{text}"]}},
        "call_log": {"enabled": True},
        "audit": {"enabled": True},
        "results": {"threshold": 500},
    }
    path = place.config(servers, **sections)
    path.write_text(tomlkit.dumps(tomllib.loads(path.read_text())))  # in tables of their own, which can be edited
    monkeypatch.setenv("MCPBRIDGE_CONFIG", str(path))

    def run_command(*words: str) -> Finished:
        capsys.readouterr()
        code = run(words)
        said = capsys.readouterr()
        return Finished(code, said.out, said.err)

    return run_command


def ran(case: Case, here: Run) -> str:
    """What is wrong with what a command prints; empty: nothing."""
    name, words, code = case
    done = here(*words)
    try:
        printed = documents(words, done.out, done.err)
    except (AssertionError, ValueError) as error:
        return f"{' '.join(words)}: {error}\n{done.out[:500]}\n{done.err[:500]}"
    formats = {document["format"] for document in printed} - ({"error/1"} if name != "error/1" else set[str]())
    if formats != {name} or done.code != code or (name == "error/1" and done.out):
        return f"{' '.join(words)}: exit code {done.code}, {formats or 'nothing'}\n{done.err[:500]}"
    return ""


def test_commands_print_their_documents_beside_a_daemon(here: Run) -> None:
    try:
        faults = [ran(case, here) for case in WITH_DAEMON]
    finally:
        here("down")
    assert list(filter(None, faults)) == []


def test_commands_print_their_documents_alone(place: Place, here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("service units are written for Linux")
    (place.folder / "clients.json").write_text(json.dumps({"mcpServers": {"x": {"command": "x", "env": {"KEY": "k"}}}}))
    with (place.folder / "servers.toml").open("a") as file:
        file.write('\n[servers.gone]\ncommand = "no-such-program-here"\n')
    programs = place.folder / "bin"  # where no service manager is
    programs.mkdir()
    (programs / "echo").symlink_to("/bin/echo")
    monkeypatch.setenv("PATH", str(programs))
    assert list(filter(None, (ran(case, here) for case in ALONE))) == []


async def test_approvals(place: Place) -> None:
    asking = python_server("plain", tool={"echo": {"permission": "require_approval"}})
    settings: Any = {"approval": {"timeout": 0.2, "ask": ["pending"]}, "call_log": {"enabled": True}}
    async with place.bridge({"up": asking}, **settings) as client:
        await client.initialize()
        for text in ("a", "b"):
            assert (await client.call("up__echo", text=text)).failed
        waiting = await printed(place, "approvals/1", "approvals")
        first, second = (one["id"] for one in waiting["approvals"])
        await printed(place, "approve/1", "approve", first, "--session")
        await printed(place, "deny/1", "deny", second)
        await printed(place, "log-events/1", "log", "--events", "-n", "1")


async def test_results(place: Place) -> None:
    async with place.bridge({"up": python_server("plain")}, results={"threshold": 500}) as client:
        await client.initialize()
        reply = await client.call("up__raw_result", **json.loads(LARGE))
        handle = reply.result["_meta"]["mcpbridge/result"]["handle"]
        shown = await printed(place, "results-show/1", "results", "show", handle)
        assert json.loads(shown["text"]) == json.loads(ROWS)
        await printed(place, "results-show/1", "results", "show", handle, "--preview", "300")
        shown = await printed(place, "results-show/1", "results", "show", handle, "--raw")
        assert shown["result"]["content"][0]["text"] == ROWS
        await printed(place, "results-rm/1", "results", "rm", handle)


async def test_a_sign_in(place: Place) -> None:
    async with oauth_world() as world:
        world.bend_metadata = lambda document: {
            **document,
            "token_endpoint": f"{world.url.removesuffix('/mcp')}/machine-token",
        }
        world.machine_tokens = []
        machine = {"type": "client-credentials", "client_id": "machine", "client_secret": "a-secret"}
        config = str(place.config({"up": {"url": world.url, "era": "legacy", "auth": machine}}))
        await printed(place, "login/1", "login", "up", "--config", config)
        await printed(place, "logout/1", "logout", "up", "--config", config)


async def test_a_stored_secret(place: Place, here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a value\n")))
    for name, words in (("set", ("github",)), ("list", ()), ("rm", ("github",))):
        done = here("secret", name, *words, "--json")
        [document] = documents(("--json",), done.out, done.err)
        assert (done.code, document["format"]) == (0, f"secret-{name}/1"), done.err
        check(document)


async def test_a_role_that_is_taken(place: Place) -> None:
    role = {"name": "oncall", "principals": "ci", "tools": "*", "break_glass": True}
    config = str(place.config({"one": python_server("plain")}, roles=[role], audit={"enabled": True}))
    words = ("auth", "break-glass", "oncall", "--user", "ci", "--reason", "it is down", "--config", config)
    refused = await place.run(*words)
    assert refused.code == 4, "a bridge that ends with the command gives nothing"
    place.env["MCPBRIDGE_STANDALONE"] = "0"
    async with daemon(place, Path(config)):
        taken = await printed(place, "auth-break-glass/1", *words)
        assert (taken["user"], taken["role"], taken["reason"]) == ("ci", "oncall", "it is down")
        explained = await place.run("auth", "explain", "--user", "ci", "one/journal", "--config", config, "--json")
        assert json.loads(explained.out)["roles"] == ["oncall"]
        [shown] = (await printed(place, "status/1", "status"))["bridges"]
        [grant] = shown["break_glass"]
        assert (grant["user"], grant["role"], grant["reason"], grant["by"]) == ("ci", "oncall", "it is down", "cli")
        assert grant["since"] < grant["until"]
        text = (await place.run("status")).out
        assert f"emergency: ci has the role oncall until {grant['until']}: it is down" in text
    audited = await place.run("audit", "show", "--json", "--kind", "role.*", "--config", config)
    [row] = [json.loads(line) for line in audited.out.splitlines()]
    assert (row["kind"], row["principal"], row["role"]) == ("role.taken", "ci", "oncall")
    assert row["facts"] == {"reason": "it is down", "seconds": 900, "by": "cli"}


async def printed(place: Place, name: str, *words: str) -> dict[str, Any]:
    """The one document of this format that a command prints."""
    done = await place.run(*words, "--json")
    [document] = documents(("--json",), done.out, done.err)
    assert (done.code, document["format"]) == (0, name), done.err
    return document


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, with their names as formats have them."""
    if isinstance(command, click.Group):
        if command.invoke_without_command:
            yield name, command
        for inner, one in command.commands.items():
            yield from leaves(one, f"{name}-{inner}")
    else:
        yield name, command


def commands() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        if name not in ("serve", "daemon"):  # they have parsers of their own
            yield from leaves(command_of(name), name)


def test_every_command_has_json_or_the_page_says_why_not() -> None:
    """If this fails for a new command: give it `as_json_option` and an entry in `json_formats/formats.py`."""
    named = {name.rpartition("/")[0] for name in FORMATS}
    same = {"results-list": "results"}
    for name, command in commands():
        has_json = any("--json" in one.opts for one in command.params)
        assert has_json != (name in WITHOUT), f"{name}: --json, or an entry in WITHOUT"
        assert not has_json or same.get(name, name) in named, f"{name}: no format"
    assert WITHOUT.keys() <= COMMANDS.keys()


def test_every_format_is_printed_by_a_test() -> None:
    tried = {name for name, _, _ in (*WITH_DAEMON, *ALONE)}
    assert tried | ELSEWHERE | {DEMO} == FORMATS.keys()


def test_every_format_that_the_code_prints_is_documented_and_the_other_way_round() -> None:
    paths = [path for path in (ROOT / "src/mcpbridge/app/cli").rglob("*.py") if "json_formats" not in path.parts]
    code = "".join(path.read_text("utf-8") for path in paths)
    assert set(re.findall(r'"([a-z-]+/\d+)"', code)) == FORMATS.keys()


def test_the_page_is_what_the_types_say() -> None:
    script = ROOT / "scripts/json_reference.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    "document",
    [
        {"down": 1},
        {"format": "down/2", "stopped": []},
        {"stopped": [], "format": "down/1"},
        {"format": "down/1"},
        {"format": "down/1", "stopped": ["12"]},
        {"format": "down/1", "stopped": [], "more": 1},
    ],
)
def test_a_document_that_is_not_as_documented_is_noticed(document: dict[str, Any]) -> None:
    check({"format": "down/1", "stopped": [12]})
    with pytest.raises(AssertionError):
        check(document)
