"""`mcpbridge doctor` as people run it: against real servers that work, and such that do not (issue 7)."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.cli.commands import run
from support.harness import Finished, Place, python_server

PLAIN = python_server("plain")
OLD_SDK = """\
#!/bin/sh
# Stands in for uvx: the server that it runs works with version 1 of the package `mcp` only.
if [ "$1 $2" = "--with mcp<2" ]; then exec {python} -ES {server}; fi
echo 'Traceback (most recent call last):' >&2
echo '  File "server.py", line 173, in main' >&2
echo "AttributeError: 'Server' object has no attribute 'list_resources'" >&2
exit 1
"""
SECRET = "a-secret-that-nobody-may-see-4711"


@pytest.fixture
def uvx(place: Place) -> None:
    """A `uvx` of the test comes first on the path."""
    programs = place.folder / "programs"
    programs.mkdir()
    (programs / "uvx").write_text(OLD_SDK.format(python=sys.executable, server=PLAIN["args"][1]))
    (programs / "uvx").chmod(0o755)
    place.env["PATH"] = f"{programs}:{os.environ['PATH']}"


async def examined(place: Place, *words: str) -> tuple[Finished, dict[str, Any]]:
    """What `doctor --json` says."""
    finished = await place.run("doctor", "--json", *words)
    return finished, json.loads(finished.out)


def codes(document: dict[str, Any]) -> dict[str, list[str]]:
    """The codes of what was found, by server; those of the whole under an empty name."""
    found = {server["name"]: [one["code"] for one in server["findings"]] for server in document["servers"]}
    return {**found, "": [one["code"] for one in document["findings"]]}


async def test_every_server_is_started_measured_and_explained(place: Place) -> None:
    config = place.config(
        {
            "plain": PLAIN,
            "modern": python_server("modern"),
            "rich": python_server("rich"),
            "gone": {"command": "no-such-program-here"},
            "lost": {**PLAIN, "env": {"X": "${NOT_SET_ANYWHERE}"}},
            "mute": {"command": "sh", "args": ["-c", "cat >/dev/null"], "init_timeout": 0.5},
            "short": {"command": "true"},
            "loud": {"command": "sh", "args": ["-c", f"echo token={SECRET} >&2; exit 3"], "env": {"A_TOKEN": SECRET}},
            "off": {"command": "no-such-program-here", "disabled": True},
        }
    )
    finished, document = await examined(place, "--config", str(config))
    assert finished.code == 4
    assert not document["ok"]
    servers = {server["name"]: server for server in document["servers"]}
    assert servers.keys() == {"plain", "modern", "rich", "gone", "lost", "mute", "short", "loud"}
    assert [name for name, server in servers.items() if server["ok"]] == ["plain", "modern", "rich"]
    assert (servers["plain"]["era"], servers["plain"]["protocol"]) == ("legacy", "2025-11-25")
    assert servers["modern"]["era"] == "modern"
    assert servers["rich"]["prompts"] == 1
    for name in ("plain", "modern", "rich"):
        one = servers[name]
        assert 0 < one["answered_ms"] <= one["listed_ms"]
        assert one["memory"] > 1_000_000
        assert one["tokens"] > 0
        assert one["tools"] > 0
    found = codes(document)
    assert found["gone"][0] == "command-not-found"
    assert found["lost"][0] == "variable-not-set"
    assert found["mute"][0] == "no-answer"
    assert found["short"][0] == "ended-at-once"
    assert found["loud"][0] == "server-failed"
    lost = servers["lost"]["findings"][0]
    assert lost["where"].startswith(f"{config}:")
    assert servers["loud"]["stderr"] == ["token=[redacted]"]
    assert SECRET not in finished.out + finished.err
    assert document["machine"]["python"].startswith("3.")
    assert not place.survivors()


async def test_people_get_sections_and_single_servers_can_be_named(place: Place) -> None:
    config = str(place.config({"plain": PLAIN, "gone": {"command": "no-such-program-here"}}))
    finished = await place.run("doctor", "plain", "--config", config)
    assert finished.code == 0
    assert "ok    plain  stdio 2025-11-25 (legacy); 6 tools" in finished.out
    assert "gone" not in finished.out
    for title in ("Servers", "Daemon", "Machine", "1 of 1 servers work"):
        assert title in finished.out
    finished = await place.run("doctor", "plian", "--config", config)
    assert finished.code == 2
    assert "Did you mean 'plain'?" in finished.err


async def test_the_last_line_counts_what_fails_beside_the_servers(place: Place) -> None:
    """A state directory that cannot be written was a FAIL that the summary passed over."""
    (place.folder / "taken").write_text("a file in the way")
    place.env["XDG_STATE_HOME"] = str(place.folder / "taken")
    finished = await place.run("doctor", "--config", str(place.config({"plain": PLAIN})))
    assert "FAIL  the state directory cannot be" in finished.out
    assert "\n1 of 1 servers work; 1 failure, " in finished.out


@pytest.mark.usefixtures("uvx")
async def test_a_server_of_the_older_sdk_is_mended_and_tried_again(place: Place) -> None:
    """Issue 7: a PyPI server that dies under `mcp` 2.x -> `uvx --with 'mcp<2'`."""
    file = place.folder / "servers.toml"
    before = '# mine\n[servers.sqlite]  # a database\ncommand = "uvx"\nargs = ["mcp-server-sqlite"]  # old\n'
    file.write_text(before)
    finished, document = await examined(place, "--config", str(file), "--fix", "--yes")
    assert finished.code == 0
    assert codes(document)["sqlite"] == ["pypi-mcp-2", "archived"]
    assert document["servers"][0]["findings"][0]["edit"] == "`--with mcp<2` goes into args"
    [fix] = document["fixes"]
    assert (fix["code"], fix["kept"], fix["ok"]) == ("pypi-mcp-2", True, True)
    assert file.read_text() == before.replace('["mcp-server', '["--with", "mcp<2", "mcp-server')
    [copy] = place.folder.rglob("*.bak")
    assert copy.read_text() == before
    finished, document = await examined(place, "--config", str(file))
    assert finished.code == 0


async def test_what_does_not_help_is_taken_back(place: Place) -> None:
    file = place.folder / "servers.toml"
    before = b'[servers.old]\r\ncommand = "./uvx"\r\nargs = ["old"]\r\n'
    file.write_bytes(before)
    program = place.folder / "uvx"
    program.write_text("#!/bin/sh\necho \"No module named 'mcp.server.fastmcp'\" >&2\nexit 1\n")
    program.chmod(0o755)
    finished = await place.run("doctor", "--config", str(file), "--fix", "--yes")
    assert finished.code == 4
    assert '+args = ["--with", "mcp<2", "old"]' in finished.out
    assert "old: taken back, it still fails" in finished.out
    assert file.read_bytes() == before
    assert not list(place.folder.rglob("*.bak"))


def test_nobody_is_asked_without_a_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "servers.toml").write_text("[servers.a]\ncommand = 'x'\n")
    assert run(["doctor", "--config", str(tmp_path / "servers.toml"), "--fix"]) == 2
    assert "--yes" in capsys.readouterr().err


def test_a_wrong_configuration_is_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "servers.toml").write_text("[servers.a]\ncomand = 'x'\n")
    assert run(["doctor", "--config", str(tmp_path / "servers.toml")]) == 2
    assert "Did you mean `command`?" in capsys.readouterr().err


async def test_the_running_bridge_can_be_asked_instead(place: Place) -> None:
    servers = {"plain": PLAIN, "gone": {"command": "no-such-program-here"}}
    config = str(place.config(servers))
    finished = await place.run("doctor", "--no-start", "--config", config)
    assert finished.code == 4
    assert "no daemon runs" in finished.err
    async with place.bridge(servers) as client:
        await client.initialize()
        assert await client.tools_with("plain__echo")
        finished, document = await examined(place, "--no-start", "--config", config)
        started = await place.run("doctor", "plain", "--config", config)
    assert finished.code == 4
    assert document["started"] is False
    found = {server["name"]: server for server in document["servers"]}
    assert found["plain"]["tools"] == 6
    assert not found["gone"]["ok"]
    assert codes(document)["gone"][0] == "server-failed"
    assert document["daemon"]["pid"]
    assert "copies" in started.out


async def test_what_clients_have_besides_is_told(place: Place) -> None:
    config = place.config({"plain": PLAIN})
    cursor = place.folder / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    own = {"command": PLAIN["command"], "args": PLAIN["args"]}
    bridge = {"command": "/gone/bin/mcpbridge", "args": ["serve"]}
    cursor.write_text(json.dumps({"mcpServers": {"mcpbridge": bridge, "mine": own}}, indent=2))
    _, document = await examined(place, "--config", str(config))
    clients = {one["code"]: one for one in document["findings"] if one["about"] == "clients"}
    assert clients.keys() == {"entry-broken", "server-twice"}
    assert clients["entry-broken"]["level"] == "warn"
    assert "mcpbridge install cursor" in clients["entry-broken"]["fix"]
    assert "mcpbridge install cursor --replace" in clients["server-twice"]["fix"]
    assert clients["server-twice"]["where"].startswith(f"{cursor}:")


async def test_another_programs_file_is_examined_and_not_changed(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "npx", "args": ["nothing-here"]}}}))
    before = file.read_text()
    place.env["PATH"] = "/nowhere"
    finished = await place.run("doctor", "--config", str(file), "--fix", "--yes")
    assert finished.code == 4
    assert "command not found: npx" in finished.out
    assert "Node.js" in finished.out
    assert file.read_text() == before
