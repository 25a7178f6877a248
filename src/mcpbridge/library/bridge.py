"""`Bridge`: the bridge as programs use it. `mcpbridge serve` and the daemon run this same class.

This file has how one is opened. Its methods are in `tool_methods.py` and `agent_methods.py`, what runs is in
`engine/engine.py`. `SyncBridge` is the same for programs that are not asynchronous.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from mcpbridge.base.errors import ConfigError
from mcpbridge.library.agent_methods import AgentMethods

if TYPE_CHECKING:  # loaded when they are used: the first answer of `serve` must come fast
    from mcpbridge.config.load import Loaded
    from mcpbridge.downstream.elicitation.program import Answerer
    from mcpbridge.engine.cassettes.cassette import Cassette
    from mcpbridge.engine.session_tools import Resolver
    from mcpbridge.library.client.client import Client
    from mcpbridge.library.client.open_options import Config
    from mcpbridge.pipeline.approvals.approvers import ApprovalHandler
    from mcpbridge.pipeline.hooks.call import Hook
    from mcpbridge.tools.python.run_context.context import Init


class Bridge(AgentMethods):
    """One bridge: `async with Bridge.open("servers.toml") as bridge`. Leaving ends every upstream and its processes."""

    _secrets_of: "Callable[[], Loaded] | None" = None
    """Reads the configuration with the secrets of its servers and tools, which are not fetched yet."""

    async def __aenter__(self) -> Self:
        if self._secrets_of is not None:
            await self._fetch_secrets(self._secrets_of)
        return await super().__aenter__()

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
        """A bridge of this configuration, which runs within `async with`.

        Args:
            config: a file (`servers.toml`, or any mcpServers JSON), the same tables as a mapping, or None: the file
                that commands find (`$MCPBRIDGE_CONFIG`, `./servers.toml` if it is trusted, the user's own).
            tools: the program's own: functions, or what `tool`, `ToolBuilder`, `adapt_function` and so on make.
            approver: asked first whether a call may be made that somebody must agree to.
            hooks: see all calls, after those of the configuration; made with `before` and `after`.
            resolver: computes further tools for single clients.
            dependencies: what handlers find in `context.dependencies`.
            shared: the type of what all tools of a run have in common (`Context.shared`).
            init_shared: makes the first such value of a run, once; sync or async.
            on_elicitation: answers what servers ask people during the program's calls; see `Answerer`. None: nobody.
            on_sampling: answers what servers ask a model then.
            project: the directory that servers are asked to work in.
            cassette: a file in which the traffic with servers is recorded, or out of which it is replayed where it is
                there; a `Cassette` says more.
            remember: what servers offer is kept for the next start, so that they need not run to be listed.
            environ: where `${VAR}` is looked up, in place of the process's environment.

        Where an event loop runs, secrets of servers and tools (`${cmd:…}` and the like) are fetched when the bridge is
        entered, in a thread.

        Raises:
            ConfigError: the configuration cannot be read or is wrong, or a tool cannot be one; says where and why.
        """
        from functools import partial
        from pathlib import Path

        from mcpbridge.base.directories import cache_directory, state_directory
        from mcpbridge.base.masking.known_values import Redactor
        from mcpbridge.downstream.elicitation.program import ProgramAnswers
        from mcpbridge.engine.session_tools import resolving
        from mcpbridge.library.client.open_options import patient, read_config, read_without_waiting, use_logging
        from mcpbridge.library.define_tools.define import all_given, backend_of
        from mcpbridge.upstream.manifest import Manifest

        if approver is not None and not callable(approver):
            raise ConfigError(f"a function of the request, or None; not {approver!r}", key="approver")
        recording = _recording(cassette)
        is_replayed = recording is not None and recording.is_replay
        read = read_without_waiting if _is_in_event_loop() else read_config
        loaded = read(config, environ, is_replayed=is_replayed)
        redact = Redactor(loaded.secrets)
        use_logging(redact)
        given = all_given(tools)
        bridge = cls(
            patient(loaded.settings),
            redact=redact,
            tools=given,
            approver=approver,
            hooks=hooks,
            resolver=resolving(resolver, backend_of) if resolver is not None else None,
            dependencies=dependencies,
            manifest=Manifest(cache_directory(os.environ) / "manifest") if remember else None,
            sights=state_directory(os.environ) / "pins" if remember else None,
            answers=ProgramAnswers(on_elicitation, on_sampling) if on_elicitation or on_sampling else None,
            cassette=recording,
            project=Path(project).absolute().as_uri() if project is not None else "",
        )
        bridge._tools.update(zip(given, tools, strict=True))
        if loaded.is_deferred:
            bridge._secrets_of = partial(read_config, config, environ, is_replayed=is_replayed)
        if shared is not None or init_shared is not None:
            bridge.contexts.share(shared if shared is not None else dict[str, Any], init_shared)
        return bridge

    async def _fetch_secrets(self, read: "Callable[[], Loaded]") -> None:
        """Take the configuration as it is with its secrets. Nothing runs yet. Cancelling is safe."""
        import asyncio

        from mcpbridge.base.masking.known_values import Redactor
        from mcpbridge.library.client.open_options import patient

        loaded = await asyncio.to_thread(read)
        self._secrets_of = None
        if isinstance(self._redact, Redactor):
            for number, secret in enumerate(loaded.secrets):  # each as a source of its own: none is forgotten in time
                self._redact.learn(f"configuration {number}", (secret,))
        settings = patient(loaded.settings)
        if self._cassette is not None:
            settings = self._cassette.settings(settings)
        self.settings = self._wanted = self._base = settings

    def client(self, *, user: str = "", view: str = "", profile: str = "", **options: Any) -> "Client":
        """A client of the official SDK in this process, to be entered; it knows what bridges have beside.

        `view` is the one server that it sees, `profile` the profile that it is kept to; `options` are those of
        `mcp.Client`: callbacks, `mode`, `client_info` and so on. It is a client like all others.
        """
        from mcpbridge.library.client.client import Client
        from mcpbridge.library.client.in_process import InProcess

        inside = InProcess(self.server, user=user, view=view, profile=profile, project=self._project)
        return Client(inside, **options)


def _is_in_event_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _recording(cassette: "Cassette | str | os.PathLike[str] | None") -> "Cassette | None":
    if cassette is None:  # the rule; the code of cassettes is not loaded for nothing
        return None
    from mcpbridge.engine.cassettes.cassette import Cassette

    return cassette if isinstance(cassette, Cassette) else Cassette(cassette)
