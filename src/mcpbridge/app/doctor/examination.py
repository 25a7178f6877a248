"""The examination: everything that is looked at, in its order, side by side where it takes time, as one report."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import to_thread

from mcpbridge.app.client_config.discover.discover import find_all
from mcpbridge.app.client_config.discover.discovered_servers import Found
from mcpbridge.app.doctor.changed_definitions import about_changes
from mcpbridge.app.doctor.clients import about_clients, about_clients_files
from mcpbridge.app.doctor.config_file import Source, about_configuration, about_withheld, secret_arguments
from mcpbridge.app.doctor.daemon import (
    Status,
    about_changed_tables,
    about_daemon,
    about_running_servers,
    running_of,
    running_servers,
)
from mcpbridge.app.doctor.failures import explain, unavailable
from mcpbridge.app.doctor.finding import About, Edit, Finding
from mcpbridge.app.doctor.launchers import about_copies, about_reach, about_relative_paths, about_way, with_yes
from mcpbridge.app.doctor.machine import Machine, about_machine, look
from mcpbridge.app.doctor.own_tools import LookedTools, about_tools, look_at_tools, running_tools
from mcpbridge.app.doctor.report import Report, ServerReport, ToolReport
from mcpbridge.app.doctor.sandbox import about_installs, about_profiles, about_sandboxes, look_at_sandboxes
from mcpbridge.app.doctor.server_tools import about_offers
from mcpbridge.app.doctor.start_servers import Boot, catalog_of, look_at_all, reach, report_of, tokens_of
from mcpbridge.app.doctor.suspicious_texts import about_texts, suspicious_texts
from mcpbridge.base.background_tasks import TaskGroup
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.catalog.unmatched_names import UnmatchedNames
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings
from mcpbridge.engine.generation import selectors_of
from mcpbridge.sandbox.isolation.self_test import Readiness
from mcpbridge.upstream.settings import ServerSettings


def about_unmatched(settings: Settings, boots: Mapping[str, Boot]) -> Iterator[Finding]:
    """Rules, hooks, profiles and tables of tools that match nothing of what the servers list."""
    names = UnmatchedNames(selectors_of(settings), settings.servers)
    for boot in boots.values():
        if boot.is_ready:
            names.listed(boot.server, boot.lists.get("tools", ()))
    for unmatched in names.unmatched():
        fix = "Correct the name, or take it out."
        yield Finding("matches-nothing", "warn", str(unmatched), "", settings.source or "", "It has no effect.", fix)


@dataclass(frozen=True, slots=True)
class _Beside:
    """What is looked at besides the servers."""

    machine: Machine
    running: Status
    clients: Found
    sandboxes: Readiness | None
    """None where nothing needs one."""


class Examiner:
    """Examines one configuration, and single servers of it again after a change."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        home: Path,
        platform: str,
        project: Path | None,
        redact: Redactor,
        seconds: float | None = None,
        report: Callable[[Boot], None] = lambda boot: None,
    ) -> None:
        """`seconds`: what each server has to start, instead of its `init_timeout`; `report` hears as each is done.

        `home`, `platform` and `project` say where the files of clients are.
        """
        self._environ, self._home, self._platform, self._project = environ, home, platform, project
        self._redact, self._seconds, self._on_boot = redact, seconds, report

    async def examine(self, loaded: Loaded, servers: Mapping[str, ServerSettings], *, is_whole: bool) -> Report:
        """Start these servers, look at everything, and say what was found.

        `is_whole`: they are all that there are; else nothing is said of the whole.
        """
        self._learn(servers)
        homeless = {name for name, server in servers.items() if server.needs_project and self._project is None}
        started = {name: server for name, server in servers.items() if name not in homeless}
        async with TaskGroup() as tasks:
            looking = tasks.create_task(self._look_beside(loaded.settings))
            starting = tasks.create_task(self._boots(loaded.settings, started))
            trying = tasks.create_task(look_at_tools(loaded.settings, self._redact)) if is_whole else None
        beside, boots = looking.result(), starting.result()
        own = trying.result() if trying is not None else LookedTools()
        source = Source.read(loaded.settings.source or "")
        snapshot = catalog_of(loaded.settings, boots)
        tokens = tokens_of(loaded.settings, snapshot)
        findings = list(self._of_servers(loaded.settings, boots, source))
        findings += about_offers(snapshot, boots, {name: sum(of.values()) for name, of in tokens.items()}, source)
        findings += about_changes(loaded.settings, boots, own.pinned, source, self._environ, self._redact)
        said = {name: boot.instructions for name, boot in boots.items() if boot.is_ready}
        findings += about_texts(suspicious_texts(snapshot, loaded.settings.servers, said), loaded.settings.source or "")
        if is_whole:
            findings += about_clients(loaded.settings, {k: v for of in tokens.values() for k, v in of.items()}, source)
            findings += about_unmatched(loaded.settings, boots)
        findings += (_without_project(name, source) for name in homeless)
        findings += about_tools(own.reports, own.why_not, source)
        findings += self._of_the_rest(loaded, servers, beside, source)
        reports = tuple(
            ServerReport(name, is_ready=False, transport=servers[name].kind)
            if name in homeless
            else report_of(boots[name], tokens.get(name, {}))
            for name in servers
        )
        return self._report(loaded, beside, reports, findings, tools=own.reports, is_started=True)

    async def ask(self, loaded: Loaded, servers: Mapping[str, ServerSettings], *, is_whole: bool = True) -> Report:
        """The same, with what the running bridge says of its servers; nothing is started. `running` may be empty."""
        self._learn(servers)
        beside = await self._look_beside(loaded.settings)
        source = Source.read(loaded.settings.source or "")
        findings = [
            one
            for one in about_running_servers(beside.running, servers, source, self._environ)
            if not one.server or one.server in servers
        ]
        tools = running_tools(beside.running, loaded.settings) if is_whole else []
        findings += about_changed_tables(beside.running, source) if is_whole else ()
        findings += about_tools(tools, "", source)
        findings += self._of_the_rest(loaded, servers, beside, source)
        reports = tuple(one for one in running_servers(beside.running) if one.name in servers)
        return self._report(loaded, beside, reports, findings, tools=tools, is_started=False)

    async def again(self, loaded: Loaded, server: str) -> tuple[ServerReport, list[Finding]]:
        """Look at one server once more, as it is configured now: how it is, and what is wrong if it does not work."""
        settings = loaded.settings
        self._learn(settings.servers)
        boots = await self._boots(settings, {server: settings.servers[server]})
        source = Source.read(settings.source or "")
        tokens = tokens_of(settings, catalog_of(settings, boots))
        failed = [one for one in self._of_servers(settings, boots, source) if one.level == "fail"]
        return report_of(boots[server], tokens.get(server, {})), failed

    async def _boots(self, settings: Settings, servers: Mapping[str, ServerSettings]) -> dict[str, Boot]:
        project = self._project.as_uri() if self._project is not None else ""
        servers = {name: server.in_project(project) for name, server in servers.items()}
        async with reach(settings, self._redact) as make:
            boots = await look_at_all(servers, make, seconds=self._seconds, report=self._on_boot)
            others = {
                name: servers[name].model_copy(update={"transport": None})
                for name, boot in boots.items()
                if not boot.is_ready and servers[name].url is not None and servers[name].transport is not None
            }
            for name, boot in (await look_at_all(others, make, seconds=self._seconds)).items():
                if boot.is_ready:
                    boots[name] = replace(boots[name], speaks=boot.transport)
        return boots

    def _of_servers(self, settings: Settings, boots: Mapping[str, Boot], source: Source) -> Iterator[Finding]:
        for name, boot in boots.items():
            server = settings.servers[name]
            if server.unavailable:
                yield unavailable(name, server.unavailable, source)
            elif boot.speaks:
                where = source.where("servers", name, "transport")
                what = f"it speaks {boot.speaks}, not {boot.transport}"
                edit = Edit(name, key=("transport",), value=boot.speaks)
                fix = f'Write transport = "{boot.speaks}", or leave it out.'
                yield Finding("wrong-transport", "fail", what, name, where, boot.what, fix, edit)
            elif not boot.is_ready:
                seconds = self._seconds or server.init_timeout
                yield explain(boot, server, source, self._environ, seconds=seconds)
            elif (edit := with_yes(name, server)) is not None:
                why = "It runs now, since the package is installed; without it npx would wait for an answer."
                where, what = source.where("servers", name, "args"), "npx may ask whether to install it"
                yield Finding("npx-may-ask", "note", what, name, where, why, "Put `-y` before the package.", edit)

    def _of_the_rest(
        self, loaded: Loaded, servers: Mapping[str, ServerSettings], beside: _Beside, source: Source
    ) -> Iterator[Finding]:
        settings = loaded.settings
        for warning in loaded.warnings:
            yield Finding("configuration", "warn", warning)
        for name, server in servers.items():
            yield from about_way(name, server, source)
        for one in (*about_configuration(settings, source), *about_withheld(settings, self._environ, source)):
            if not one.server or one.server in servers:
                yield one
        yield from about_relative_paths(servers, source, Path.cwd())
        yield from about_reach(servers, source)
        yield from about_copies(servers, source)
        path = self._environ.get("PATH")
        yield from _of(about_clients_files(beside.clients, source.servers(), path), "clients")
        yield from _of(about_daemon(beside.running), "daemon")
        yield from _of(about_machine(beside.machine), "machine")
        yield from _of(about_sandboxes(settings, beside.sandboxes, source), "machine")
        yield from about_profiles(servers, source)
        yield from about_installs(servers, source)

    async def _look_beside(self, settings: Settings) -> _Beside:
        def look_around() -> tuple[Machine, Status, Found]:
            clients = find_all(self._environ, self._home, self._platform, self._project)
            return look(self._environ), running_of(settings.source, self._environ), clients

        machine, running, clients = await to_thread.run_sync(look_around)
        return _Beside(machine, running, clients, await look_at_sandboxes(settings))

    def _learn(self, servers: Mapping[str, ServerSettings]) -> None:
        """What looks like a secret among arguments is masked, as what stands in `env` is."""
        for name, server in servers.items():
            self._redact.learn(f"arguments of {name}", secret_arguments(server.args))

    @staticmethod
    def _report(
        loaded: Loaded,
        beside: _Beside,
        servers: tuple[ServerReport, ...],
        findings: list[Finding],
        *,
        tools: Sequence[ToolReport],
        is_started: bool,
    ) -> Report:
        config = loaded.settings.source or ""
        return Report(config, beside.machine, servers, tuple(findings), beside.running, is_started, tuple(tools))


def _of(findings: Iterable[Finding], about: About) -> Iterator[Finding]:
    return (replace(one, about=about) for one in findings)


def _without_project(server: str, source: Source) -> Finding:
    what, why = "it is started for a project only", "`${PROJECT_ROOT}` stands for the project of a client."
    where, fix = source.where("servers", server), "Run `mcpbridge doctor` in the directory of one."
    return Finding("needs-project", "note", what, server, where, why, fix)
