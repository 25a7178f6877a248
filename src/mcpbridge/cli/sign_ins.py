"""The sign-in of one configured server, for the commands that begin and end it. No server is started for it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcpbridge.cli.exits import USAGE, fail
from mcpbridge.config.load import Loaded
from mcpbridge.errors import ConfigError, nearest
from mcpbridge.redaction import Redactor
from mcpbridge.storage.tokens import SealedFiles
from mcpbridge.upstream.auth_account import Account, Surroundings
from mcpbridge.upstream.auth_flights import Flights
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports import TransportMaker

__all__ = ["sign_in_of"]


@asynccontextmanager
async def sign_in_of(loaded: Loaded, server: str, redact: Redactor) -> AsyncGenerator[Account]:
    """The account at a server; ends the command when it is none to sign in to.

    Raises:
        ConfigError: there is no server of such a name.
    """
    known = loaded.settings.servers
    if server not in known:
        close = nearest(server, known, limit=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(known) or 'none'}."
        raise ConfigError(f"no server is called {server!r}", file=loaded.settings.source, hint=hint)
    flights = Flights()
    around = Surroundings(SealedFiles(), flights.spawn, learn=redact.learn)
    maker = TransportMaker(max_bytes=loaded.settings.limits.max_frame, redact=redact, around=around)
    maker(server, known[server])
    authorization = maker.authorizations.get(server)
    if authorization is None:
        fail(USAGE, f"'{server}' is not a server to sign in to", _why_not(known[server]))
    async with flights.running():
        yield authorization.account


def _why_not(settings: ServerSettings) -> str:
    if settings.command is not None:
        return "It is a program that the bridge starts: it takes its credentials from `env`."
    if settings.auth.type == "none":
        return 'Its configuration says `auth.type = "none"`.'
    return "Its configuration sets `headers.Authorization`, which is used instead."
