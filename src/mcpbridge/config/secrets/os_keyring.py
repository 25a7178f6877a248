"""Reads an entry of the system's keyring, through the package `keyring`: GNOME, KDE, macOS and Windows have one."""

import importlib
import queue
import threading
from collections.abc import Callable
from typing import Any

from mcpbridge.config.variables import NotThereError

_ELSEWHERE = "or use ${secret:NAME}"


def keyring_entry(service: str, name: str, timeout: float) -> str:
    """The password of an entry. `timeout` in seconds: a keyring may wait for a person to unlock it. Blocks.

    Raises:
        NotThereError: there is none; says why, and what to do.
    """
    try:
        keyring: Any = importlib.import_module("keyring")
    except ImportError:
        what = "the package `keyring` is not installed: pip install 'mcpbridge[keyring]'"
        raise NotThereError(f"{what}, {_ELSEWHERE}") from None
    backend = keyring.get_keyring()
    if getattr(backend, "priority", 0) <= 0:  # `fail` and `null`
        raise NotThereError("there is no keyring on this machine that works; use ${secret:NAME}")
    found: object = _within(timeout, lambda: keyring.get_password(service, name))
    if not isinstance(found, str) or not found:
        raise NotThereError(f"the keyring has no entry {name!r} of {service!r}: keyring set {service!r} {name!r}")
    return found


def _within(timeout: float, work: Callable[[], object]) -> object:
    """What `work` returns. It runs in a thread of its own, which is left behind if it takes too long."""
    box = queue.SimpleQueue[object]()

    def run() -> None:
        try:
            box.put(work())
        except Exception as error:  # noqa: BLE001 - back ends raise what they like; there is no value
            box.put(NotThereError(f"the keyring does not give it: {type(error).__name__}"))

    threading.Thread(target=run, name="keyring", daemon=True).start()
    try:
        found = box.get(timeout=timeout)
    except queue.Empty:
        raise NotThereError(f"the keyring gave no answer within {timeout:g} s; is it locked?") from None
    if isinstance(found, NotThereError):
        raise found
    return found
