"""What a configuration starts, connects to and reads, for the person who decides about it."""

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import cast

from mcpbridge.config.schema import Settings
from mcpbridge.storage.settings import redis_address
from mcpbridge.tools.factory import KEYS

_MOST_SHOWN = 20
"""Files that are named one by one."""


def what_runs(settings: Settings) -> Iterator[str]:
    """What a bridge with these settings starts or connects to, a line each, for the person who decides.

    With secrets: whoever shows it masks them.
    """
    for name, server in settings.servers.items():
        if server.disabled:
            continue
        does = f"connects to {server.url}"
        if server.command is not None:
            does = shlex.join([server.command, *server.args])
        elif server.image is not None:
            mounts = f" with {', '.join(server.container.mounts)}" if server.container.mounts else ""
            does = f"runs the image {shlex.join([server.image, *server.args])}{mounts}"
        where = f" in {server.cwd}" if server.cwd else ""
        proxy = f" through {server.proxy}" if server.proxy else ""
        inherited = _inherited(server.inherit_env)
        yield f"server {name}: {does}{where}{proxy}{_beside(server.env, server.headers)}{inherited}"
    for name, tool in settings.tools.items():
        words = {key: getattr(tool, key, None) for key in KEYS}
        does = next((f"{key} {_words(value)}" for key, value in words.items() if value), type(tool).__name__)
        env, headers = (cast("Mapping[str, str]", getattr(tool, key, {})) for key in ("env", "headers"))
        yield f"tool {name}: {does}{_beside(env, headers)}"
    for pack in settings.packs:
        yield f"pack of tools: {pack}"
    for hook in settings.hooks:
        does = shlex.join(hook.command) if hook.command else hook.url
        yield f"hook: {does}{_beside(hook.env, hook.headers)}"
    if settings.builtin.enable:
        yield f"built-in tools: {', '.join(settings.builtin.enable)}"
    if settings.audit.anchor_command:
        yield f"audit: {shlex.join(settings.audit.anchor_command)}"
    if settings.store.path or settings.call_log.path:
        files = [path for path in (settings.store.path, settings.call_log.path) if path]
        yield f"keeps its state, which may add servers, in {', '.join(files)}"
    if settings.store.kind == "redis":
        yield f"keeps its state, which may add servers, at {redis_address(settings.store).without_password}"


def what_is_covered(settings: Settings) -> Iterator[str]:
    """Which files of its repository a decision covers, and what it does not, for the person who decides."""
    from mcpbridge.config.trust.named_files import directories_of, named_files

    folder = os.path.realpath(os.path.dirname(settings.source or "."))  # noqa: PTH120 - texts, as in decisions
    if files := sorted(named_files(settings)):
        yield f"a yes covers the present content of {_listed(files, folder)}"
    if directories := sorted(map(os.path.realpath, directories_of(settings))):
        yield f"a yes does not cover what is in {_listed(directories, folder)}"


def _listed(paths: list[str], folder: str) -> str:
    shown = [os.path.relpath(path, folder) if path.startswith(folder) else path for path in paths[:_MOST_SHOWN]]
    more = f" and {len(paths) - _MOST_SHOWN} more" if len(paths) > _MOST_SHOWN else ""
    return ", ".join(shown) + more


def _beside(env: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """What a program or a service gets: a variable such as `LD_PRELOAD` or `PATH` may choose another program."""
    variables = f", with {' '.join(f'{name}={shlex.quote(value)}' for name, value in env.items())}" if env else ""
    sent = f", with the headers {'; '.join(f'{name}: {value}' for name, value in headers.items())}" if headers else ""
    return variables + sent


def _inherited(what: bool | list[str]) -> str:
    """Which variables of the environment a program gets as they are."""
    if isinstance(what, list):
        return f", with the variables {', '.join(what)} of the environment" if what else ""
    return ", with all variables of the environment" if what else ""


def _words(value: object) -> str:
    return shlex.join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)
