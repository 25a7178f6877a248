"""The configuration file of a bridge that runs: what is read of it, when, and what becomes of mistakes (issue 7)."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.app.daemon.config_watcher import Reloading
from mcpbridge.base.errors import ConfigError
from mcpbridge.base.log import Logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import read
from mcpbridge.config.secrets.providers import Providers
from mcpbridge.config.trust.content import whole_content
from mcpbridge.config.trust.decisions import TrustStore
from mcpbridge.library.bridge import Bridge
from mcpbridge.storage.named_secrets import NamedSecrets
from support.harness import eventually
from support.in_process_bridge import BridgeToScripts
from support.upstreams.scripted_upstream import LEGACY_SERVER, ScriptedTransport

ONE = '[servers.a]\ncommand = "scripted"\n'
TWO = ONE + '[servers.b]\ncommand = "scripted"\n'
QUICK: dict[str, float] = {"interval": 0.01, "debounce": 0.01}


class World:
    """A bridge and its file."""

    def __init__(self, bridge: Bridge, reloading: Reloading, path: Path) -> None:
        self.bridge, self.reloading, self.path = bridge, reloading, path
        self.logged: list[tuple[str, str, dict[str, Any]]] = []

    def write(self, text: str) -> None:
        self.path.write_text(text)

    async def reload(self, text: str, **environ: str) -> dict[str, Any]:
        self.write(text)
        told = await self.reloading.reload(environ)
        return json.loads(json.dumps(told))

    @property
    def servers(self) -> list[str]:
        return sorted(self.bridge.pool.upstreams)

    async def comes_to(self, *servers: str) -> None:
        await eventually(lambda: _now(self.servers), lambda found: found == list(servers), within=30)

    async def is_right(self) -> None:
        """Nothing is wrong with the file: told a moment after its servers are there."""
        await eventually(lambda: _now(self.bridge.config_error), lambda error: error is None)

    def events(self, level: str) -> list[str]:
        return [event for kind, event, _ in self.logged if kind == level and "up" not in event.split()[0]]


async def _now(value: Any) -> Any:
    return value


@asynccontextmanager
async def world(
    folder: Path, text: str = ONE, environ: Mapping[str, str] | None = None, **more: Any
) -> AsyncGenerator[World]:
    path = folder / "servers.toml"
    path.write_text(text)
    loaded = read(path, environ or {}, providers=more.get("providers"))
    redact = Redactor(loaded.secrets)
    transports = {name: ScriptedTransport(LEGACY_SERVER) for name in "abc"}
    with anyio.fail_after(60):
        async with BridgeToScripts(loaded.settings, transports, redact=redact) as bridge:
            assert await bridge.settled(30)
            made = World(bridge, Reloading(bridge, path, redact=redact, environ=environ or {}, **more), path)
            Logger.sink = lambda level, event, fields: made.logged.append((level, event, fields))
            yield made


async def test_an_edit_takes_effect_and_is_told_in_one_line(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        told = await at.reload(TWO + "[calls]\nmax_chain = 5\n")
        assert told == {"ok": True, "added": ["b"], "sections": ["calls"]}
        assert at.servers == ["a", "b"]
        [(_, _, fields)] = [line for line in at.logged if line[1] == "configuration reloaded"]
        assert fields == {"added": ["b"], "sections": ["calls"]}


async def test_the_same_file_and_other_comments_change_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        assert await at.reload(ONE) == {"ok": True}
        assert await at.reload(f"# for you\n\n{ONE}\n") == {"ok": True}
        assert at.logged == []


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        (ONE + "[servers.b\n", "not valid TOML", "3"),
        (ONE + 'comand = "x"\n', "unknown key", "3"),
        (ONE + "call_timeout = -1\n", "call_timeout", "3"),
        ('[servers.a]\nargs = ["x"]\n', "command", "1"),
        (ONE + '[expose]\nprofile = "none"\n', "profile", None),
    ],
)
async def test_a_broken_edit_changes_nothing_and_is_shown_until_it_is_mended(
    tmp_path: Path, text: str, message: str, line: str | None
) -> None:
    async with world(tmp_path) as at:
        before = at.bridge.settings
        told = await at.reload(text)
        assert not told["ok"]
        assert message in told["config_error"]["message"]
        assert told["config_error"]["file"] == str(at.path)
        assert told["config_error"].get("line") == line
        assert told["config_error"]["at"].endswith("+00:00")
        assert at.bridge.status()["config_error"] == told["config_error"]
        assert at.bridge.settings is before
        assert await at.reload(text) == told, "with the time of the first"
        assert at.events("error") == ["the configuration has an error; the previous one stays in effect"], "once"
        assert await at.reload(ONE) == {"ok": True}
        assert at.bridge.status()["config_error"] is None
        assert "the configuration is valid again" in at.events("info")


async def test_a_missing_variable_costs_its_server_alone(tmp_path: Path) -> None:
    text = TWO + '[servers.c]\ncommand = "scripted"\nenv = { KEY = "${C_KEY}" }\n'
    async with world(tmp_path) as at:
        assert (await at.reload(text))["added"] == ["b", "c"]
        states = {server["name"]: server for server in at.bridge.status()["servers"]}
        assert states["c"]["state"] == "unavailable"
        assert "missing variable ${C_KEY}" in states["c"]["reason"]
        assert states["a"]["state"] == "ready"
        told = await at.reload(text, C_KEY="a secret of c")
        assert told == {"ok": True, "replaced": ["c"]}, "a client brought it"
        assert (await at.reload(text + "[calls]\nbatch = 3\n")) == {"ok": True, "sections": ["calls"]}, "and it stays"


async def test_what_the_environment_of_the_bridge_says_comes_first(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "scripted"\nargs = ["${WHICH}"]\n'
    async with world(tmp_path, text, {"WHICH": "own"}) as at:
        assert await at.reload(text, WHICH="another's") == {"ok": True}
        assert at.bridge.settings.servers["a"].args == ["own"]


async def test_secrets_that_an_edit_brings_are_masked(tmp_path: Path) -> None:
    redact = Redactor()
    async with world(tmp_path) as at:
        reloading = Reloading(at.bridge, at.path, redact=redact, environ={"TOKEN": "s3cr3t-of-mine"})
        at.write(ONE + 'env = { API_TOKEN = "${TOKEN}" }\n')
        assert (await reloading.reload())["replaced"] == ["a"]
        assert redact("it is s3cr3t-of-mine") == "it is [redacted]"


async def test_one_server_that_is_served_alone_stays_the_only_one(tmp_path: Path) -> None:
    async with world(tmp_path, view="a") as at:
        assert await at.reload(TWO) == {"ok": True}
        assert at.servers == ["a"]
        told = await at.reload('[servers.b]\ncommand = "scripted"\n')
        assert "no server is called 'a'" in told["config_error"]["message"]
        assert at.servers == ["a"]


async def test_warnings_are_told_and_logged_when_they_are_new(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        for _ in range(2):
            told = await at.reload("[servers]\n")
            assert "no servers are configured" in told["warnings"][0]
        assert at.events("warning") == ["configuration"]


async def test_what_is_logged_follows_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with world(tmp_path) as at:
        await at.reload(ONE + '[log]\nlevel = "error"\nformat = "json"\n')
        at.write("no TOML")
        await at.reloading.reload()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["level"] for line in lines] == ["error"]


# -- watching


@asynccontextmanager
async def watched(folder: Path, text: str = ONE) -> AsyncGenerator[World]:
    async with world(folder, text) as at, at.reloading.watching(**QUICK):
        yield at


async def test_an_edited_file_takes_effect_by_itself(tmp_path: Path) -> None:
    async with watched(tmp_path) as at:
        at.write(TWO)
        await at.comes_to("a", "b")
        at.write(ONE)
        await at.comes_to("a")


async def test_a_file_that_is_put_in_the_place_of_the_old_one_is_seen(tmp_path: Path) -> None:
    """Many editors write another file and rename it; some remove the old one first."""
    async with watched(tmp_path) as at:
        other = tmp_path / "servers.toml~"
        other.write_text(TWO)
        os.utime(other, ns=(at.path.stat().st_atime_ns, at.path.stat().st_mtime_ns))
        other.replace(at.path)
        await at.comes_to("a", "b")
        at.path.unlink()
        await asyncio.sleep(0.03)
        at.write(ONE)
        await at.comes_to("a")
        await at.is_right()


async def test_a_file_that_does_not_come_back_is_a_broken_edit(tmp_path: Path) -> None:
    async with watched(tmp_path) as at:
        at.path.unlink()
        await eventually(lambda: _now(at.bridge.config_error), bool)
        assert "cannot be read" in at.bridge.status()["config_error"]["message"]
        assert at.servers == ["a"]
        at.write(TWO)
        await at.comes_to("a", "b")
        await at.is_right()


async def test_a_broken_file_is_read_again_once_it_is_mended(tmp_path: Path) -> None:
    async with watched(tmp_path) as at:
        at.write(TWO + "[")
        await eventually(lambda: _now(at.bridge.config_error), bool)
        at.write(TWO)
        await at.comes_to("a", "b")
        await at.is_right()


async def test_a_file_whose_text_stands_in_the_configuration_is_watched_as_well(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("first")
    text = '[servers.a]\ncommand = "scripted"\nenv = { KEY = "${file:key}" }\n'
    async with watched(tmp_path, text) as at:
        (tmp_path / "key").write_text("second")
        await eventually(lambda: _now(at.bridge.settings.servers["a"].env), lambda env: env == {"KEY": "second"})


async def test_watching_can_be_switched_off_and_on_again(tmp_path: Path) -> None:
    async with watched(tmp_path) as at:
        at.write(ONE + "[daemon]\nwatch = false\n")
        await eventually(lambda: _now(at.bridge.settings.daemon.watch), lambda is_on: not is_on)
        at.write(TWO)
        await asyncio.sleep(0.1)
        assert at.servers == ["a"], "nobody looks"
        assert (await at.reloading.reload())["added"] == ["b"]
        at.write(ONE)
        await at.comes_to("a")


async def test_an_edit_of_the_moment_in_which_the_bridge_started_is_not_missed(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        at.write(TWO)
        late = Reloading(at.bridge, at.path, redact=Redactor())
        async with late.watching(**QUICK):
            await at.comes_to("a", "b")


async def test_reloads_wait_for_one_another(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        at.write(TWO)
        first, *others = await asyncio.gather(*(at.reloading.reload() for _ in range(5)))
        assert first == {"ok": True, "added": ["b"]}
        for told in others:
            assert told.keys() == {"ok", "before"}, "they changed nothing, and say what did"
            assert told["before"]["added"] == ["b"]


async def test_a_mistake_that_only_building_shows_is_a_broken_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise ConfigError("not installed", key="results.tokenizer")

    async with world(tmp_path) as at:
        monkeypatch.setattr("mcpbridge.engine.wiring.results.counter", refuse)
        told = await at.reload(TWO)
        assert told["config_error"]["message"] == "results.tokenizer: not installed"
        assert at.servers == ["a"]


# -- an empty file


@pytest.mark.parametrize("text", ["", "\n", "   \n\t\n", "# all gone\n", "\ufeff", "\r\n# a\r\n"])
async def test_a_file_that_was_emptied_takes_no_server_away(tmp_path: Path, text: str) -> None:
    """A full disk, or an editor that empties a file before it writes, leaves one (issue 18)."""
    async with world(tmp_path) as at:
        told = await at.reload(text)
        assert told["ok"] is False
        assert "it is empty" in told["config_error"]["message"]
        assert at.servers == ["a"]
        assert "it is empty" in at.bridge.status()["config_error"]["message"]
        assert (await at.reload(TWO))["added"] == ["b"]
        assert at.bridge.config_error is None


async def test_an_emptied_file_is_not_taken_up_by_itself_either(tmp_path: Path) -> None:
    async with watched(tmp_path) as at:
        at.write("")
        await eventually(lambda: _now(at.bridge.config_error), bool)
        assert at.servers == ["a"]
        at.write(TWO)
        await at.comes_to("a", "b")
        await at.is_right()


async def test_who_takes_the_last_server_out_on_purpose_gets_that(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        at.write("")
        told = await at.reloading.reload(may_be_empty=True)
        assert told["removed"] == ["a"]
        assert at.servers == []
        assert (await at.reload("# nothing\n"))["ok"], "there is nothing left to lose"
        assert (await at.reload(ONE))["added"] == ["a"]


@pytest.mark.parametrize("text", ["[log]\nlevel = 'info'\n", "[servers]\n", "servers = {}\n"])
async def test_a_file_that_says_something_may_have_no_servers(tmp_path: Path, text: str) -> None:
    async with world(tmp_path) as at:
        assert (await at.reload(text))["removed"] == ["a"]


# -- secrets that the file refers to (issue 22)


def rotating(folder: Path) -> tuple[str, Path, Providers]:
    value = folder / "value"
    value.write_text("canary-first")
    text = f"[secrets]\nrefresh = 1000\n{ONE}env.TOKEN = '${{cmd:cat value}}'\n[servers.b]\ncommand = 'scripted'\n"
    environ = {"XDG_DATA_HOME": str(folder / "data"), "PATH": os.environ["PATH"]}
    return text, value, Providers(environ)


async def tokens(at: World) -> str:
    return at.bridge.pool.upstreams["a"].settings.env["TOKEN"]


@pytest.mark.parametrize("why", ["old", "refused", "reload"])
async def test_a_rotated_secret_reaches_its_server_alone(tmp_path: Path, why: str) -> None:
    """When it is old, when a server refuses what it got, and on `mcpbridge reload`."""
    text, value, providers = rotating(tmp_path)
    if why == "old":
        text = text.replace("refresh = 1000", "refresh = 0.2")
    async with world(tmp_path, text, providers=providers) as at, at.reloading.watching(**QUICK):
        other = at.bridge.pool.upstreams["b"]
        assert await tokens(at) == "canary-first"
        value.write_text("canary-second")
        if why == "refused":
            at.bridge.pool.upstreams["a"].connection.note_status(401)
        elif why == "reload":
            told = await at.reloading.reload()
            assert "replaced" not in told, "an edit is no reason to run commands again"
            told = await at.reloading.reload(anew=True)
            assert told["replaced"] == ["a"]
        await eventually(lambda: tokens(at), lambda token: token == "canary-second", within=30)
        assert at.bridge.pool.upstreams["b"] is other
        assert at.bridge.redact("canary-second") == "[redacted]", "it is known before anybody can see it"
        assert "canary" not in str(at.logged)


async def test_a_secret_that_is_set_anew_reaches_its_server(tmp_path: Path) -> None:
    environ = {"XDG_DATA_HOME": str(tmp_path / "data")}
    store = NamedSecrets(environ)
    store.set("a", "canary-first")
    text = f"{ONE}env.TOKEN = '${{secret:a}}'\n"
    async with world(tmp_path, text, environ, providers=Providers(environ)) as at, at.reloading.watching(**QUICK):
        assert await tokens(at) == "canary-first"
        store.set("a", "canary-second")
        await eventually(lambda: tokens(at), lambda token: token == "canary-second", within=30)


async def test_a_vault_that_is_locked_later_changes_nothing_and_is_logged_once_a_try(tmp_path: Path) -> None:
    text, value, providers = rotating(tmp_path)
    async with world(tmp_path, text, providers=providers) as at:
        value.unlink()
        assert await at.reloading.reload(anew=True) == {"ok": True}
        assert await tokens(at) == "canary-first"
        [problem] = [fields for _, event, fields in at.logged if "old value stays in use" in event]
        assert "exit code 1" in problem["reason"]


@pytest.mark.parametrize("on", [True, False])
async def test_a_switch_does_not_take_over_an_edit_that_nobody_has_trusted(tmp_path: Path, on: bool) -> None:
    """Somebody else edits the file of a repository; then a person clicks on a tool or a server in the console."""
    environ = dict(os.environ)
    trust = TrustStore(environ)
    text = f"{ONE}disabled = true\n" if on else ONE
    async with world(tmp_path, text, environ, trust=trust, providers=Providers(environ)) as at:
        loaded = read(at.path, environ)
        trust.add(at.path, whole_content(loaded.settings, loaded.content))
        before = at.bridge.settings.servers["a"]
        edited = text.replace('"scripted"', '"evil"') + "env.TOKEN = '${cmd:touch owned}'\n"
        at.write(edited)
        assert 'command = "evil"' in edited
        for tool in ("", "echo"):
            with pytest.raises(ConfigError, match="waits for a new yes"):
                await at.bridge.registry.switch("servers", "a", on=on, tool=tool, keep="file")
        assert at.bridge.settings.servers["a"] == before
        assert at.path.read_text() == edited
        assert not (tmp_path / "owned").exists()
        at.write(text)
        await at.bridge.registry.switch("servers", "a", on=on, tool="echo", keep="file")
        assert at.bridge.settings.servers["a"].command == "scripted"
        again = read(at.path, environ)
        assert trust.trusts(at.path, whole_content(again.settings, again.content)), "our own edit needs no new yes"


async def test_nothing_of_an_edit_runs_before_a_person_trusts_it(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_DATA_HOME": str(tmp_path / "data")}
    trust = TrustStore(environ)
    async with world(tmp_path, ONE, environ, trust=trust, providers=Providers(environ)) as at:
        told = await at.reload(f"{ONE}env.TOKEN = '${{cmd:touch owned}}'\n")
        assert "waits for a new yes" in str(told) or "nobody has trusted" in str(told)
        assert not (tmp_path / "owned").exists()
        loaded = read(at.path, environ)
        trust.add(at.path, whole_content(loaded.settings, loaded.content))
        assert (await at.reloading.reload())["ok"]
        assert (tmp_path / "owned").exists()
