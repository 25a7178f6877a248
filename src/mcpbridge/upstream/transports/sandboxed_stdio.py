"""A server's program in the sandbox: started with its standard input and output as ever, and ended as ever.

It may read its own installation and its working directory, write its home directory, which is kept between its starts,
and do whatever its settings allow.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from mcpbridge.base.errors import ToolInactive, UpstreamUnavailable
from mcpbridge.base.log import get_logger
from mcpbridge.base.process.environment import CERTIFICATE_NAMES, child_environment
from mcpbridge.base.process.process import NOT_FOUND, ProcessSpec
from mcpbridge.protocol.transport import Channel, Receiver
from mcpbridge.sandbox.isolation.readable_files import brought_along
from mcpbridge.sandbox.job import Access, Limits, Runner
from mcpbridge.sandbox.runner import Isolation, Wrapped, rights_of, why_none
from mcpbridge.sandbox.settings import SandboxSettings
from mcpbridge.upstream.isolation.home import home_of, make_home
from mcpbridge.upstream.isolation.packages import Package, package_of
from mcpbridge.upstream.isolation.settings import ServerSandbox
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports.stdio import StdioTransport

if TYPE_CHECKING:
    from mcpbridge.sandbox.egress.report import EgressReport
    from mcpbridge.upstream.isolation.network import FilteredNetwork

log = get_logger("mcpbridge.upstream")

_UNLIMITED = 1 << 44
"""Bytes: more than there is."""
_PIDS = 512
"""Processes and threads of a server, where its settings say nothing: the engine of Node alone has a dozen."""
_OF_THE_SANDBOX = ("HOME", "TMPDIR", "TMP", "TEMP")
"""Variables that are its own directories', unless the server's own `env` sets them."""


class SandboxedTransport(StdioTransport):
    """Starts the server anew at every `connect`: with the same home directory, and an empty one for temporary files."""

    def __init__(
        self,
        name: str,
        settings: ServerSettings,
        runner: Callable[[], Runner] | None,
        *,
        max_bytes: int,
        redact: Callable[[str], str] = lambda text: text,
        reports: "dict[str, EgressReport] | None" = None,
    ) -> None:
        """`runner`: what it is started in, asked at each start; None: a sandbox of its own with default settings.

        `reports`: what servers reached and were refused, by name, with this one's in it from its first start on.
        """
        caps = [settings.memory_limit, settings.sandbox.memory if settings.sandbox is not None else None]
        super().__init__(
            name,
            ProcessSpec("", (), {}),
            max_bytes=max_bytes,
            redact=redact,
            memory_limit=min((cap for cap in caps if cap is not None), default=None),
        )
        self._upstream, self._settings, self._runner = name, settings, runner
        self._own = _with_profile(settings)
        self._reports: dict[str, EgressReport] = {} if reports is None else reports
        self.tier = ""
        """Which sandbox it was last started in; empty: it was not."""

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """Start the server in the sandbox; leaving ends it with all its descendants.

        Raises:
            UpstreamUnavailable: it cannot be started, or there is no sandbox that is ready.
        """
        runner = self._runner() if self._runner is not None else Isolation(SandboxSettings())
        async with self._network() as filtered:
            try:
                wrapped = await self._wrapped(runner, filtered)
            except (ToolInactive, OSError) as error:
                raise UpstreamUnavailable(self._upstream, str(error)) from error
            self.tier = wrapped.tier
            program, *args = wrapped.argv
            handed = (filtered.own.control,) if filtered is not None else ()
            self._spec = ProcessSpec(program, tuple(args), wrapped.env, wrapped.cwd, handed)
            try:
                async with super().connect(receiver) as channel:
                    if filtered is not None:
                        filtered.started()
                    yield channel
            finally:
                await asyncio.shield(asyncio.to_thread(Isolation.discard, wrapped.folder))

    @property
    def egress(self) -> "EgressReport | None":
        """What it reached and was refused so far; None: it has no list of hosts, or was not started yet."""
        return self._reports.get(self._upstream)

    @asynccontextmanager
    async def _network(self) -> AsyncGenerator["FilteredNetwork | None"]:
        """A network with the hosts on the list of the server alone; None: it has no such list."""
        hosts = self._own.hosts
        if hosts is None:
            yield None
            return
        from mcpbridge.upstream.isolation.network import filtered_network  # few servers have one

        async with filtered_network(self._upstream, hosts, self.egress) as filtered:
            self._reports[self._upstream] = filtered.report
            yield filtered

    async def _wrapped(self, runner: Runner, filtered: "FilteredNetwork | None") -> Wrapped:
        assert isinstance(runner, Isolation), "only the real sandbox starts programs that live long"
        if runner.is_off:
            log.warning("the sandbox is off: the server runs without it", upstream=self._upstream)
        if (missing := await why_none(runner)) is not None:
            raise UpstreamUnavailable(self._upstream, f"it is to run in a sandbox, but {missing[0]}. {missing[1]}")
        settings = self._settings
        own = dict(settings.env)
        environment = child_environment(own, settings.inherit_env, os.environ)
        for name in _OF_THE_SANDBOX:
            if name not in own:
                environment.pop(name, None)
        limits, access, more = _rights(runner, self._own)
        environment = {**more, **environment}
        program = _program_path(settings.command or "", environment, settings.cwd)
        needed = await asyncio.to_thread(brought_along, program, environment.get("PATH", os.defpath))
        directory = _normal(settings.cwd)
        trusted = [environment[name] for name in CERTIFICATE_NAMES if environment.get(name, "").startswith("/")]
        readable = [*access.read_only, *needed, *trusted, *([directory] if directory else ())]
        access = replace(access, read_only=tuple(dict.fromkeys(readable)))
        package = package_of(settings.command or "", settings.args)
        home = make_home(home_of(self._upstream, package.name, os.environ))
        if package.runner and not access.network and not runner.is_off:
            place = _Around(runner, program, environment, limits, replace(access, read_only=(*needed, *trusted)), home)
            environment |= await self._installed(package, place)
        if filtered is not None and not runner.is_off:
            environment |= filtered.env
        own_network = filtered.own if filtered is not None else None
        argv = [program, *settings.args]
        return await runner.wrapped(argv, environment, directory, limits, access, home, own_network)

    async def _installed(self, package: Package, around: "_Around") -> Mapping[str, str]:
        """Install what the server runs. Returns the variables with which it finds that without a network."""
        from mcpbridge.upstream.isolation import install  # few servers need one

        own = self._own
        plan = install.plan_for(package, around.env, self._settings.cwd or "")
        if plan is None or own.install_network == "none":
            return {}
        env = install.variables_of_installation(around.env, self._settings.env)
        place = install.Place(around.runner, around.program, env, around.limits, around.access, around.home)
        try:
            await install.ensure_installed(self._upstream, plan, place, own.install_network)
        except ToolInactive as error:
            if own.install_network is not None:
                raise
            log.warning("packages cannot be installed before the start", upstream=self._upstream, reason=str(error))
            return {}  # as if there were no such phase: what is installed already may do
        return plan.offline


class _Around(NamedTuple):
    """In what the packages of a server are installed."""

    runner: Isolation
    program: str
    env: Mapping[str, str]
    limits: Limits
    access: Access
    home: str


def _with_profile(settings: ServerSettings) -> ServerSandbox:
    own = settings.sandbox or ServerSandbox()
    if own.profile is None:
        return own
    from mcpbridge.upstream.isolation.profiles import with_profile  # few servers have one

    return with_profile(own, package_of(settings.command or "", settings.args), settings.env, settings.cwd or "")


def _rights(runner: Runner, own: ServerSandbox) -> tuple[Limits, Access, Mapping[str, str]]:
    """What a server may do: the limits of the section `sandbox` are those of short jobs."""
    limits, access, env = rights_of(runner, own)
    limits = replace(
        limits,
        memory=own.memory if own.memory is not None else _UNLIMITED,
        file_size=own.file_size if own.file_size is not None else _UNLIMITED,
        pids=own.pids if own.pids is not None else max(_PIDS, limits.pids),
        cpus=own.cpus or 0,
    )
    if own.network is not None:
        access = replace(access, network=own.network == "open")  # a list: a network of its own
    return limits, access, env


def _normal(directory: str | None) -> str:
    return os.path.normpath(directory) if directory else ""


def _program_path(command: str, environment: Mapping[str, str], cwd: str | None) -> str:
    """The file of a program, as it is program outside of the sandbox."""
    program = shutil.which(command, path=environment.get("PATH"))
    if program is None and os.sep in command:
        program = shutil.which(str(Path(cwd or ".") / command))
    if program is None:
        raise FileNotFoundError(f"{NOT_FOUND}: {command}")
    return str(Path(program).absolute())
