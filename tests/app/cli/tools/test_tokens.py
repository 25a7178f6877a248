"""`mcpbridge tokens`: what each server costs a model's context, as it is sent and in shorter forms (issue 6)."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mcpbridge.app.cli.tools.tokens import tokens_command
from mcpbridge.catalog.slim.levels import LEVELS
from mcpbridge.catalog.slim.slim import visible
from mcpbridge.results.token_count import counter
from support.harness import python_server

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture
def config(tmp_path: Path) -> str:
    servers = {"plain": python_server("plain"), "pages": python_server("listings", "pages")}
    lines = [
        line
        for name, server in servers.items()
        for line in (
            f"[servers.{name}]",
            f"command = {json.dumps(server['command'])}",
            f"args = {json.dumps(server['args'])}",
        )
    ]
    file = tmp_path / "servers.toml"
    file.write_text("\n".join(lines))
    assert tomllib.loads(file.read_text())["servers"].keys() == servers.keys()
    return str(file)


def told(capsys: pytest.CaptureFixture[str], config: str, *words: str) -> str:
    capsys.readouterr()
    assert tokens_command.main(["--config", config, *words], standalone_mode=False) == 0
    return capsys.readouterr().out


def test_each_server_is_told_with_every_form_and_a_sum(capsys: pytest.CaptureFixture[str], config: str) -> None:
    document: dict[str, Any] = json.loads(told(capsys, config, "--json"))
    assert document["tokenizer"] == "estimate"
    servers = {row["server"]: row for row in document["servers"]}
    assert servers.keys() == {"plain", "pages"}
    assert [row["sent"] for row in document["servers"]] == sorted(
        (row["sent"] for row in servers.values()), reverse=True
    )
    assert servers["pages"]["tools"] == 6
    for row in [*servers.values(), document["total"]]:
        sizes = [row["sent"], *(row[level] for level in LEVELS[1:])]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] > 0
    for name in ("tools", "sent", *LEVELS[1:]):
        assert document["total"][name] == sum(row[name] for row in servers.values())
    assert document["search"]["tools"] >= 1
    assert "tools" not in document


def test_what_is_counted_is_what_a_model_sees(capsys: pytest.CaptureFixture[str], config: str) -> None:
    """Under the name that clients see, by the tokenizer that is asked for."""
    sent = {
        "name": "pages__tool_0_0",
        "description": "The tool tool_0_0.",
        "inputSchema": {"type": "object", "properties": {}},
    }
    document = json.loads(told(capsys, config, "--json", "--tokenizer", "o200k", "--server", "pages", "--tools", "9"))
    assert document["tokenizer"] == "o200k"
    assert [row["server"] for row in document["servers"]] == ["pages"]
    rows = {row["tool"]: row["sent"] for row in document["tools"]}
    assert len(rows) == 6
    assert rows["pages/tool_0_0"] == counter("o200k")(visible(json.dumps(sent, separators=(",", ":")).encode()))


def test_a_person_gets_a_table_and_the_tools_that_cost_most(capsys: pytest.CaptureFixture[str], config: str) -> None:
    lines = told(capsys, config, "--tools", "2").splitlines()
    assert lines[0] == "tokens of tools in a model's context (estimates)"
    assert lines[1].split()[:3] == ["Server", "Tools", "Sent"]
    assert {line.split()[0] for line in lines[2:4]} == {"plain", "pages"}
    assert lines[4].startswith("total")
    assert "%)" in lines[4]
    assert lines[6].startswith("tools that cost most (2 of ")
    assert lines[7].startswith("Tool ")
    assert lines[8].startswith("plain/")
    assert "stand for all" in lines[-1]


def test_a_server_that_there_is_not_is_an_error(capsys: pytest.CaptureFixture[str], config: str) -> None:
    assert tokens_command.main(["--config", config, "--server", "plane"], standalone_mode=False) == 2
    assert "Did you mean 'plain'?" in capsys.readouterr().err
