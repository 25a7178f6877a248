"""What a program brings along: its own installation, and never a home directory."""

import os
from pathlib import Path

import pytest

from mcpbridge.sandbox.isolation.readable_files import brought_along


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory, with somebody's secrets in it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home


def program(path: Path, text: str = "\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_of_a_virtual_environment_itself_and_the_python_it_was_made_from(home: Path) -> None:
    base = program(home / ".pyenv/versions/3/bin/python3").parent
    (base.parent / "lib").mkdir()
    env = home / "project/.venv"
    tool = program(env / "bin/tool", f"#!{env}/bin/python\n")
    (env / "pyvenv.cfg").write_text(f"home = {base}\nversion = 3\n")
    (env / "bin/python").symlink_to(base / "python3")
    assert set(brought_along(str(tool), "")) == {str(env), str(base.parent)}


def test_a_link_in_a_home_directory_shows_where_it_leads_and_no_more(home: Path) -> None:
    """`~/.local/bin` is where pipx and uv put links; `~/.local/share` has keyrings."""
    (home / ".local/lib").mkdir(parents=True)
    (home / "lib").mkdir()
    env = home / ".local/share/tools/ruff"
    tool = program(env / "bin/ruff")
    (env / "pyvenv.cfg").write_text("home = /usr/bin\n")
    link = home / ".local/bin/ruff"
    link.parent.mkdir()
    link.symlink_to(tool)
    assert set(brought_along(str(link), "")) == {str(link), str(env)}
    lone = program(home / "bin/lone")
    assert brought_along(str(lone), "") == (str(lone),)


def test_a_script_brings_what_reads_it(home: Path) -> None:
    node = program(home / "node/v22/bin/node")
    (node.parent.parent / "lib").mkdir()
    script = program(home / "scripts/tell", "#!/usr/bin/env -S node --flag\n")
    assert set(brought_along(str(script), str(node.parent))) == {str(script), str(node.parent.parent)}
    assert brought_along(str(script), "") == (str(script),)


def test_a_package_of_node_brings_those_beside_it(home: Path) -> None:
    cli = program(home / "site/node_modules/tool/cli.js", "#!/usr/bin/env node\n")
    link = home / "site/node_modules/.bin/tool"
    link.parent.mkdir()
    link.symlink_to("../tool/cli.js")
    assert cli.exists()
    assert brought_along(str(link), "") == (str(home / "site/node_modules"),)


def test_programs_of_the_system_bring_nothing(home: Path) -> None:
    assert brought_along("/usr/bin/env", os.defpath) == ()
    assert brought_along("/bin/sh", os.defpath) == ()


def test_what_leads_nowhere_or_in_circles_has_an_end(home: Path) -> None:
    first, second = home / "a/first", home / "a/second"
    first.parent.mkdir()
    first.symlink_to(second)
    second.symlink_to(first)
    assert str(first) in brought_along(str(first), "")
    own = program(home / "b/own", f"#!{home}/b/own\n")
    assert brought_along(str(own), "") == (str(own),)
