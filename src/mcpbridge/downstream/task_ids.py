"""The ids of tasks as clients know them: sealed, so that they lead back to the server and serve their owner alone.

A task id is a bearer token for what a server keeps (2025-11-25 and the extension of 2026-07-28, security
considerations). Sealed, it cannot be guessed and opens for the principal that made the task, with no memory of it here.
"""

import re

import msgspec
from msgspec import Raw

from mcpbridge.downstream.channel import Client
from mcpbridge.downstream.sealing import Sealer
from mcpbridge.errors import BadRequest, UpstreamAnswered
from mcpbridge.wire.codes import INVALID_PARAMS
from mcpbridge.wire.frame import decode_fields, encode, encode_fields

__all__ = ["TaskIds", "named_as_shown", "unknown_task"]

MARGIN = 24 * 3600.0
"""Seconds that an id outlives its task: servers may let a task live longer than they said at first."""
UNLIMITED = 30 * 24 * 3600.0
"""Seconds that the id of a task without an end is good for."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"(?:\s*:)?')
"""A string of a JSON document; with the colon, if it names a member."""


class TaskIds:
    """Seals and opens. The same text is good for as long as the task lives, any number of times."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def seal(self, client: Client, server: str, id_: str, seconds_to_live: float | None) -> str:
        """What this client is told in place of a server's own id."""
        seconds = UNLIMITED if seconds_to_live is None else seconds_to_live + MARGIN
        return self._sealer.seal({"server": server, "task": id_}, _bind(client), seconds=seconds)

    def open(self, client: Client, shown: str) -> tuple[str, str]:
        """Server, and its own id.

        Raises:
            BadRequest: forged, expired, another principal's, or of a server that this endpoint does not show.
        """
        try:
            claims = self._sealer.open(shown, _bind(client))
            server, id_ = str(claims["server"]), str(claims["task"])
        except (BadRequest, KeyError):
            raise unknown_task(shown) from None
        if client.view not in ("", server):
            raise unknown_task(shown)
        return server, id_


def unknown_task(shown: str) -> BadRequest:
    """The one answer to an id that is not good, whatever is wrong with it."""
    return BadRequest(INVALID_PARAMS, f"Unknown task: {shown[:40]}{'…' if len(shown) > 40 else ''}")


def named_as_shown(error: UpstreamAnswered, id_: str, shown: str) -> UpstreamAnswered:
    """The server's error, naming the task as the client does: as a string in its data, and as a word of its message."""
    try:
        fields = decode_fields(error.error)
        for name, raw in fields.items():
            if name == "message":
                message = msgspec.json.decode(raw, type=str)
                fields[name] = Raw(encode(re.sub(rf"(?<![\w-]){re.escape(id_)}(?![\w-])", lambda _: shown, message)))
            elif name != "code":
                fields[name] = _renamed(raw, encode(id_), encode(shown))
    except (msgspec.DecodeError, RecursionError):
        return error
    renamed = UpstreamAnswered(error.upstream, encode_fields(fields))
    renamed.asked = error.asked
    return renamed


def _renamed(raw: Raw, id_: bytes, shown: bytes) -> Raw:
    """JSON in which whole strings that are `id_` are `shown`. Names of members stay, whatever they are."""

    def instead(found: re.Match[bytes]) -> bytes:
        return shown if found[0] == id_ else found[0]

    return Raw(_STRING.sub(instead, bytes(raw)))


def _bind(client: Client) -> tuple[str, ...]:
    return "task", "modern" if client.modern else "legacy", client.principal
