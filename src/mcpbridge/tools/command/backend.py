"""A program as a tool: run for each call, without a shell, in the sandbox.

It sees the programs of the system, what it brings along itself (`sandbox/isolation/readable_files.py`), the directory
it works in, and what its settings allow; the network only if they say so.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from mcpbridge.base.errors import ToolInactive, UnknownName, UpstreamGone
from mcpbridge.base.log import get_logger
from mcpbridge.core.model import Call
from mcpbridge.protocol.body import Body
from mcpbridge.sandbox.isolation.readable_files import brought_along
from mcpbridge.sandbox.job import Access, Job, JobResult, Limits
from mcpbridge.sandbox.runner import outside, rights_of, why_none
from mcpbridge.tools.backend import BackendContext, Condition, Health
from mcpbridge.tools.command.arguments import filled, filled_text, schema_for
from mcpbridge.tools.command.result import OutputReader, OutputShape
from mcpbridge.tools.command.settings import CommandSettings

log = get_logger("mcpbridge.backends")

_CHECK_SECONDS = 15.0
"""Seconds; the first look at a sandbox tries it out."""
_STOP_SECONDS = 10.0

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class CommandBackend:
    """One program."""

    kind = "command"

    def __init__(self, name: str, settings: CommandSettings, context: BackendContext) -> None:
        """See `factory.make`."""
        self._name, self._settings, self._context = name, settings, context
        self._runner = outside() if settings.sandbox == "off" else context.runner
        self._limits, self._access, self._env = self._rights()
        shape = OutputShape(settings.output_schema) if settings.output_schema is not None else None
        self._reader = OutputReader(
            settings.output, settings.output_cap, tuple(settings.exit_codes), self._limits, shape, context.redact
        )
        self._under_way: dict[anyio.CancelScope, asyncio.Event] = {}
        self._tools = (self._definition(),)
        self._condition = Condition("ready" if self._runner.is_off else "starting")
        self._changed: Callable[[], None] = lambda: None

    @property
    def condition(self) -> Condition:
        """Whether there is a sandbox for it; whether the program is there is looked at with each call."""
        return self._condition

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The one tool; none where there is no sandbox that it could run in."""
        return self._tools if self._condition.state == "ready" else ()

    @asynccontextmanager
    async def running(self, changed: Callable[[], None]) -> AsyncGenerator[None]:
        """It is found out whether there is a sandbox. Leaving ends the programs that run."""
        self._changed = changed
        looking = asyncio.create_task(self._look(), name=f"is there a sandbox for {self._name}")
        try:
            yield
        finally:
            self._changed = lambda: None
            looking.cancel()
            endings = list(self._under_way.values())
            for scope in list(self._under_way):
                scope.cancel()
            with anyio.move_on_after(_STOP_SECONDS, shield=True):
                await asyncio.wait([looking])
                for ended in endings:
                    await ended.wait()

    async def _look(self) -> None:
        try:
            await self._sandbox()
        except ToolInactive as inactive:
            self._settle(Condition("failed", inactive.why, is_lasting=True))
        except Exception as error:
            log.error("the check for a sandbox failed", exc_info=error)
            self._settle(Condition("failed", f"no sandbox could be tried out ({type(error).__name__})"))
        else:
            self._settle(Condition("ready"))

    def _settle(self, condition: Condition) -> None:
        if condition != self._condition:
            self._condition = condition
            self._changed()

    async def run(self, call: Call) -> Body:
        """See `Backend`.

        Raises:
            ToolInactive: the program, its directory or a sandbox is not there.
            ArgumentsRefused: an argument cannot be in its place.
        """
        settings, arguments = self._settings, _arguments(call)
        program, *words = filled(settings.command, arguments, settings.options)
        found, directory = self._program_file(program), self._directory()
        await self._sandbox()
        access = self._access
        if not self._runner.is_off:
            needed = await asyncio.to_thread(brought_along, found, self._env["PATH"])
            access = replace(access, read_only=tuple(dict.fromkeys((*access.read_only, *needed))))
        job = Job(
            argv=(found, *words),
            env=self._env,
            cwd=directory,
            stdin=filled_text(settings.stdin, arguments).encode() if settings.stdin is not None else b"",
            limits=self._limits,
            access=access,
        )
        ran = await self._ran(job)
        if ran is None:
            raise UpstreamGone(call.upstream, "it is being stopped, and its programs with it")
        return self._reader.result(ran)

    async def _ran(self, job: Job) -> JobResult | None:
        """What came of a job; None if the backend was left meanwhile."""
        ran, ended = None, asyncio.Event()
        with anyio.CancelScope() as scope:
            self._under_way[scope] = ended
            try:
                ran = await self._runner.run(job)
            except OSError as error:
                raise self._inactive(str(error), "Whoever runs the bridge has to look at the program.") from error
            finally:
                del self._under_way[scope]
                ended.set()
        return ran

    async def check(self) -> Health:
        """Whether the program and a sandbox are there; runs nothing but the trial of the sandbox."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await self._look()
                found = self._program_file(self._program)
                self._directory()
                where = await self._sandbox()
        except (ToolInactive, TimeoutError) as error:
            return Health(ok=False, detail=str(error) or "the look at it took too long", seconds=_since(began))
        return Health(ok=True, detail=f"{found}, {where}", seconds=_since(began))

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """It has none."""
        raise UnknownName("management command", name)

    @property
    def _program(self) -> str:
        program = self._settings.command[0]
        assert isinstance(program, str)
        return program

    def _rights(self) -> tuple[Limits, Access, dict[str, str]]:
        settings = self._settings
        own = settings.sandbox if settings.sandbox != "off" else None
        limits, access, env = rights_of(self._context.runner, own)
        if settings.timeout is not None:
            limits = replace(limits, timeout=settings.timeout)
        directory = self._place(settings.cwd) if settings.cwd is not None else ""
        if directory and not any(Path(directory).is_relative_to(one) for one in access.read_write):
            access = replace(access, read_only=(*access.read_only, directory))
        # Scripts look for what reads them where the program was found.
        return limits, access, {"PATH": os.environ.get("PATH", os.defpath), **env, **settings.env}

    def _definition(self) -> dict[str, Any]:
        settings = self._settings
        definition: dict[str, Any] = {
            "name": self._name,
            "description": settings.description or f"Runs {Path(self._program).name}.",
            "inputSchema": settings.input_schema or schema_for(settings.command, settings.stdin or ""),
        }
        if self._reader.shape is not None:
            definition["outputSchema"] = self._reader.shape.schema
        if settings.annotations:
            definition["annotations"] = settings.annotations
        return definition

    def _place(self, path: str) -> str:
        """An absolute path; relative ones start at the directory of the configuration."""
        whole = Path(path).expanduser()
        return os.path.normpath(self._context.directory.absolute() / whole)

    def _directory(self) -> str:
        if self._settings.cwd is None:
            return ""
        directory = self._place(self._settings.cwd)
        if not Path(directory).is_dir():
            raise self._inactive(f"its `cwd` does not exist: {directory}", "Whoever runs the bridge has to make it.")
        return directory

    def _program_file(self, program: str) -> str:
        """The file of the program."""
        if os.sep in program or program.startswith("~"):
            found = shutil.which(self._place(program))
        else:
            found = shutil.which(program, path=self._env["PATH"])
        if found is None:
            fix = f"Whoever runs the bridge has to install {program}, or to correct `tools.{self._name}.command`."
            raise self._inactive(f"the program `{program}` is not installed", fix)
        return str(Path(found).absolute())

    async def _sandbox(self) -> str:
        if self._runner.is_off:
            return "outside of any sandbox"
        missing = await why_none(self._runner)
        if missing is not None:
            raise self._inactive(*missing)
        return "in the sandbox"

    def _inactive(self, missing: str, fix: str) -> ToolInactive:
        return ToolInactive(f"{self._name}", missing, fix)


def _arguments(call: Call) -> dict[str, Any]:
    arguments = call.params.inner("arguments")
    return _decode(arguments.data) if arguments is not None else {}


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
