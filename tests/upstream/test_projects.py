"""Servers that work in a project: what they wait for, who shares them, and which process lists (issue 7)."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpbridge.base.errors import UpstreamUnavailable
from mcpbridge.config.load import read
from mcpbridge.core.elicitation import NO_CAPABILITIES, ClientCapabilities
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.projects import directory_of, uri_of_elsewhere, within
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream
from support.upstreams.scripted_upstream import (
    LEGACY_SERVER,
    MODERN_SERVER,
    ScriptedTransport,
    Someone,
    Watcher,
    call_of,
)

FORM = ClientCapabilities.declared({"elicitation": {}}, "2025-11-25")


def at(folder: Path, name: str) -> str:
    """The URI of a directory that is there."""
    (folder / name).mkdir(exist_ok=True)
    return (folder / name).as_uri()


class Servers:
    """A pool of one server, `up`, and how it was started each time."""

    def __init__(self, folder: Path, text: str, script: Any = LEGACY_SERVER) -> None:
        file = folder / "servers.toml"
        file.write_text(f'[servers.up]\ncommand = "x"\n{text}')
        self.started: list[ServerSettings] = []
        """What it was made with, each time that it was connected to."""
        self._script = script
        self.watcher = Watcher()
        self.pool = Pool(read(file, {}).settings.servers, self._made, self.watcher, client_info={"name": "b"})

    def _made(self, _: str, settings: ServerSettings) -> ScriptedTransport:
        made = ScriptedTransport(self._script)

        def news() -> None:
            if made.attempts == 1 and settings not in self.started:
                self.started.append(settings)
            ScriptedTransport.news(made)

        made.news = news
        return made

    @property
    def base(self) -> Upstream:
        return self.pool.upstreams["up"]

    async def served(self, client: Someone) -> Upstream:
        upstream = await self.pool.serving(self.base, client)
        await upstream.request(call_of(client=client))
        return upstream


@pytest.mark.parametrize("script", [LEGACY_SERVER, MODERN_SERVER], ids=["legacy", "modern"])
async def test_a_server_that_needs_a_project_waits_for_the_first_and_works_in_it(tmp_path: Path, script: Any) -> None:
    servers = Servers(tmp_path, 'args = ["${PROJECT_ROOT}"]', script)
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30), "nobody need wait for it"
            assert "works in a project" in servers.base.connection.state_text
            assert servers.pool.wants_project()
            servers.pool.expect(NO_CAPABILITIES, project=at(tmp_path, "first"))
            assert not servers.pool.wants_project()
            assert await servers.pool.settled(30)
            assert servers.base.lists["tools"]
            first = [
                await servers.served(Someone(project=uri))
                for uri in (at(tmp_path, "first"), at(tmp_path, "first") + "/")
            ]
            assert first == [servers.base] * 2
            other = await servers.served(Someone(project=at(tmp_path, "second")))
            assert other is not servers.base
            assert other.home == ("", f"{tmp_path}/second")
    assert [started.args for started in servers.started] == [[f"{tmp_path}/first"], [f"{tmp_path}/second"]]


async def test_its_first_call_brings_the_project_as_well(tmp_path: Path) -> None:
    """Its tools may be listed from what is remembered of it, or a client had to be asked for its roots."""
    servers = Servers(tmp_path, 'env = { ROOT = "${PROJECT_ROOT}" }')
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.served(Someone(project=at(tmp_path, "first"), form=True)) is servers.base
            assert servers.base.declared.profile is FORM
    assert [started.env for started in servers.started] == [{"ROOT": f"{tmp_path}/first"}]


@pytest.mark.parametrize("project", ["", "vscode-remote://host/dir"])
async def test_a_client_without_a_directory_is_told_what_to_do(tmp_path: Path, project: str) -> None:
    servers = Servers(tmp_path, 'args = ["${PROJECT_ROOT}"]')
    async with servers.pool.running():
        servers.pool.expect(NO_CAPABILITIES, project=project)
        with pytest.raises(UpstreamUnavailable, match=r"this client named none: open a folder.*serve --project DIR"):
            await servers.served(Someone(project=project))
    assert not servers.started


async def test_with_a_default_it_starts_at_once_and_moves_to_the_first_project(tmp_path: Path) -> None:
    servers = Servers(tmp_path, 'args = ["${PROJECT_ROOT:-/default}"]')
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.pool.settled(30)
            before = servers.base
            assert await servers.served(Someone(project=at(tmp_path, "first"))) is servers.base is not before
            while before.status.state != "stopped":
                await before.connection.stepped()
            assert await servers.served(Someone()) is not servers.base
    assert [started.args for started in servers.started] == [["/default"], [f"{tmp_path}/first"]]


async def test_one_that_somebody_uses_without_a_project_stays_where_it_is(tmp_path: Path) -> None:
    """It may hold something for its client."""
    servers = Servers(tmp_path, 'share = "project"')
    with anyio.fail_after(10):
        async with servers.pool.running():
            assert await servers.served(Someone()) is servers.base
            before = servers.base
            assert await servers.served(Someone(project=tmp_path.as_uri())) is not before
            assert await servers.served(Someone()) is servers.base is before


async def test_clients_of_a_project_that_can_be_asked_other_things_have_other_sessions(tmp_path: Path) -> None:
    """A legacy session declares once what its client can be asked."""
    servers = Servers(tmp_path, 'share = "project"')
    here = tmp_path.as_uri()
    with anyio.fail_after(10):
        async with servers.pool.running():
            people = [Someone(project=here), Someone(project=here, form=True), Someone(project=here)]
            first, second, third = [await servers.served(someone) for someone in people]
            assert first is third is servers.base
            assert second is not first
            assert servers.pool.instances("up") == 2
    assert [started.cwd for started in servers.started] == [None, str(tmp_path)]


async def test_a_modern_server_has_one_process_a_project_whatever_its_clients_can_be_asked(tmp_path: Path) -> None:
    servers = Servers(tmp_path, 'share = "project"', MODERN_SERVER)
    here = tmp_path.as_uri()
    with anyio.fail_after(10):
        async with servers.pool.running():
            people = [Someone(project=here), Someone(project=here, form=True), Someone(project=here, sampling=True)]
            assert [await servers.served(someone) for someone in people] == [servers.base] * 3


async def test_clients_that_are_kept_apart_are_so_in_their_projects(tmp_path: Path) -> None:
    servers = Servers(tmp_path, 'share = "session"\nargs = ["${PROJECT_ROOT}"]')
    with anyio.fail_after(10):
        async with servers.pool.running():
            own = [await servers.served(Someone(project=at(tmp_path, name))) for name in ("a", "a", "b")]
            assert len({*own, servers.base}) == 4
            assert servers.base.lists["tools"], "one of no client lists"
    assert [started.args for started in servers.started] == [[f"{tmp_path}/a"], [f"{tmp_path}/b"]]


async def test_a_server_that_failed_in_one_project_is_tried_in_the_next(tmp_path: Path) -> None:
    """Else its lists would wait for ever for a project that is gone."""
    servers = Servers(tmp_path, 'args = ["${PROJECT_ROOT}"]')
    with anyio.fail_after(20):
        async with servers.pool.running():
            servers.pool.expect(NO_CAPABILITIES, project=at(tmp_path, "gone"))
            assert await servers.pool.settled(30)
            base = servers.base
            base.connection.closed("it ended")  # as a server that dies again and again
            base.connection.step(type(base.status)("failed", "it ended", 1e9))
            assert await servers.served(Someone(project=at(tmp_path, "next"))) is servers.base is not base
            assert servers.base.home == ("", f"{tmp_path}/next")


async def test_other_settings_leave_it_in_its_project(tmp_path: Path) -> None:
    servers = Servers(tmp_path, 'args = ["${PROJECT_ROOT}"]')
    with anyio.fail_after(10):
        async with servers.pool.running():
            here = Someone(project=at(tmp_path, "here"))
            base = await servers.served(here)
            file = tmp_path / "servers.toml"
            file.write_text('[servers.up]\ncommand = "x"\nargs = ["${PROJECT_ROOT}"]\ntools.exclude = ["a"]')
            assert (await servers.pool.configure(read(file, {}).settings.servers)).untouched == ("up",)
            assert await servers.served(here) is base
            assert (base.settings.tools.exclude, base.settings.args) == (["a"], [f"{tmp_path}/here"])
            file.write_text('[servers.up]\ncommand = "x"\nargs = ["-v", "${PROJECT_ROOT}"]')
            assert (await servers.pool.configure(read(file, {}).settings.servers)).replaced == ("up",)
            assert await servers.pool.settled(30)
            assert await servers.served(here) is servers.base is not base
    assert servers.started[-1].args == ["-v", f"{tmp_path}/here"]


async def test_a_project_that_is_not_there_does_not_count(tmp_path: Path) -> None:
    """A directory may be gone, or be one of another machine; nothing is started in it, or with its name."""
    file = tmp_path / "file"
    file.touch()
    servers = Servers(tmp_path, 'args = ["${PROJECT_ROOT:-/default}"]')
    with anyio.fail_after(10):
        async with servers.pool.running():
            for uri in (file.as_uri(), (tmp_path / "none").as_uri()):
                servers.pool.expect(NO_CAPABILITIES, project=uri)
                with pytest.raises(
                    UpstreamUnavailable, match=r"/(file|none), the one that this client named, is no dir"
                ):
                    await servers.served(Someone(project=uri))
    assert [started.args for started in servers.started] == [["/default"]]


async def test_a_project_of_a_client_elsewhere_keeps_it_apart_and_names_no_directory(tmp_path: Path) -> None:
    link = tmp_path / "allowed" / "link"
    at(tmp_path, "allowed")
    inside = at(tmp_path, "allowed/x")
    link.symlink_to("/etc")
    allowed = [str(tmp_path / "allowed")]
    assert within(inside, allowed) == inside
    for uri in ("file:///etc", link.as_uri(), f"{inside}/../../..", at(tmp_path, "allowed2"), "vscode://x", inside[7:]):
        refused = within(uri, allowed)
        assert uri_of_elsewhere(refused) == uri
        assert not directory_of(refused)
    assert uri_of_elsewhere(within(inside, [])) == inside, "nothing is allowed unless it is said"
    servers = Servers(tmp_path, 'args = ["${PROJECT_ROOT}"]')
    with anyio.fail_after(10):
        async with servers.pool.running():
            with pytest.raises(UpstreamUnavailable, match=r"`http.projects`.*; file:///etc is not"):
                await servers.served(Someone(project=within("file:///etc", allowed)))
