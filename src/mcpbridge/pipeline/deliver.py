"""The end of every plan: hand the call to who owns its target, and answer what that asks back.

Here arguments that a modern HTTP server wants repeated in headers are put there (`Mcp-Param-*`, MCP 2026-07-28,
transports): after all stages, so that what is repeated are the arguments that really go out.
"""

import asyncio
from collections.abc import Awaitable, Mapping

from msgspec import Raw

from mcpbridge.base.errors import SignInNeeded, UpstreamGarbled, UpstreamUnavailable
from mcpbridge.core.model import WORTH_TELLING, Call, CallHandler
from mcpbridge.pipeline.input_required import drive, needs_driving, read_questions
from mcpbridge.pipeline.task_results import created_task, is_task
from mcpbridge.protocol.body import Body
from mcpbridge.protocol.jsonrpc import EMPTY_OBJECT
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.requests import SentCall
from mcpbridge.upstream.session.tasks import LONGEST
from mcpbridge.upstream.supervisor import Upstream


class Deliver:
    """Delivers calls to upstreams by name, and those of tools that no upstream has to these."""

    def __init__(
        self, pool: Pool, serve: Mapping[str, CallHandler] | None = None, *, answer_seconds: float = 600
    ) -> None:
        """`serve`: who takes calls of other servers, by name.

        `answer_seconds`: how long a client may take for what it is asked.
        """
        self._pool, self._serve, self._seconds = pool, serve or {}, answer_seconds
        self._upstreams = pool.upstreams

    def __call__(self, call: Call) -> Awaitable[Body]:
        """The upstream's result. Usually not a coroutine of its own: every call would pay for one more.

        Raises:
            UpstreamError, Overloaded: as `Upstream.request`.
            TaskLost: the upstream made a task of it, which ended without a result.
            QuestionRefused: the upstream needs an answer that its client does not give.
        """
        if (sent := call.sent) is not None:
            if isinstance(sent, SentCall) and isinstance(sent.instance, Upstream):
                return self._driven(sent.instance, call)
            return sent.request(call)
        upstream = self._upstreams.get(call.upstream)
        if upstream is None:
            if (serve := self._serve.get(call.upstream)) is not None:
                return serve(call)
            raise UpstreamUnavailable(call.upstream, "it is not configured any more")
        if call.instance is not None:
            return call.instance.request(call)
        if call.client.capabilities is upstream.declared.plain_profile and not (call.needs_task or call.takes_task):
            return upstream.request(call)
        if call.needs_task and not upstream.runs_tasks:
            call.needs_task = False
        if not upstream.serves(call.client):
            return self._elsewhere(upstream, call)
        if call.needs_task or call.takes_task:
            return self._as_task(upstream, call)
        if upstream.may_ask_back:
            return self._driven(upstream, call)
        return upstream.request(call)

    async def _elsewhere(self, base: Upstream, call: Call) -> Body:
        upstream = await self._chosen(base, call)
        deliver = self._as_task if call.needs_task or call.takes_task else self._driven
        try:
            return await deliver(upstream, call)
        except UpstreamUnavailable:
            if not base.settings.auth.is_per_user:
                raise
            # It did not begin. If that is because the account is not good any more, the user is asked for another one.
            again = await self._chosen(base, call)
            if again is upstream:
                raise
        return await deliver(again, call)

    async def _chosen(self, base: Upstream, call: Call) -> Upstream:
        """The instance for this client; a user who needs an account for it is asked to connect one first."""
        try:
            return await self._chosen_in_time(base, call)
        except SignInNeeded as needed:
            from mcpbridge.upstream.auth.browser import ask_to_sign_in  # few servers need that

            await ask_to_sign_in(call, needed)
            call.deadline = 0.0  # the time that a person takes is not the call's
        return await self._chosen_in_time(base, call)

    async def _chosen_in_time(self, base: Upstream, call: Call) -> Upstream:
        """The instance for this client. The call waits for its start, or for a free session, within its own time."""
        clock = asyncio.get_running_loop().time
        began = clock()
        deadline = call.deadline or began + (call.timeouts or base.settings.timeouts).idle
        try:
            async with asyncio.timeout_at(deadline):
                return await self._pool.serving(base, call.client, call.caller.principal, call.caller.identity)
        except TimeoutError:
            what = f"{base.connection.state_text} (the call waited {clock() - began:.3g} s for it)"
            raise UpstreamUnavailable(call.upstream, what) from None
        finally:
            if (waited := clock() - began) > WORTH_TELLING:
                call.deadline = deadline
                call.waited(waited)

    async def _driven(self, upstream: Upstream, call: Call) -> Body:
        """The result of a server that may ask back, or make a task of the call."""
        result = await upstream.request(call)
        if not upstream.modern:
            return result
        if upstream.settings.roots:
            call.roots = upstream.settings.roots_result
        if needs_driving(result):
            admit = upstream.declared.question_limits.admit
            if call.roots or not call.client.relays:
                with upstream.usage.held():
                    result = await drive(call, result, upstream.request, admit)
            else:
                admit(read_questions(call.upstream, result).values())
            if call.client.relays:
                upstream.usage.expect_back(self._seconds)
        if not is_task(result):
            return result
        if call.method != "tools/call":
            raise UpstreamGarbled(call.upstream, f"it made a task of {call.method}, which cannot be one")
        from mcpbridge.pipeline.task_polling import follow, read_task

        if not call.takes_task:
            with upstream.usage.held():
                return await follow(call, result, upstream)
        lives = read_task(call.upstream, result).seconds_to_live
        upstream.usage.expect_back(LONGEST if lives is None else min(LONGEST, lives))  # for the task, which lives there
        call.instance = upstream
        return result

    async def _as_task(self, upstream: Upstream, call: Call) -> Body:
        """The result of a call that a legacy server runs as a task; or the new task, if the client asked for that."""
        if upstream.modern:
            return await self._driven(upstream, call)
        if call.needs_task:
            call.params.put("task", Raw(EMPTY_OBJECT))
        task: Body | None = None
        try:
            result = await upstream.request(call)
            task = created_task(result) if "task" in call.params else None
            if task is not None and call.needs_task:
                from mcpbridge.pipeline.task_polling import follow

                return await follow(call, task, upstream)
        finally:
            if task is None:
                upstream.connection.over(call)
        call.instance = upstream
        return result


def mirrored(marks: Mapping[tuple[str, ...], str], params: Body) -> tuple[tuple[str, str], ...]:
    """The arguments with such marks (path to header name), as headers for the upstream.

    The SDK knows the rules; the part of it that does is loaded only where a tool has such marks.
    """
    from mcpbridge.protocol.sdk import mcp_param_headers

    arguments = params.inner("arguments")
    return tuple(mcp_param_headers(marks, arguments.value()).items()) if arguments is not None else ()


def mirroring(marks: Mapping[tuple[str, ...], str], deliver: CallHandler) -> CallHandler:
    """The delivery, with the headers of a tool that has such marks. Headers that a call brings stay."""

    def run(call: Call) -> Awaitable[Body]:
        if not call.headers:
            call.headers = mirrored(marks, call.params)
        return deliver(call)

    return run
