"""A Python object as a tool: a class of the user's, of which one object is made, kept and managed.

All of its methods are optional but `execute` (or `__call__`), each may be sync or async:

    deploy()                      warms it up: once, before the first call, never twice at a time
    validate_inputs(...)          refuses arguments: returns False or what is wrong, or raises; or returns better ones
    execute(...)                  does the work; its parameters and docstring make the schema, as those of a function do
    init_context(context)         makes the first value of each run, where `execute` takes a `Context[...]`
    execute_command(name, data)   management commands; `commands` of the class may name those that there are
    check()                       says whether it works: raises, or returns False or a text
    close()                       lets go of what it holds, when the bridge stops

Sync methods run in threads, several at a time, so what they share must stand that.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from mcpbridge.backends.backend import Health, Surroundings
from mcpbridge.backends.executor_object import Executor, executor_of, made_from
from mcpbridge.backends.executor_settings import ExecutorSettings
from mcpbridge.backends.python_backend import PythonBackend
from mcpbridge.backends.signatures import Unusable
from mcpbridge.errors import BridgeError, ConfigError, UnknownName, UpstreamError, UpstreamUnavailable
from mcpbridge.logs import get_logger
from mcpbridge.model import Call
from mcpbridge.wire.body import Body

__all__ = ["ExecutorBackend"]

log = get_logger("mcpbridge.backends")

CLOSE_SECONDS = 3.0
"""Seconds that its `close` gets."""


class ExecutorBackend(PythonBackend[Executor]):
    """One object. Meets `Backend`."""

    kind = "executor"

    def __init__(self, name: str, settings: ExecutorSettings, around: Surroundings | None = None) -> None:
        """`around`: None for objects of a program, which need nothing of it."""
        super().__init__(name, settings, around, source=settings.executor_class or name)
        self._settings = settings
        self._is_deployed = False
        self._deploying: asyncio.Future[str] | None = None
        self._not_deployed = ""
        """Why the last `deploy` failed."""

    @classmethod
    def of(cls, instance: object, *, name: str, settings: ExecutorSettings | None = None) -> Self:
        """An object of the program itself.

        Raises:
            ConfigError: no tool can be made of it; says why.
        """
        made = cls(name, settings or ExecutorSettings())
        try:
            made._given = made._made = executor_of(name, instance, made._settings)
        except Unusable as error:
            raise ConfigError(f"'{name}' cannot be a tool: {error}", key=name) from error
        return made

    def _bring_in(self, directory: Path) -> Executor:
        return made_from(self._name, self._settings, directory)

    def _tools_of(self, made: Executor) -> Sequence[Mapping[str, Any]]:
        return [made.tool.definition]

    async def _started(self, made: Executor) -> None:
        if self._settings.warm_up:
            with suppress(UpstreamError):  # it is told in the log, and tried again before the first call
                await self._deploy(self._name)

    async def _ending(self, made: Executor) -> None:
        self._is_deployed = False
        close = made.method("close")
        if close is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._invoker.value(close)
        except Exception as error:  # noqa: BLE001 - whatever it is, the bridge goes on ending
            log.warning("an executor did not close", tool=self._name, reason=self._invoker.told(error))

    async def _deploy(self, upstream: str) -> None:
        """Return when it is deployed.

        Raises:
            UpstreamUnavailable: it cannot be; tried again with the next call.
        """
        deploy = self._there(upstream).method("deploy")
        if deploy is None or self._is_deployed:
            return
        if self._deploying is None:
            self._deploying = asyncio.get_running_loop().create_future()
            if self._tasks.spawn(self._deployed(deploy, self._deploying)) is None:
                self._deploying = None
                raise UpstreamUnavailable(upstream, "it was stopped")
        deploying = self._deploying
        await asyncio.wait([deploying])  # not the future itself: who is cancelled must not take it from others
        if reason := deploying.result():
            raise UpstreamUnavailable(upstream, f"its `deploy` failed: {reason}")

    async def _deployed(self, deploy: Callable[..., Any], outcome: "asyncio.Future[str]") -> None:
        reason = "it was stopped"
        try:
            await self._invoker.value(deploy)
            reason, self._is_deployed = "", True
        except Exception as error:  # noqa: BLE001 - whatever it is, its callers are told
            self._invoker.log_failure("an executor could not be deployed", error, tool=self._name)
            reason = self._invoker.told(error)
        finally:
            self._not_deployed, self._deploying = reason, None
            outcome.set_result(reason)

    async def run(self, call: Call) -> Body:
        """See `Backend`."""
        executor = self._there(call.upstream)
        await self._deploy(call.upstream)
        try:
            raw = await executor.validated(call, self._invoker)
        except BaseException as error:  # noqa: BLE001 - `failed` raises again what is no failure of the user's code
            return self._invoker.failed(error, self._name)
        return await executor.tool.run(call, self._invoker, raw)

    async def check(self) -> Health:
        """See `Backend`. Asks its `check`, if it has one."""
        if missing := await self._looked_at():
            return missing
        executor = self._there(self._name)
        if self._not_deployed:
            return Health(ok=False, detail=f"its `deploy` failed: {self._not_deployed}")
        check = executor.method("check")
        if check is None:
            return Health(ok=True, detail="deployed" if self._is_deployed else "made, not deployed yet")
        return await self._invoker.health(check)

    async def command(self, name: str, data: Mapping[str, Any]) -> Any:
        """See `Backend`. It is deployed before its first command."""
        executor = self._there(self._name)
        execute = executor.method("execute_command")
        known = executor.commands
        if execute is None or (known is not None and name not in known):
            if name in ("deploy", "warmup") and executor.method("deploy") is not None:
                await self._deploy(self._name)
                return None
            raise UnknownName("command", name, candidates=sorted(known or ()))
        await self._deploy(self._name)
        try:
            return await executor.commanded(execute, name, data, self._commands)
        except BridgeError:
            raise
        except Exception as error:
            if isinstance(error, NotImplementedError) or (isinstance(error, LookupError) and error.args == (name,)):
                raise UnknownName("command", name, candidates=sorted(known or ())) from error
            self._invoker.log_failure("a command failed", error, tool=self._name, command=name)
            raise UpstreamError(self._name, f"the command '{name}' failed: {self._invoker.told(error)}") from error
