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
from mcpbridge.upstream.isolation.packages import package_of
from mcpbridge.upstream.isolation.settings import ServerSandbox
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports.stdio import StdioTransport

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
    ) -> None:
        """`runner`: what it is started in, asked at each start; None: a sandbox of its own with default settings."""
        caps = [settings.memory_limit, settings.sandbox.memory if settings.sandbox is not None else None]
        super().__init__(
            name,
            ProcessSpec("", (), {}),
            max_bytes=max_bytes,
            redact=redact,
            memory_limit=min((cap for cap in caps if cap is not None), default=None),
        )
        self._upstream, self._settings, self._runner = name, settings, runner
        self.tier = ""
        """Which sandbox it was last started in; empty: it was not."""

    @asynccontextmanager
    async def connect(self, receiver: Receiver) -> AsyncGenerator[Channel]:
        """Start the server in the sandbox; leaving ends it with all its descendants.

        Raises:
            UpstreamUnavailable: it cannot be started, or there is no sandbox that is ready.
        """
        runner = self._runner() if self._runner is not None else Isolation(SandboxSettings())
        try:
            wrapped = await self._wrapped(runner)
        except (ToolInactive, OSError) as error:
            raise UpstreamUnavailable(self._upstream, str(error)) from error
        self.tier = wrapped.tier
        program, *args = wrapped.argv
        self._spec = ProcessSpec(program, tuple(args), wrapped.env, wrapped.cwd)
        try:
            async with super().connect(receiver) as channel:
                yield channel
        finally:
            await asyncio.shield(asyncio.to_thread(Isolation.discard, wrapped.folder))

    async def _wrapped(self, runner: Runner) -> Wrapped:
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
        limits, access, more = _rights(runner, settings.sandbox or ServerSandbox())
        environment = {**more, **environment}
        program = _program_path(settings.command or "", environment, settings.cwd)
        needed = await asyncio.to_thread(brought_along, program, environment.get("PATH", os.defpath))
        directory = _normal(settings.cwd)
        trusted = [environment[name] for name in CERTIFICATE_NAMES if environment.get(name, "").startswith("/")]
        readable = [*access.read_only, *needed, *trusted, *([directory] if directory else ())]
        access = replace(access, read_only=tuple(dict.fromkeys(readable)))
        home = make_home(home_of(self._upstream, package_of(settings.command or "", settings.args).name, os.environ))
        return await runner.wrapped([program, *settings.args], environment, directory, limits, access, home)


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
        access = replace(access, network=own.network == "open")
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
