"""A bridge as a process has it, whatever its front: with its configuration followed, and answers for commands."""

import gc
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from mcpbridge.app.admin.approvals import answers as approval_answers
from mcpbridge.app.admin.control_socket import Answers, Document, cache_answers, publish
from mcpbridge.app.admin.control_socket import answers as managing_answers
from mcpbridge.app.daemon.config_watcher import Reloading
from mcpbridge.base.directories import cache_directory, runtime_directory
from mcpbridge.base.log import Level, get_logger
from mcpbridge.base.redaction import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.library.bridge import Bridge
from mcpbridge.upstream.auth.oauth_tokens import Show
from mcpbridge.upstream.manifest import Manifest

log = get_logger()


class Running(Struct, frozen=True):
    """What a front is made for."""

    bridge: Bridge
    reloading: Reloading | None
    """Reads the configuration again; None: there is no file."""


@asynccontextmanager
async def running(
    loaded: Loaded,
    redact: Redactor,
    *,
    facts: Callable[[], Mapping[str, object]],
    more_answers: Answers | None = None,
    show: Show | None = None,
    is_interactive: bool = False,
    view: str = "",
    log_level: Level | None = None,
    look_every: float = 5.0,
) -> AsyncGenerator[Running]:
    """Run a bridge for the time of the context.

    `facts`: what the status says beside what the bridge says of itself; `front` at least. `more_answers`: what it
    answers commands beside what every bridge does. `look_every`: see `publish`. `view`: the one server that `loaded`
    was cut down to. The rest is as for `Bridge` and `Reloading`.
    """
    gc.freeze()  # what is loaded by now stays to the end: no collection has to look at it
    gc.enable()
    for warning in loaded.warnings:
        log.warning("configuration", note=warning)
    async with Bridge(
        loaded.settings,
        redact=redact,
        show=show,
        is_interactive=is_interactive,
        is_whole=not view,
        manifest=Manifest(cache_directory(os.environ) / "manifest"),
    ) as bridge:
        if loaded.settings.source is None:
            async with publish(_answers(bridge, None, redact, facts, more_answers), runtime_directory(os.environ)):
                yield Running(bridge, None)
            return
        reloading = Reloading(
            bridge,
            Path(loaded.settings.source),
            redact=redact,
            view=view,
            log_level=log_level,
            warnings=loaded.warnings,
            missing=loaded.missing,
        )
        answers = _answers(bridge, reloading, redact, facts, more_answers)
        directory = runtime_directory(os.environ)
        async with reloading.watching(), publish(answers, directory, look_every=look_every):
            yield Running(bridge, reloading)


def _answers(
    bridge: Bridge,
    reloading: Reloading | None,
    redact: Redactor,
    facts: Callable[[], Mapping[str, object]],
    more: Answers | None,
) -> Answers:
    """What is said to commands."""

    def told(_: Document) -> Document:
        own = {
            "config": bridge.settings.source,
            **facts(),
        }  # paths in it are used, not only shown: they stay as they are
        return {**redact.values_of(bridge.status()), **own}

    async def counted(_: Document) -> Document:
        from mcpbridge.app.admin.stats import stats_of

        await bridge.results.ledger.flush()  # who asks reads it in the store
        return redact.values_of(stats_of(bridge.metrics))

    async def reloaded(_: Document) -> Document:
        if reloading is None:
            return {"pid": os.getpid(), "ok": False, "error": "it has no configuration file"}
        return redact.values_of({"pid": os.getpid(), "config": bridge.settings.source, **await reloading.reload()})

    own: Answers = {"status": told, "stats": counted, "reload": reloaded}
    more = {**managing_answers(bridge, redact), **(more or {})}
    return {**own, **approval_answers(bridge.approvals), **cache_answers(bridge), **more}
