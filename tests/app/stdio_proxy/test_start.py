"""What decides how `mcpbridge serve` starts: its options, its configuration, the client's directory; and how soon."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.app.daemon.handshake import read_hello
from mcpbridge.app.stdio_proxy.handshake import Farewell, Greeting, Refusal, hello, is_own, project_of, read
from mcpbridge.app.stdio_proxy.main import read_proxy_options
from mcpbridge.base import directories as places
from mcpbridge.base.config_file import find_config
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import find


def given_options(*words: str) -> dict[str, str] | None:
    options = read_proxy_options(words)
    return options and {name: value for name, value in vars(options).items() if value}


def test_options_that_a_shim_understands() -> None:
    words = ["--config", "a.toml", "--project=/x=y", "--log-level", "debug", "--server", "one"]
    assert given_options(*words) == {"config": "a.toml", "project": "/x=y", "log_level": "debug", "server": "one"}
    assert given_options() == {}


@pytest.mark.parametrize(
    "words",
    [
        ["--http"],
        ["--help"],
        ["-h"],
        ["--standalone"],
        ["--config"],
        ["--config", "--server"],
        ["--config="],
        ["--conf", "x"],
        ["file"],
        ["--"],
        ["--log-level", "loud"],
        ["--log_level", "debug"],
        ["--server", "a", "--profile", "b"],
        ["--no-auth"],
    ],
)
def test_anything_else_is_for_others(words: list[str]) -> None:
    assert given_options(*words) is None


def test_the_project_is_named_or_where_the_client_works(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "home/work"
    work.mkdir(parents=True)
    environ = {"HOME": str(home)}
    assert project_of(environ, str(work)) == str(work)
    assert project_of(environ, "/srv") == "/srv"
    for nowhere in (home, tmp_path, Path("/")):
        assert project_of(environ, str(nowhere)) == ""
    assert project_of(environ, "") == project_of(environ, "", "relative") == ""
    assert project_of({**environ, "CLAUDE_PROJECT_DIR": "/c"}, "/") == "/c"
    assert project_of({**environ, "CLAUDE_PROJECT_DIR": "/c", "MCPBRIDGE_PROJECT": "/m"}, "/") == "/m"
    assert project_of({**environ, "MCPBRIDGE_PROJECT": "/m"}, str(work), "../here") == str(home / "here")


def test_the_daemon_reads_the_hello_that_the_shim_says() -> None:
    environ = {"HOME": "/h", "A": "x\ny\u00e9", "B": "\udcff"}
    said = read_hello(hello(environ, "/w", project="/p", server="s"))
    assert (said.pid, said.cwd, said.project, said.server, said.profile) == (os.getpid(), "/w", "/p", "s", "")
    assert said.environ == {"HOME": "/h", "A": "x\ny\u00e9"}, "what is no text is left out"


def test_the_shim_reads_what_the_daemon_says() -> None:
    from mcpbridge.app.daemon.handshake import HelloRefused, bye, greeting

    for line in (greeting("abc"), bye(again=True), HelloRefused("unknown-server", "none").line):
        assert is_own(line)
    assert isinstance(found := read(greeting("abc")), Greeting)
    assert found.listings == "abc"
    assert isinstance(found := read(bye(again=False)), Farewell)
    assert not found.again
    assert isinstance(found := read(HelloRefused("unknown-server", "none").line), Refusal)
    assert (found.code, found.message) == ("unknown-server", "none")
    assert read(b'{"mcpbridge":2}') is None
    assert read(b"nonsense") is None


# -- places


@pytest.mark.skipif(sys.platform == "win32", reason="HOME")
def test_places_are_those_of_platformdirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes longer to import than all of the shim."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for xdg in ("", str(tmp_path / "xdg")):
        for name in ("CONFIG", "STATE", "CACHE"):
            monkeypatch.setenv(f"XDG_{name}_HOME", xdg)
        told = {"appname": "mcpbridge", "appauthor": False}
        assert places.config_directory(os.environ) == platformdirs.user_config_path(**told, roaming=True)
        assert places.state_directory(os.environ) == platformdirs.user_state_path(**told)
        assert places.cache_directory(os.environ) == platformdirs.user_cache_path(**told)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the places of Linux")
def test_sockets_are_in_one_place_whatever_variables_a_client_hands_on(tmp_path: Path) -> None:
    """Clients on the official SDKs hand on neither XDG_RUNTIME_DIR nor TMPDIR: they must meet the same daemon."""
    users = Path(f"/run/user/{os.getuid()}")
    own = users / "mcpbridge" if os.access(users, os.W_OK) else Path(f"/tmp/mcpbridge-{os.getuid()}")
    for environ in ({}, {"TMPDIR": str(tmp_path)}, {"TMPDIR": "/nowhere"}, {"XDG_RUNTIME_DIR": "/nowhere"}):
        assert places.runtime_directory(environ) == own
    assert places.runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "mcpbridge"


@given(
    explicit=st.booleans(),
    variable=st.booleans(),
    here=st.sampled_from(["is there", "is not asked for", "others could have written it", "is not there"]),
    users=st.booleans(),
)
def test_the_shim_finds_the_configuration_that_the_bridge_finds(
    tmp_path_factory: pytest.TempPathFactory, explicit: bool, variable: bool, here: str, users: bool
) -> None:
    """Also where there is a `./servers.toml` that does not count."""
    folder = tmp_path_factory.mktemp("find")
    environ = {"XDG_CONFIG_HOME": str(folder / "xdg")} | (
        {"MCPBRIDGE_CONFIG": str(folder / "v.toml")} if variable else {}
    )
    (folder / "xdg/mcpbridge").mkdir(parents=True)
    is_here, counts = here != "is not there", here != "is not asked for"
    made = ["x.toml"] * explicit + ["v.toml"] + ["servers.toml"] * is_here + ["xdg/mcpbridge/servers.toml"] * users
    for name in made:
        (folder / name).touch(0o600)
    if here == "others could have written it":
        (folder / "servers.toml").chmod(0o666)
    searched = {"x.toml": explicit, "v.toml": variable, "servers.toml": here == "is there"}
    searched["xdg/mcpbridge/servers.toml"] = users
    expected = next((folder / name for name, is_taken in searched.items() if is_taken), None)
    named = str(folder / "x.toml") if explicit else None
    before = os.getcwd()  # noqa: PTH109
    os.chdir(folder)
    try:
        found = find_config(named, environ, here=counts)
        assert expected == (None if found is None else Path(found).absolute())
        if found is None:
            with pytest.raises(ConfigError, match="no configuration"):
                find(named, environ, here=counts)
        else:
            assert find(named, environ, here=counts) == Path(found)
            assert places.key_of(found) == places.daemon_key(Path(found).absolute())
    finally:
        os.chdir(before)


def test_what_is_named_and_not_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mcpbridge").mkdir()
    (tmp_path / "mcpbridge/servers.toml").touch()
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert find_config(None, environ) is not None
    assert find_config(str(tmp_path / "none.toml"), environ) is None
    assert find_config(str(tmp_path), environ) is None


# -- how soon


async def test_the_shim_imports_little(daemon: Any, place: Any) -> None:
    """A client waits for it; each of these takes as long as all that it needs."""
    place.env["PYTHONPROFILEIMPORTTIME"] = "1"
    running = asyncio.create_task(place.run("serve", "--config", str(daemon.config)))
    line = await daemon.next()
    await line.greet()
    await line.finish()
    finished = await running
    imported = {word.rpartition("|")[2].strip() for word in finished.err.splitlines() if "import time:" in word}
    assert "mcpbridge.app.stdio_proxy.relay" in imported
    own = {name for name in imported if name.startswith("mcpbridge.") and "stdio_proxy" not in name}
    assert own == {
        "mcpbridge.app",
        "mcpbridge.app.cli",
        "mcpbridge.app.cli.main",
        "mcpbridge.app.exit_codes",
        "mcpbridge.app.plain_options",
        "mcpbridge.base",
        "mcpbridge.base.config_file",
        "mcpbridge.base.directories",
        "mcpbridge.base.version",
    }
    slow = {
        "typing",
        "dataclasses",
        "pathlib",
        "hashlib",
        "tempfile",
        "subprocess",
        "argparse",
        "asyncio",
    }
    assert not imported & slow
