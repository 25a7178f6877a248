"""What several commands do alike: ask every running bridge of this user, and show what each says."""

import os
from collections.abc import Callable, Mapping, Sequence

from mcpbridge.admin.control_socket import SILENT, Document, ask_all
from mcpbridge.cli.exits import OK, TIMED_OUT, UNREACHABLE, fail, report
from mcpbridge.cli.output import print_json
from mcpbridge.errors import ConfigError
from mcpbridge.places import runtime_directory

__all__ = ["show_all"]


def show_all(show: Callable[[Document], None], request: Mapping[str, object] | None = None, *, as_json: bool) -> int:
    """Put a request to all of them, by default for their status; returns the exit code, 4 if none runs.

    `show` prints what one says; one that only says what is wrong with it is not handed to it.
    """
    try:
        directory = runtime_directory(os.environ)
        found = ask_all(directory) if request is None else ask_all(directory, request)
    except ConfigError as error:
        return report(error, as_json=as_json) or OK
    if as_json:
        print_json({"bridges": found})
        return _code(found)
    if not found:
        fail(UNREACHABLE, "no bridge is running", "Start one with `mcpbridge serve`.")
    for number, bridge in enumerate(found):
        if number:
            print()
        if "error" in bridge:
            pid = bridge.get("pid")
            hint = f"; `kill -9 {pid}` ends it and its servers" if bridge.get("code") == SILENT else ""
            print(f"process {pid}: {bridge['error']}{hint}")
        else:
            show(bridge)
    return _code(found)


def _code(found: Sequence[Document]) -> int:
    if any(one.get("code") == SILENT for one in found):
        return TIMED_OUT
    return OK if found else UNREACHABLE
