"""`SyncBridge`: the bridge for programs that are not asynchronous: scripts, notebooks, threads.

It owns a thread with an event loop, in which a `Bridge` runs. Each method does its work there and waits for it. Here is
what differs from `Bridge`; the other methods are generated from it into `sync_methods.py`.
"""

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import anyio

from mcpbridge.base.errors import BridgeClosed, ConfigError
from mcpbridge.core.events import Event
from mcpbridge.library.agent.defaults import MAX_ROUNDS
from mcpbridge.library.bridge import Bridge
from mcpbridge.library.client.sync_loop import LoopThread
from mcpbridge.library.sync_methods import SyncMethods

if TYPE_CHECKING:
    from mcpbridge.downstream.elicitation.program import Answerer
    from mcpbridge.engine.cassettes.cassette import Cassette
    from mcpbridge.engine.session_tools import Resolver
    from mcpbridge.library.agent.models.model import Model
    from mcpbridge.library.agent.options import Prepare, StopWhen, Tools, ToolsOf
    from mcpbridge.library.calls.calls import OnCall, OnResult
    from mcpbridge.library.client.open_options import Config
    from mcpbridge.library.client.sync_loop import SyncRun
    from mcpbridge.library.llm_formats.tool_definitions import Strictness
    from mcpbridge.pipeline.approvals.approvers import ApprovalHandler
    from mcpbridge.pipeline.hooks.call import Hook
    from mcpbridge.tools.python.run_context.context import Init


class SyncBridge(SyncMethods):
    """One bridge: `with SyncBridge.open("servers.toml") as bridge`, or `close` it later. Any thread may use it.

    Where it is closed neither way, that happens when nobody holds it any more, or when the interpreter exits. Callbacks
    that are no coroutines (tools, approvers) run on threads; `on_progress` and hooks are called in the bridge's own.
    Ctrl-C while it waits cancels what it waits for; it can be used on.
    """

    def __init__(self, make: Callable[[], Bridge]) -> None:
        """`make` is called in the bridge's thread; what it returns runs from here on. Raises what that raises.

        Raises:
            ConfigError: `make` is no function; a configuration is opened with `SyncBridge.open`.
        """
        if not callable(make):
            what = f"SyncBridge(...) takes a function that makes a Bridge, not {type(make).__name__}"
            raise ConfigError(what, key="make", hint="SyncBridge.open(...) reads a file or its tables as a mapping.")
        self._thread = LoopThread(make)
        self._end = weakref.finalize(self, self._thread.drop)
        self._end.atexit = False  # the thread sees to that, earlier

    @classmethod
    def open(
        cls,
        config: "Config" = None,
        *,
        tools: Sequence[Any] = (),
        approver: "ApprovalHandler | None" = None,
        hooks: "Sequence[Hook]" = (),
        resolver: "Resolver | None" = None,
        dependencies: Mapping[str, Any] | None = None,
        shared: Any = None,
        init_shared: "Init | None" = None,
        on_elicitation: "Answerer | None" = None,
        on_sampling: "Answerer | None" = None,
        project: str | os.PathLike[str] | None = None,
        cassette: "Cassette | str | os.PathLike[str] | None" = None,
        remember: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """A bridge of this configuration, which runs from here on; see `Bridge.open`.

        Raises:
            ConfigError: the configuration cannot be read or is wrong, or a tool cannot be one; says where and why.
        """
        return cls(
            lambda: Bridge.open(
                config,
                tools=tools,
                approver=approver,
                hooks=hooks,
                resolver=resolver,
                dependencies=dependencies,
                shared=shared,
                init_shared=init_shared,
                on_elicitation=on_elicitation,
                on_sampling=on_sampling,
                project=project,
                cassette=cassette,
                remember=remember,
                environ=environ,
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every upstream and its processes, and wait for that. Calls under way are cancelled. Again: nothing."""
        self._end.detach()
        self._thread.close()

    def events(self, *, limit: int = 1000, timeout: float | None = None) -> Iterator[Event]:
        """What happens from now on; it ends with the bridge, or when nothing happened for `timeout` seconds."""
        heard = self._thread.do(lambda: self._thread.held.events(limit=limit))

        async def following() -> Event | None:
            with anyio.move_on_after(timeout):
                return await anext(heard, None)

        def events() -> Iterator[Event]:
            with suppress(BridgeClosed):
                while (event := self._thread.wait(following())) is not None:
                    yield event

        return events()

    def run(
        self,
        model: "Model",
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: "Tools | ToolsOf" = None,
        max_rounds: int = MAX_ROUNDS,
        stop_when: "StopWhen | None" = None,
        prepare: "Prepare | None" = None,
        resolver: "Resolver | None" = None,
        run: str = "",
        user: str = "",
        tenant: str = "",
        metadata: Mapping[str, Any] | None = None,
        strict: "Strictness" = False,
        approvals: Literal["pause", "wait"] = "pause",
        on_call: "OnCall | None" = None,
        on_result: "OnResult | None" = None,
    ) -> "SyncRun":
        """Let a model work with the tools until it is done: `outcome = bridge.run(model, messages).outcome`.

        Iterated (`for event in bridge.run(…)`), it reports what happens meanwhile. The model and all functions given
        here are called in the bridge's thread.
        """
        from mcpbridge.library.client.sync_loop import SyncRun

        begun = self._thread.do(
            lambda: self._thread.held.run(
                model,
                messages,
                tools=tools,
                max_rounds=max_rounds,
                stop_when=stop_when,
                prepare=prepare,
                resolver=resolver,
                run=run,
                user=user,
                tenant=tenant,
                metadata=metadata,
                strict=strict,
                approvals=approvals,
                on_call=on_call,
                on_result=on_result,
            )
        )
        return SyncRun(self._thread, begun)
