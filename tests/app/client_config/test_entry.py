"""What is written into clients' files, what is shown of the rest of them, and what is remembered."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpbridge.app.client_config.entry import Launch, is_fleeting, launch_of_this_program, runs_bridge
from mcpbridge.config.files.backups import Backups, Record
from mcpbridge.config.files.edit import Editor, NotEditable, Spot, put, take_out
from mcpbridge.config.files.edit_json import JsonEditor
from mcpbridge.config.files.edit_toml import TomlEditor
from mcpbridge.config.files.edit_yaml import YamlEditor
from mcpbridge.config.files.masked_diff import masked_diff

SECRET = "hunter2-hunter2"


def program(folder: Path) -> Path:
    folder.mkdir(parents=True)
    path = folder / "mcpbridge"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_program_that_runs_is_named_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "bin")
    monkeypatch.setattr(sys, "argv", [str(path), "install"])
    assert launch_of_this_program(["serve"]) == Launch(str(path), ("serve",))
    monkeypatch.setattr(sys, "argv", ["mcpbridge", "install"])  # as the shell found it
    monkeypatch.setenv("PATH", str(path.parent))
    assert launch_of_this_program(["serve"]) == Launch(str(path), ("serve",))
    assert launch_of_this_program(["serve"], portable=True) == Launch("mcpbridge", ("serve",))
    program(tmp_path / "other")
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    monkeypatch.setattr(sys, "argv", [str(path), "install"])
    assert launch_of_this_program([], portable=True) == Launch(str(path)), "another one would be found by the name"


def test_a_module_is_started_by_its_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/mcpbridge/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    launch = launch_of_this_program(["serve"])
    assert launch == Launch(str(tmp_path / "python"), ("-P", "-m", "mcpbridge", "serve")), (
        "-P: not out of its directory"
    )
    program(tmp_path / "venv")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/python"))
    assert launch_of_this_program(["serve"]) == Launch(str(tmp_path / "venv/mcpbridge"), ("serve",))


def test_a_program_in_a_cache_will_vanish() -> None:
    assert is_fleeting("/home/me/.cache/uv/archive-v0/x1/bin/mcpbridge")
    assert not is_fleeting("/home/me/.local/share/uv/tools/mcpbridge/bin/mcpbridge")


@pytest.mark.parametrize(
    ("entry", "is_bridge"),
    [
        ({"command": "mcpbridge", "args": ["serve"]}, True),
        ({"command": "/opt/bin/mcpbridge", "args": ["serve", "--config", "x"]}, True),
        ({"command": "C:\\bin\\mcpbridge.exe", "args": ["serve"]}, True),
        ({"command": "python", "args": ["-m", "mcpbridge", "serve"]}, True),
        ({"command": "python", "args": ["-P", "-m", "mcpbridge", "serve"]}, True),
        ({"command": "uvx", "args": ["mcpbridge==1.0", "serve"]}, True),
        ({"command": ["mcpbridge", "serve"]}, True),
        ({"cmd": "mcpbridge", "args": ["serve"]}, True),
        ({"command": "mcpbridge"}, False),
        ({"command": "npx", "args": ["mcpbridge-docs", "serve"]}, False),
        ({"url": "http://127.0.0.1:8808/mcp"}, False),
        ("mcpbridge serve", False),
    ],
)
def test_the_bridge_is_recognised_whatever_it_is_called(entry: object, is_bridge: bool) -> None:
    assert runs_bridge(entry) is is_bridge


JSON_LINES = ['"env": {"T": "%s"}', '"T":"%s"', '"args": [\n"%s"\n]', '"a": {\n"k": "%s"} // %s', '"x": 1, // %s']
TOML_LINES = [
    'T = "%s"',
    "T='%s' # x",
    'a = """\n%s\n%s==\n"""',
    "# %s",
    "b = [\n  '%s',\n]",
    '[t]\n"x" = ["%s"]',
    "[u]",
]
YAML_LINES = ["T: %s", "- %s", "a: |\n  %s\n  %s=", "# %s", "b: [%s, '%s']", 'c: {d: "%s"}', "url: https://u:%s@host"]


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([("json", JsonEditor()), ("toml", TomlEditor()), ("yaml", YamlEditor())]),
    st.lists(st.integers(0, 6), max_size=5, unique=True),
    st.booleans(),
)
def test_no_change_shows_what_others_keep_in_the_file(kind: tuple[str, Editor], picked: list[int], flat: bool) -> None:
    name, editor = kind
    if name == "json":
        text = "{" + ",\n".join(JSON_LINES[number % 5] for number in picked) + "\n}"
        text = "{" + ",".join(f'"k{n}": {{"T": "%s"}}' for n in picked) + "}" if flat else text
    else:
        lines = TOML_LINES if name == "toml" else [line for line in YAML_LINES if not line.startswith("-")]
        text = "".join(lines[number % len(lines)] + "\n" for number in picked)
    text = text.replace("%s", SECRET)
    spot = Spot(("servers",), "mcpbridge")
    try:
        done = put(editor, text, spot, {"command": "/opt/mcpbridge"})
    except NotEditable:  # some of these do not go together
        return
    shown = masked_diff("file", text, done.text, done.edit)
    assert SECRET not in shown
    assert "/opt/mcpbridge" in shown
    without = take_out(editor, done.text, spot)
    assert SECRET not in masked_diff("file", done.text, without)


def test_installs_at_the_same_moment_are_all_remembered(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}

    def remember(number: int) -> None:
        Backups(environ).remember(Record(f"client{number}", f"/file{number}", ("x",), "digest"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(remember, range(12)))
    assert {record.client for record in Backups(environ).all()} == {f"client{number}" for number in range(12)}
