"""`${PROJECT_ROOT}`: where it may stand, and that nothing else is ever taken for it (issue 7)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import Loaded, read
from mcpbridge.upstream.projects import ProjectText, directory_of, place_of, with_project
from mcpbridge.upstream.settings import ServerSettings


def loaded(folder: Path, text: str, **environ: str) -> Loaded:
    path = folder / "servers.toml"
    path.write_text(text, "utf-8")
    return read(path, environ)


def server(folder: Path, text: str, **environ: str) -> ServerSettings:
    return loaded(folder, f"[servers.a]\n{text}", **environ).settings.servers["a"]


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def test_it_stands_for_the_directory_of_the_project_wherever_a_server_is_started(tmp_path: Path) -> None:
    settings = server(
        tmp_path,
        """
        command = "serve"
        args = ["--root", "${PROJECT_ROOT}", "a", "${PROJECT_ROOT}/x:${PROJECT_ROOT:-/y}"]
        env = { ROOT = "${PROJECT_ROOT}", USER = "${WHO}" }
        cwd = "${PROJECT_ROOT}/sub"
        """,
        WHO="me",
    )
    assert settings.needs_project
    assert settings.share == "project"
    assert settings.args[1] == "${PROJECT_ROOT}", "as it was written, until there is a project"
    started = settings.in_project("file:///home/me/work")
    assert started.args == ["--root", "/home/me/work", "a", "/home/me/work/x:/home/me/work"]
    assert started.env == {"ROOT": "/home/me/work", "USER": "me"}
    assert started.cwd == "/home/me/work/sub"
    assert not started.needs_project


def test_a_path_is_data_and_is_encoded_where_not_every_character_may_stand(tmp_path: Path) -> None:
    settings = server(
        tmp_path, 'url = "https://x.example/mcp?root=${PROJECT_ROOT}"\nheaders = { X-Root = "${PROJECT_ROOT}" }'
    )
    odd = "/a b/\"'\n$HOME/${WHO}/ü%&?#"
    started = settings.in_project(Path(odd).as_uri())
    assert started.url == "https://x.example/mcp?root=/a%20b/%22%27%0A%24HOME/%24%7BWHO%7D/%C3%BC%25%26%3F%23"
    assert started.headers == {"X-Root": started.url.partition("=")[2]}
    program = server(tmp_path, 'command = "a"\nargs = ["${PROJECT_ROOT}"]').in_project(Path(odd).as_uri())
    assert program.args == [odd]


def test_a_default_stands_in_where_there_is_no_project(tmp_path: Path) -> None:
    settings = server(tmp_path, 'command = "a"\nargs = ["${PROJECT_ROOT:-/tmp}"]\ncwd = "${PROJECT_ROOT:-here}"')
    assert not settings.needs_project
    assert settings.share == "project"
    none = settings.in_project("")
    assert (none.args, none.cwd) == (["/tmp"], str(tmp_path / "here"))
    assert settings.in_project("file:///p").cwd == "/p"


def test_relative_paths_around_it_start_where_the_file_is(tmp_path: Path) -> None:
    settings = server(tmp_path, 'command = "./bin/x"\ncwd = "of/${PROJECT_ROOT}"')
    started = settings.in_project("file:///p")
    assert started.cwd == f"{tmp_path}/of//p"


def test_what_a_variable_brings_in_is_never_taken_for_it(tmp_path: Path) -> None:
    """Expansion is one pass, though this one ends later."""
    text = 'command = "a"\nargs = ["${EVIL} ${PROJECT_ROOT} $${PROJECT_ROOT} ${NOT:-x}"]'
    settings = server(tmp_path, text, EVIL="${PROJECT_ROOT:-y} $${")
    assert settings.in_project("file:///p").args == ["${PROJECT_ROOT:-y} $${ /p ${PROJECT_ROOT} x"]
    plain = server(tmp_path, 'command = "a"\nargs = ["${EVIL}", "$${PROJECT_ROOT}"]', EVIL="${PROJECT_ROOT}")
    assert plain.share == "shared"
    assert plain.in_project("file:///p").args == ["${PROJECT_ROOT}", "${PROJECT_ROOT}"]


def test_a_variable_of_this_name_is_still_to_be_had(tmp_path: Path) -> None:
    settings = server(tmp_path, 'command = "a"\nargs = ["${env:PROJECT_ROOT}"]', PROJECT_ROOT="/of/the/environment")
    assert settings.args == ["/of/the/environment"]
    assert settings.share == "shared"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[bridge]\nname = "${PROJECT_ROOT}"', "servers.toml:2: bridge.name"),
        ('[servers.a]\ncommand = "a"\nroots = ["${PROJECT_ROOT:-x}"]', "servers.toml:3: servers.a.roots"),
        ('[servers.a]\ncommand = "a"\ntags = ["${PROJECT_ROOT}"]', "servers.toml:3: servers.a.tags"),
    ],
)
def test_elsewhere_it_has_no_meaning_and_that_is_said(tmp_path: Path, text: str, key: str) -> None:
    said = refused(tmp_path, text)
    assert said.startswith(key)
    assert "it may be in a server's `args`, `cwd`, `env`, `headers`, `url`" in said
    assert "${env:PROJECT_ROOT}" in said


def test_one_process_for_all_cannot_work_in_each_project(tmp_path: Path) -> None:
    said = refused(tmp_path, '[servers.a]\ncommand = "a"\nshare = "shared"\nargs = ["${PROJECT_ROOT}"]')
    assert said.startswith('servers.toml:1: servers.a: `share = "shared"` means one process for all clients')
    assert "${PROJECT_ROOT} in `args`" in said
    shared = server(tmp_path, 'command = "a"\nshare = "shared"\nargs = ["${PROJECT_ROOT:-/d}"]')
    assert (shared.share, shared.in_project("").args) == ("shared", ["/d"])


@pytest.mark.parametrize(("said", "meant"), [("client", "session"), ("project", "project"), ("shared", "shared")])
def test_the_older_name_of_share_is_understood(tmp_path: Path, said: str, meant: str) -> None:
    assert server(tmp_path, f'command = "a"\nisolation = "{said}"').share == meant
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "a", "isolation": said}}}))
    found = read(file, {})
    assert (found.settings.servers["a"].share, found.warnings) == (meant, ())


def test_both_names_of_share_at_once_are_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, '[servers.a]\ncommand = "a"\nisolation = "client"\nshare = "session"')
    assert "`isolation` is an older name of `share`" in said


def test_nobody_can_write_what_loading_makes_of_it(tmp_path: Path) -> None:
    assert "unknown key" in refused(tmp_path, '[servers.a]\ncommand = "a"\nproject_texts = []')


# -- projects as clients name them


@pytest.mark.parametrize(
    ("uri", "directory"),
    [
        ("file:///a/b", "/a/b"),
        ("file:///a/b/", "/a/b"),
        ("file://localhost/a//b/./", "/a/b"),
        ("file:///a%20b/%C3%BC", "/a b/ü"),
        ("file:///a%00b", ""),
        ("file://elsewhere/a", ""),
        ("https://example.com/a", ""),
        ("", ""),
        ("file:relative", ""),
    ],
)
def test_only_a_directory_of_this_machine_is_one(uri: str, directory: str) -> None:
    assert directory_of(uri) == directory
    assert place_of(uri) == (directory or uri)


@given(st.binary(min_size=1).filter(lambda name: b"\0" not in name and b"/" not in name and name not in (b".", b"..")))
def test_every_name_that_a_file_system_allows_survives(name: bytes) -> None:
    path = Path("/p") / name.decode("utf-8", "surrogateescape")
    assert directory_of(path.as_uri()) == str(path)
    text = ProjectText(key=("args", "0"), parts=("", "!"), defaults=(None,))
    replaced: dict[str, Any] = with_project((text,), {"args": ["?"]}, directory_of(path.as_uri()))
    assert replaced == {"args": [f"{path}!"]}


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("sh", ["-c", "cd ${PROJECT_ROOT} && serve"]),
        ("/bin/bash", ["--norc", "-lc", "cd '${PROJECT_ROOT}'"]),
        ("bash", ["-c", "-e", "cd ${PROJECT_ROOT:-/x}"]),
        ("fish", ["--command=cd ${PROJECT_ROOT}"]),
        ("env", ["A=1", "zsh", "-c", "${PROJECT_ROOT}/run"]),
        ("python3.12", ["-I", "-c", "import os; os.chdir('${PROJECT_ROOT}')"]),
        ("python", ["-cprint('${PROJECT_ROOT}')"]),
        ("uv", ["run", "python", "-c", "print('${PROJECT_ROOT}')"]),
        ("node", ["--eval=require('${PROJECT_ROOT}/x')"]),
        ("node", ["-pe", "'${PROJECT_ROOT}'"]),
        ("ruby", ["-e", "puts '${PROJECT_ROOT}'"]),
        ("perl", ["-ne", "print '${PROJECT_ROOT}'"]),
        ("pwsh", ["-NoProfile", "-Command", "cd", "${PROJECT_ROOT}"]),
        ("C:\\\\Windows\\\\cmd.exe", ["/d", "/c", "cd", "${PROJECT_ROOT}"]),
    ],
)
def test_a_project_is_no_part_of_a_script(tmp_path: Path, command: str, args: list[str]) -> None:
    said = refused(tmp_path, f'[servers.a]\ncommand = "{command}"\nargs = {json.dumps(args)}')
    assert "servers.toml:3: servers.a.args" in said
    assert "${PROJECT_ROOT} in a script" in said
    assert 'env = { ROOT = "${PROJECT_ROOT}" }' in said


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("sh", ["-c", 'cd "$1" && serve', "sh", "${PROJECT_ROOT}"]),
        ("python", ["-m", "server", "${PROJECT_ROOT}"]),
        ("node", ["server.js", "--root", "${PROJECT_ROOT}"]),
        ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "${PROJECT_ROOT}"]),
        ("uvx", ["mcp-server-git", "--repository", "${PROJECT_ROOT}"]),
    ],
)
def test_a_project_may_be_an_argument(tmp_path: Path, command: str, args: list[str]) -> None:
    settings = server(tmp_path, f'command = "{command}"\nargs = {json.dumps(args)}')
    assert "/p" in settings.in_project("file:///p").args


@pytest.mark.parametrize("command", ["${PROJECT_ROOT}/bin/serve", "./bin/${PROJECT_ROOT}", "${PROJECT_ROOT:-/opt}/x"])
def test_a_project_is_not_the_program(tmp_path: Path, command: str) -> None:
    said = refused(tmp_path, f'[servers.a]\ncommand = "{command}"')
    assert "servers.toml:2: servers.a.command" in said
    assert "as soon as it is opened" in said
