"""Values of `${cmd:…}`, `${keyring:…}` and `${secret:…}`: fetched once, and again when they are old (issue 22)."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcpbridge.base.errors import ConfigError
from mcpbridge.config.load import Loaded, read
from mcpbridge.config.secrets.providers import FAILED_AGAIN, TRY_AGAIN, Providers
from mcpbridge.storage.named_secrets import NamedSecrets


class Home:
    """A folder with a configuration, and the environment of its user."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 0.0
        self.environ = {"XDG_DATA_HOME": str(folder / "data"), "PATH": "/usr/bin:/bin"}
        self.providers = Providers(self.environ, clock=lambda: self.now)

    def read(self, text: str, providers: Providers | None = None) -> Loaded:
        path = self.folder / "servers.toml"
        path.write_text(text)
        return read(path, self.environ, providers=providers or self.providers)

    def script(self, name: str, lines: str) -> str:
        """A program that notes each run of it."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\necho x >> {name}.runs\n{lines}\n")
        path.chmod(0o700)
        return f"./{name}"

    def runs(self, name: str) -> int:
        path = self.folder / f"{name}.runs"
        return len(path.read_text().split()) if path.exists() else 0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def server(value: str) -> str:
    return f"[servers.a]\ncommand = 'x'\nenv.TOKEN = '''{value}'''\n"


def unavailable(loaded: Loaded) -> str:
    return loaded.settings.servers["a"].unavailable or ""


def test_what_a_command_prints_is_the_value_and_a_secret(home: Home) -> None:
    loaded = home.read(server("Bearer ${cmd:printf '%s\\n' 'canary one'}!"))
    assert loaded.settings.servers["a"].env["TOKEN"] == "Bearer canary one!"
    assert "canary one" in loaded.secrets
    assert not loaded.is_deferred


def test_a_command_runs_once_for_all_references_and_all_readings(home: Home) -> None:
    program = home.script("fetch", "echo value-$1")
    text = f"""
    [servers.a]
    command = "x"
    env = {{ A = "${{cmd:{program} 1}}", B = "${{cmd:{program} 1}}" }}
    [servers.b]
    url = "https://b.example/mcp"
    headers.Authorization = "Bearer ${{cmd:{program} 1}}"
    [tools.c]
    description = "c"
    endpoint = "https://c.example"
    headers.Authorization = "${{cmd:{program} 1}}"
    """
    loaded = home.read(text)
    assert loaded.settings.servers["a"].env == {"A": "value-1", "B": "value-1"}
    assert loaded.settings.servers["b"].headers == {"Authorization": "Bearer value-1"}
    home.read(text)
    assert home.runs("fetch") == 1


def test_there_is_no_shell(home: Home) -> None:
    loaded = home.read(server("${cmd:echo $HOME; echo `id` > owned}"))
    assert loaded.settings.servers["a"].env["TOKEN"] == "$HOME; echo `id` > owned"
    assert not (home.folder / "owned").exists()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("echo canary-value-77; echo wrong: canary-value-77 >&2; exit 3", "exit code 3: wrong: …"),
        ("echo token=ghp_0123456789abcdefghijABCDEFGHIJ012345 >&2; exit 1", "exit code 1: token=[redacted]"),
        ("exit 4", "`fetch` ended with exit code 4 in env.TOKEN"),
        ("true", "`fetch` printed nothing"),
        ("printf '\\377\\376'", "what `fetch` printed is not text"),
        ("printf 'a\\000b'", "a NUL character"),
        ("head -c 70000 /dev/zero | tr '\\0' x", "more than 64 KiB"),
    ],
)
def test_a_command_that_fails_costs_its_server_and_says_why(home: Home, lines: str, reason: str) -> None:
    loaded = home.read(server(f"${{cmd:{home.script('fetch', lines)}}}") + "[servers.b]\ncommand = 'b'\n")
    assert reason in unavailable(loaded)
    assert "canary-value-77" not in unavailable(loaded)
    assert loaded.settings.servers["b"].unavailable is None


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("cmd:no-such-program-here x", "`no-such-program-here` is not installed, or not in PATH"),
        ("cmd:", "it names no command"),
        ("cmd:echo 'x", "no command line"),
        ("cmd:/etc/passwd", "`passwd`: Permission denied"),
        ("secret:nowhere", "there is no secret of this name: mcpbridge secret set nowhere"),
    ],
)
def test_what_cannot_be_fetched_is_named(home: Home, reference: str, reason: str) -> None:
    assert reason in unavailable(home.read(server(f"${{{reference}}}")))


def test_a_command_that_hangs_is_ended_also_if_its_children_keep_the_pipe(home: Home) -> None:
    program = home.script("fetch", "sleep 60 & sleep 60")
    loaded = home.read(f"[secrets]\ntimeout = 0.2\n{server(f'${{cmd:{program}}}')}")
    assert "`fetch` took longer than 0.2 s" in unavailable(loaded)


def test_what_is_wrong_anywhere_else_is_an_error(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"store\.key.*ended with exit code 1"):
        home.read("[store]\nkey = '${cmd:false}'\n")


def test_without_providers_nothing_is_run_and_references_stay_as_they_are_written(home: Home) -> None:
    """So that a configuration can be shown to a person before anything of it runs."""
    program = home.script("fetch", "echo value")
    path = home.folder / "servers.toml"
    path.write_text(
        f"""
        [servers.a]
        command = "run"
        args = ["--token", "${{cmd:{program}}}"]
        env = {{ TOKEN = "${{secret:x}}", LD_PRELOAD = "evil.so" }}
        [servers.b]
        url = "${{cmd:{program} url}}"
        [tools.c]
        description = "c"
        endpoint = "${{keyring:s/n}}"
        """
    )
    loaded = read(path, home.environ)
    assert loaded.is_deferred
    a = loaded.settings.servers["a"]
    assert a.args == ["--token", "${cmd:./fetch}"]
    assert a.env == {"TOKEN": "${secret:x}", "LD_PRELOAD": "evil.so"}
    assert "is not read before it is used" in (loaded.settings.servers["b"].unavailable or "")
    assert {"cmd:./fetch", "cmd:./fetch url", "secret:x", "keyring:s/n"} <= loaded.references
    assert loaded.secrets == ()
    assert home.runs("fetch") == 0


def test_values_are_fetched_again_when_they_are_old_and_a_change_is_reported(home: Home) -> None:
    value = home.folder / "value"
    value.write_text("first-value")
    program = home.script("fetch", "cat value")
    text = "[secrets]\nrefresh = 100\n" + server(f"${{cmd:{program}}}")
    home.read(text)
    assert not home.providers.is_due
    home.now = 99
    assert not home.providers.is_due
    home.now = 101
    assert home.providers.is_due
    assert home.providers.refresh() is False, "it is the same value"
    value.write_text("second-value")
    assert home.providers.refresh() is False, "it is not old yet"
    assert home.providers.refresh(everything=True) is True
    assert home.read(text).settings.servers["a"].env["TOKEN"] == "second-value"
    assert home.runs("fetch") == 3


def test_a_locked_vault_leaves_the_old_value_in_use(home: Home) -> None:
    text = server(f"${{cmd:{home.script('fetch', 'test ! -e locked && echo the-value')}}}")
    home.read(text)
    (home.folder / "locked").touch()
    assert home.providers.refresh(everything=True) is False
    assert "exit code 1" in home.providers.problems[0]
    assert home.read(text).settings.servers["a"].env["TOKEN"] == "the-value"


def test_a_failure_is_tried_again_soon_and_refreshing_never_can_be_chosen(home: Home) -> None:
    program = home.script("fetch", "test -e open && echo the-value")
    text = server(f"${{cmd:{program}}}")
    assert unavailable(home.read(text))
    (home.folder / "open").touch()
    assert unavailable(home.read(text)), "it counts for a moment"
    home.now = FAILED_AGAIN + 1
    assert home.providers.is_due
    assert home.providers.refresh() is True
    assert not unavailable(home.read(text))
    never = Providers(home.environ, clock=lambda: home.now)
    home.read(f"[secrets]\nrefresh = 0\n{text}", never)
    home.now += 1e6
    assert not never.is_due
    assert TRY_AGAIN < FAILED_AGAIN


def test_what_the_file_does_not_name_any_more_is_forgotten(home: Home) -> None:
    home.read(server("${cmd:echo one}"))
    home.read("[servers.a]\ncommand = 'x'\n")
    assert not home.providers.has_any


def test_the_store_of_the_bridge_has_both_spellings_and_is_read_each_time(home: Home) -> None:
    store = NamedSecrets(home.environ)
    store.set("github", "canary-one")
    text = "[servers.a]\ncommand = 'x'\nenv = { A = '${secret:github}', B = '${keyring:github}' }\n"
    assert home.read(text).settings.servers["a"].env == {"A": "canary-one", "B": "canary-one"}
    store.set("github", "canary-two")
    assert home.read(text).settings.servers["a"].env == {"A": "canary-two", "B": "canary-two"}
    store.remove("github")
    assert "mcpbridge secret set github" in unavailable(home.read(text))


def keyring(get: Callable[[str, str], Any], priority: float = 5) -> Any:
    return SimpleNamespace(get_keyring=lambda: SimpleNamespace(priority=priority), get_password=get)


def test_an_entry_of_the_systems_keyring(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {("https://git.example", "me"): "canary-entry"}
    monkeypatch.setitem(sys.modules, "keyring", keyring(lambda *key: entries.get(key)))
    loaded = home.read(server("${keyring:https://git.example/me}"))
    assert loaded.settings.servers["a"].env["TOKEN"] == "canary-entry"
    assert loaded.secrets == ("canary-entry",)
    assert "keyring set 'a' 'b'" in unavailable(home.read(server("${keyring:a/b}")))


def test_a_keyring_that_is_not_there_or_fails_says_what_to_do(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    text = server("${keyring:a/b}")

    def read_with(module: Any) -> str:
        monkeypatch.setitem(sys.modules, "keyring", module)
        return unavailable(home.read(text, Providers(home.environ)))

    def locked(_: str, __: str) -> str:
        raise RuntimeError("canary in a message of a library")

    assert "pip install 'mcpbridge[keyring]'" in read_with(None)
    assert "use ${secret:NAME}" in read_with(keyring(lambda *_: "x", priority=0))
    failed = read_with(keyring(locked))
    assert "the keyring does not give it: RuntimeError" in failed
    assert "canary" not in failed


def test_a_keyring_that_waits_for_a_person_is_given_up(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    never = threading.Event()
    monkeypatch.setitem(sys.modules, "keyring", keyring(lambda *_: never.wait()))
    text = f"[secrets]\ntimeout = 0.1\n{server('${keyring:a/b}')}"
    assert "is it locked?" in unavailable(home.read(text))
    never.set()
