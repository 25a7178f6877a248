"""What a command asks: the daemon that runs (`daemon_session.py`), or a bridge of its own (`own_session.py`)."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from mcpbridge.app.cli.failures import CommandFailed
from mcpbridge.app.cli.output import note


class Session(Protocol):
    """What a command asks."""

    project: str
    """URI of the directory that the person works in; empty: in none."""

    async def ask(self, do: str, **more: object) -> Mapping[str, Any]:
        """One of the documents of `app/admin/tool_documents.py`; notes in it are printed.

        Raises:
            CommandFailed: it says that the command fails, or nobody answers.
        """
        ...

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of an MCP request. Ctrl-C cancels it.

        Raises:
            CommandFailed: it was answered with an error, or not at all.
        """
        ...


Work = Callable[[Session], Coroutine[Any, Any, int]]
"""What a command does; returns the exit code."""


def print_notes(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document, once its notes are printed.

    Raises:
        CommandFailed: it says that the command fails.
    """
    for line in document.get("notes", ()):
        note(line)
    if (failure := document.get("failure")) is not None:
        raise CommandFailed(failure["code"], failure["message"], failure["advice"], page=failure.get("page", ""))
    return document
