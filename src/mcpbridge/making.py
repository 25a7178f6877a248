"""What built-in tools are made with, by the settings."""

import os
from pathlib import Path

from mcpbridge.builtin.making import Making
from mcpbridge.builtin.standing_tools import Tell
from mcpbridge.config.own_code import OwnCode
from mcpbridge.config.schema import Settings
from mcpbridge.places import cache_directory, runtime_directory
from mcpbridge.sandboxes import Sandboxes
from mcpbridge.storage.log_settings import call_log_path
from mcpbridge.storage.settings import state_directory, store_path

__all__ = ["making_of"]


def making_of(settings: Settings, *, sandboxes: Sandboxes, tell: Tell) -> Making:
    """What the tools of these settings are made with. `tell`: what `brief` and `pulse` say."""
    directory = Path(settings.source).parent if settings.source else Path()
    return Making(
        runner=lambda: sandboxes.of(settings),
        told=tell,
        directory=directory,
        own_files=_own_files(settings),
        own_code=OwnCode(settings).holds,
    )


def _own_files(settings: Settings) -> tuple[str, ...]:
    """Files and directories of the bridge itself, which no tool may write."""
    own = [store_path(settings.store), call_log_path(settings.call_log, settings.store), state_directory(os.environ)]
    kept = [cache_directory(os.environ), runtime_directory(os.environ)]
    named = [Path(settings.source)] if settings.source else []
    beside = [named[0].parent / spec for spec in settings.spec] if named else []
    return tuple(str(path.absolute()) for path in (*named, *beside, *own, *kept) if str(path) not in ("", "."))
