"""Which files of a repository a yes covers (issue 22): what commands and hooks name, and what scripts import."""

import json
import os
from pathlib import Path

import pytest

from mcpbridge.config.load import read
from mcpbridge.config.trust.changes import describe_changes
from mcpbridge.config.trust.content import whole_content
from mcpbridge.config.trust.decisions import Decision
from mcpbridge.config.trust.named_files import directories_of, named_files, repository_of


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "repository"
    for name in (".git", "pkg", "scripts", "lib"):
        (top / name).mkdir(parents=True)
    for name in ("server.py", "helper.py", "lib/run.js", "scripts/hook.sh", "scripts/run.sh", "pkg/__init__.py"):
        (top / name).write_text("# nothing\n")
    (top / "server.py").write_text("import helper\n")
    (top / "pkg/__main__.py").write_text("import helper\n")
    (top / "api.json").write_text("{}")
    (top / "data.db").write_text("data")
    (top / "memory.json").write_text("{}")
    (top / "preload.so").write_text("x")
    (top / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "outside.py").write_text("x")
    return top


def covered(top: Path, text: str) -> set[str]:
    file = top / "servers.toml"
    file.write_text(text)
    return {os.path.relpath(path, top) for path in named_files(read(file, {}).settings)}


@pytest.mark.parametrize(
    ("table", "files"),
    [
        ('command = "python"\nargs = ["server.py", "--port", "1"]', {"server.py", "helper.py"}),
        ('command = "python"\nargs = ["-m", "pkg"]', {"pkg/__init__.py"}),
        ('command = "./tool"', {"tool"}),
        ('command = "node"\nargs = ["--import=./lib/run.js", "."]', {"lib/run.js"}),
        ('command = "sh"\nargs = ["-c", "cd lib; ../x || ./scripts/run.sh a"]', {"scripts/run.sh"}),
        ('command = "node"\nargs = ["run.js"]\ncwd = "lib"', {"lib/run.js"}),
        ('command = "x"\nenv = { LD_PRELOAD = "./preload.so" }', {"preload.so"}),
        ('command = "x"\nargs = ["--config", "api.json"]', {"api.json"}),
        ('command = "x"\nargs = ["--db", "data.db"]\nenv = { MEMORY = "memory.json" }', set()),
        ('command = "python"\nargs = ["../outside.py"]', set()),
        ('command = "python"\nargs = ["server.py"]\ndisabled = true', set()),
        ('url = "https://a.example/server.py"', set()),
    ],
)
def test_files_of_a_server(repository: Path, table: str, files: set[str]) -> None:
    found = covered(repository, f"[servers.a]\n{table}\n")
    assert files <= found if "-m" in table else found == files


def test_files_of_hooks_and_tools(repository: Path) -> None:
    text = """
    [[hooks]]
    event = "tool_call.before"
    command = ["sh", "scripts/hook.sh"]
    [tools.run]
    description = "Runs."
    command = ["sh", "scripts/run.sh", "{x}"]
    input_schema = { type = "object", properties = { x = { type = "string" } } }
    """
    assert covered(repository, text) == {"scripts/hook.sh", "scripts/run.sh"}


def test_a_link_counts_as_its_target_and_a_new_file_as_a_change(repository: Path, tmp_path: Path) -> None:
    (repository / "linked.py").symlink_to(tmp_path / "outside.py")
    text = '[servers.a]\ncommand = "python"\nargs = ["linked.py", "later.py"]\n'
    assert covered(repository, text) == {"../outside.py"}
    (repository / "later.py").write_text("x")
    assert covered(repository, text) == {"../outside.py", "later.py"}


def test_the_repository_of_a_folder_below_and_directories_that_are_named(repository: Path, tmp_path: Path) -> None:
    assert repository_of(repository / "lib") == repository
    assert repository_of(tmp_path) == tmp_path
    file = repository / "servers.toml"
    file.write_text('[servers.a]\ncommand = "uvx"\nargs = ["--from", "./pkg", "x", "/etc"]\n')
    assert {os.path.realpath(path) for path in directories_of(read(file, {}).settings)} == {str(repository / "pkg")}


def test_what_changed_is_shown_in_few_lines(repository: Path) -> None:
    file = repository / "servers.toml"

    def now(text: str) -> tuple[str, dict[str, str]]:
        file.write_text(text)
        loaded = read(file, {"KEY": "canary-of-key"})
        return loaded.masked_text, dict(whole_content(loaded.settings, loaded.content))

    many = "".join(f'[servers.s{number}]\ncommand = "x"\n' for number in range(50))
    text, files = now(f'{many}[servers.a]\ncommand = "python"\nargs = ["server.py"]\nenv.K = "${{KEY}}"\n')
    before = Decision("2026-01-01", files, text)
    (repository / "server.py").write_text("import helper, os\n")
    (repository / "extra.py").write_text("x")
    text, files = now(f'{many}[servers.a]\ncommand = "python"\nargs = ["server.py", "extra.py"]\nenv.K = "${{KEY}}"\n')
    lines = list(describe_changes(before, str(file), text, files))
    assert lines[:3] == ["new: extra.py", "changed: server.py", "changed: servers.toml"]
    assert '  -args = ["server.py"]' in lines
    assert '  +args = ["server.py", "extra.py"]' in lines
    assert len(lines) < 12
    assert "canary" not in json.dumps(lines)
