"""Let others see calls, change them, answer them or refuse them: functions of the program, programs, addresses.

Hooks run in order: those of the configuration in its order, then the program's. Each sees what those before it
changed. Arguments are shown as the tool would get them, mended where they will be: what a hook let pass must not become
something else on its way. A failure is reported with the name of the hook; what it said itself goes to the log. A call
that comes back with answers to a question was let through before: its hooks are not asked again, and what they changed
holds.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, cast

from msgspec import Raw, Struct, structs

from mcpbridge.base.errors import ArgumentsRefused, CallRefused, HookRefused
from mcpbridge.base.log import get_logger
from mcpbridge.core.call_options import CallOptions
from mcpbridge.core.model import CURRENT_CALL, Call, CallHandler, Tool
from mcpbridge.pipeline.hooks.call import PASS, Changes, Happening, Hook, HookFailedError, Verdict, read_answer
from mcpbridge.pipeline.hooks.settings import HookEvent, HookSettings
from mcpbridge.pipeline.input_required import needs_driving
from mcpbridge.pipeline.permissions.settings import ToolGlobs, globs
from mcpbridge.pipeline.stage import Stage, StageFactory
from mcpbridge.pipeline.validation.json_text import refuse_doubles
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.canonical_json import canonical_digest
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT

if TYPE_CHECKING:  # most bridges have no hooks
    from mcpbridge.pipeline.hooks.runners import HookUrl

log = get_logger("mcpbridge.hooks")

_RAN = "The call ran and had its effect: do not repeat it. Tell the user that its result is withheld."


class _Seer(Struct, frozen=True):
    """One hook, ready to run."""

    event: HookEvent
    name: str
    tools: Sequence[str]
    servers: Sequence[str]
    timeout: float | None
    is_closed: bool
    ask: Callable[[Happening], Awaitable[Verdict]]

    def sees(self, tool: Tool) -> bool:
        """Calls of this tool concern it."""
        return globs(self.servers).fullmatch(tool.server) is not None and ToolGlobs(self.tools).cover(tool)


class Hooks:
    """Makes the stage of each tool that a hook wants to see."""

    def __init__(
        self,
        settings: Sequence[HookSettings],
        functions: Sequence[Hook] = (),
        *,
        directory: str | None = None,
        redact: Callable[[str], str] = lambda text: text,
        arguments: StageFactory | None = None,
        changes: Changes | None = None,
    ) -> None:
        """`directory`: where programs run. `redact` masks secrets in what they write to standard error.

        `arguments`: the concern that will mend the arguments of calls below this one. `changes`: what hooks made of
        calls under settings before these.
        """
        self._arguments = arguments
        self._urls: list[HookUrl] = []
        self._seers = [self._configured(one, number, directory, redact) for number, one in enumerate(settings, 1)]
        self._seers += map(_of_function, functions)
        self.changes = changes or Changes()

    def stage(self, tool: Tool | None, options: CallOptions) -> Stage | None:
        """A stage for tools that a hook matches."""
        if tool is None:
            return None
        seers = [seer for seer in self._seers if seer.sees(tool)]
        if not seers:
            return None
        mend = self._arguments.stage(tool, options) if self._arguments is not None else None
        return _Hooked(tool, seers, self.changes, mend)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hooks may run meanwhile; leaving closes their connections."""
        async with AsyncExitStack() as stack:
            for url in self._urls:
                await stack.enter_async_context(url.running())
            yield

    def _configured(
        self, settings: HookSettings, number: int, directory: str | None, redact: Callable[[str], str]
    ) -> _Seer:
        name = settings.name or f"hook {number}"
        from mcpbridge.pipeline.hooks.runners import HookProgram, HookUrl

        run: Callable[[bytes], Awaitable[bytes]]
        if settings.command is not None:
            run = HookProgram(name, settings.command, settings.env, directory=directory, redact=redact)
        else:
            assert settings.url is not None
            run = HookUrl(settings.url, settings.headers)
            self._urls.append(run)

        async def ask(happening: Happening) -> Verdict:
            return read_answer(await run(happening.document(settings.event, content=settings.content)), settings.event)

        return _Seer(settings.event, name, settings.tools, settings.servers, settings.timeout, settings.is_closed, ask)


def _of_function(hook: Hook) -> _Seer:
    from mcpbridge.pipeline.hooks.runners import asking

    is_closed = hook.failure == "closed"
    return _Seer(hook.event, hook.name, hook.tools, hook.servers, hook.timeout, is_closed, asking(hook))


class _Hooked:
    """Stage: calls of one tool that hooks see."""

    def __init__(self, tool: Tool, seers: Sequence[_Seer], changes: Changes, mend: Stage | None) -> None:
        self._tool, self._changes, self._mend = tool, changes, mend
        self._before = [seer for seer in seers if seer.event == "tool_call.before"]
        self._after = [seer for seer in seers if seer.event == "tool_call.after"]

    async def __call__(self, call: Call, proceed: CallHandler) -> Body:
        happening = Happening(self._tool, call)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            sent = call.params.get("arguments")
            if self._before:
                refuse_doubles(self._tool.id, sent)
            result = await self._ask_before(happening) if self._before else None
            began = clock()
            if result is None:
                result = await proceed(call)
                if self._before:
                    self._remember(sent, call, result)
        except Exception as error:
            if not self._after:
                raise
            happening.error, happening.duration = error, clock() - began
            return await self._ask_after(happening)
        if not self._after or needs_driving(result):  # a question is no result yet
            return result
        if call.facts is not None and "recalled" in call.facts:
            return result  # they saw it when the earlier call ended
        happening.result, happening.duration = result, clock() - began
        return await self._ask_after(happening)

    async def _ask_before(self, happening: Happening) -> Body | None:
        call = happening.call
        if call.continues:
            if call.facts is not None and "hooks" in call.facts:
                return None  # sent again in the same breath
            key = self._changes.key(call, self._tool, call.params.get("arguments"))
            if (change := self._changes.of(key)) is not None:
                if change:
                    call.params.put("arguments", Raw(change))
                return None
            # Another process let it through, or too long ago: they are asked as if it were new.
        told: dict[str, str] = {}
        call.note("hooks", told)
        await self._look(happening)
        for seer in self._before:
            verdict = await _verdict(seer, happening, told)
            if verdict.refusal is not None:
                raise HookRefused(f"{_called(seer)} refused the call: {verdict.refusal}")
            if verdict.result is not None:
                return verdict.result
            if verdict.arguments is not None:
                call.params.put("arguments", verdict.arguments)
                await self._look(happening)
        return None

    async def _look(self, happening: Happening) -> None:
        """Find out what the tool would get; of arguments that it would not get, what the client sent."""
        call = happening.call
        happening.arguments = _arguments_of(call)
        if self._mend is not None:
            trial = structs.replace(call, params=Body(call.params.data), facts=None)
            with suppress(ArgumentsRefused):
                await self._mend(trial, _nowhere)
                happening.arguments = _arguments_of(trial)

    def _remember(self, sent: Raw | None, call: Call, result: Body) -> None:
        if needs_driving(result):
            key = self._changes.key(call, self._tool, sent)
            arguments = bytes(call.params.get("arguments") or b"")
            self._changes.keep(key, arguments if canonical_digest(arguments) != key[2] else b"")
        elif call.continues:
            self._changes.drop(self._changes.key(call, self._tool, sent))

    async def _ask_after(self, happening: Happening) -> Body:
        told: dict[str, str] = {}
        happening.arguments = _arguments_of(happening.call)
        for seer in self._after:
            try:
                verdict = await _verdict(seer, happening, told)
            except CallRefused as refused:  # the next ones see it
                happening.result, happening.error = None, refused
                continue
            if verdict.refusal is not None:
                refused = HookRefused(f"{_called(seer)} withholds the result: {verdict.refusal}")
                refused.advice = _RAN
                happening.result, happening.error = None, refused
            elif verdict.result is not None:
                happening.result, happening.error = verdict.result, None
        if told:
            before = (happening.call.facts or {}).get("hooks")
            happening.call.note("hooks", {**(cast("dict[str, str]", before) if before else {}), **told})
        if happening.error is not None:
            raise happening.error
        assert happening.result is not None
        return happening.result


async def _verdict(seer: _Seer, happening: Happening, outcomes: dict[str, str]) -> Verdict:
    """What a hook makes of a call; `outcomes` gets it in a word."""
    outer = CURRENT_CALL.get()
    CURRENT_CALL.set(happening.call)  # calls that a function of the program makes are made within this one
    try:
        async with asyncio.timeout(seer.timeout):
            verdict = await seer.ask(happening)
    except TimeoutError:
        reason = f"no answer within {seer.timeout:g} s"
    except HookFailedError as failed:
        reason = str(failed)
    else:
        outcomes[seer.name] = (
            "refused"
            if verdict.refusal is not None
            else "answered"
            if verdict.result is not None
            else "changed"
            if verdict.arguments is not None
            else "passed"
        )
        return verdict
    finally:
        CURRENT_CALL.set(outer)
    outcomes[seer.name] = "failed"
    log.warning("hook failed", hook=seer.name, event_name=seer.event, tool=happening.tool.id, reason=reason)
    if not seer.is_closed:
        return PASS
    failed_closed = HookRefused(f"{_called(seer)} failed, and no call of this tool passes without it: {reason}")
    if seer.event == "tool_call.after":
        failed_closed.advice = _RAN
    raise failed_closed


async def _nowhere(_: Call) -> Body:
    return Body()


def _arguments_of(call: Call) -> bytes:
    arguments = call.params.get("arguments")
    return bytes(arguments) if arguments is not None else EMPTY_OBJECT


def _called(seer: _Seer) -> str:
    return f"Hook '{seer.name}'"
