"""Continue with other settings while calls run: after a change of the file, the registry, or the program's tools.

A new `Generation` is built and started beside the old one; then they are switched in one step that waits for nothing.
Running calls end as they began, and what only the old generation holds ends with the last of them.
`config/needs_restart.py` decides which settings need a restart of the bridge, `upstream/pool.py` which servers are
started anew.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from mcpbridge.base.log import get_logger
from mcpbridge.config.needs_restart import Reloaded, changed_sections, in_effect
from mcpbridge.config.schema import Settings
from mcpbridge.core.elicitation import NO_CAPABILITIES
from mcpbridge.engine.generation import Generation, build
from mcpbridge.engine.leases import Lease
from mcpbridge.engine.state import EngineState
from mcpbridge.engine.wiring.tools import ProgramTool

log = get_logger("mcpbridge")


class Reloading(EngineState):
    """The part of an `Engine` that takes other settings."""

    async def reload(self, settings: Settings) -> Reloaded:
        """Continue with these settings: what they change is changed, and nothing else is disturbed.

        Calls under way end as they began, at the server that has them; those that come after this get the new. It
        returns once servers that came are being started and those that went are being stopped. Reloads wait for one
        another. Cancelling this changes nothing: the switch itself waits for nothing.

        Raises:
            ConfigError: something that the settings switch on cannot be had here; nothing was changed.
        """
        async with self._reloads:
            base, self._base = self._base, settings
            try:
                done = await self._apply(self.registry.over(settings))
            except BaseException:
                self._base = base
                raise
            self._background.spawn(self.backends.try_again())
            return done

    async def set_backend(self, name: str, given: ProgramTool | None) -> None:
        """Add a backend of the program, put it in the place of its last one, or (None) take it out.

        Calls under way end as they began. Cancelling this changes nothing.

        Raises:
            ConfigError: a server or a tool of the settings has this name.
        """
        self.require_running()
        async with self._reloads:
            before = dict(self._program_tools)
            if given is None:
                self._program_tools.pop(name, None)
            else:
                self._program_tools[name] = given
            try:
                await self._apply(self._wanted, is_same=False)
            except BaseException:
                self._program_tools = before
                raise

    async def _apply_registry(
        self, over: Callable[[Settings], Settings], rebase: Callable[[Settings], Settings]
    ) -> Reloaded:
        """Go on with what the registry says: `over` puts it over settings, `rebase` changes those below it."""
        async with self._reloads:
            base = rebase(self._base)
            done = await self._apply(over(base))
            self._base = base
            return done

    async def _apply(self, settings: Settings, *, is_same: bool = True) -> Reloaded:
        """Go on with these settings. `is_same`: backends of the program are as they were."""
        if is_same and settings == self._wanted:
            return Reloaded(needs_restart=self._needs_restart)
        before = self._generation
        effective, needs_restart = in_effect(before.settings, settings)
        if self._cassette is not None:
            effective = self._cassette.settings(effective)
        after = await self._built(effective)
        self._switch(before, after)
        self._wanted, self._needs_restart = settings, needs_restart
        self._background.spawn(self._end_after_calls(before.lease, self._under_way()))
        changed = await self.pool.configure(after.servers)
        for name in changed.removed:
            self._transports.forget(name)
            self._upstream_events.forget(name)
        self._expect_project()
        self.server.servers_changed()
        done = Reloaded(
            changed.added,
            changed.removed,
            changed.replaced,
            tuple(name for name in changed.untouched if before.servers[name] != after.servers[name]),
            changed_sections(before.settings, effective),
            needs_restart,
        )
        if done:
            self.history.note("config.reloaded", done.to_json())
        return done

    async def _built(self, settings: Settings) -> Generation:
        """A generation that could take effect at once."""
        lease = self.leases.lease()
        try:
            generation = build(settings, self._shared, lease, self._generation, self._program_tools)
            await lease.begin()
        except BaseException:
            lease.end()
            raise
        return generation

    def _switch(self, before: Generation, after: Generation) -> None:
        """From one moment to the next. Nothing in here waits."""
        with self.server.switching(after.service):
            self.settings, self._generation = after.settings, after
            before.before(self._shared, after)
            after.take_effect(self._shared)
            if self.pins.configure(after.settings):
                self.review_pins()
            self.catalog.flush()
        after.tool_search.search.refresh()
        self._note_own_tools()
        for upstream in self.pool.upstreams.values():
            if upstream.lists:
                self._upstream_events.note_unmatched(upstream.name, upstream.lists)

    def review_pins(self) -> None:
        """Decide anew what is listed of all servers: what was agreed to of them, or how that counts, has changed."""
        self._upstream_events.review(self.pool.upstreams.values())
        self.backends.review_pins()

    def _under_way(self) -> set[asyncio.Task[Any]]:
        """The tasks in which calls run."""
        return self.server.under_way() | self._shared.calls.cache.runs.under_way()

    async def _end_after_calls(self, lease: Lease, calls: set[asyncio.Task[Any]]) -> None:
        """What ran for settings that are not in effect any more ends with the last call that began under them."""
        try:
            if calls:
                await asyncio.wait(calls)
        finally:
            lease.end()

    def _note_own_tools(self) -> None:
        """Tools that no server has are listed: what names others of them names nothing."""
        for server, tools in {**self.backends.listed(), **self._builtins.listed()}.items():
            for unmatched in self._generation.unmatched.listed(server, tools):
                log.warning("settings match no tool", note=str(unmatched))

    def _expect_project(self) -> None:
        """Those who ask in this process work in this project: servers that wait for one start for it."""
        if self._project:
            self.pool.expect(NO_CAPABILITIES, project=self._project)
