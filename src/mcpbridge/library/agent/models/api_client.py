"""Use the official clients of model APIs, async or not: one answer, or a stream of events, as JSON values.

Their packages are imported only when a client is created. A client that is not async works in a thread; if the run is
cancelled, what it has begun continues there until its next event or its answer, and is then dropped.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from importlib import import_module
from typing import Any, cast

from mcpbridge.base.errors import ConfigError


def the_client(given: Any, package: str, name: str) -> Any:
    """The client that was given, or one made of the package's settings in the environment.

    Raises:
        ConfigError: the package is not installed, or lacks a key.
    """
    if given is not None:
        return given
    try:
        made = getattr(import_module(package), name)
    except ImportError as error:
        hint = f"`pip install {package}`, or give the model a client of your own."
        raise ConfigError(
            f"the package {package!r} is needed for this model and is not installed", hint=hint
        ) from error
    try:
        return made()
    except Exception as error:  # whatever the package finds missing
        raise ConfigError(f"{package}.{name}() cannot be made: {error}", hint="Give the model a client.") from error


async def ask(create: Callable[..., Any], params: dict[str, Any], *, is_async: bool) -> dict[str, Any]:
    """The answer, whole."""
    answer = await create(**params) if is_async else await asyncio.to_thread(create, **params)
    return plain(answer)


async def events_of(
    create: Callable[..., Any], params: dict[str, Any], *, is_async: bool
) -> AsyncGenerator[dict[str, Any]]:
    """The answer as it is written, event by event."""
    if is_async:
        stream = await create(**params, stream=True)
        async with stream:
            async for event in stream:
                yield plain(event)
        return
    async with aclosing(_in_thread(lambda: create(**params, stream=True))) as events:
        async for event in events:
            yield plain(event)


def plain(value: Any) -> dict[str, Any]:
    """An object of a package as JSON values; what was not sent is left out."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    return cast("dict[str, Any]", value)


def is_async(client: Any) -> bool:
    """Whether a client is to be awaited."""
    return inspect.iscoroutinefunction(getattr(client, "close", None)) or hasattr(client, "__aenter__")


async def _in_thread(begin: Callable[[], Any]) -> AsyncGenerator[Any]:
    """What a stream gives that blocks while it waits."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Queue[tuple[Any, BaseException | None]]()
    is_wanted = threading.Event()
    is_wanted.set()
    end = object()

    def put(event: Any, error: BaseException | None = None) -> None:
        if is_wanted.is_set():
            loop.call_soon_threadsafe(arrived.put_nowait, (event, error))

    def read() -> None:
        try:
            with begin() as stream:
                for event in stream:
                    if not is_wanted.is_set():
                        return
                    put(event)
            put(end)
        except BaseException as error:  # noqa: BLE001 - it is raised where the events are read
            put(end, error)

    threading.Thread(target=read, name="model stream", daemon=True).start()
    try:
        while True:
            event, error = await arrived.get()
            if error is not None:
                raise error
            if event is end:
                return
            yield event
    finally:
        is_wanted.clear()
