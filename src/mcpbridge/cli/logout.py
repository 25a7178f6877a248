"""`mcpbridge logout`: forget what signing in to a server brought, and tell its authorization server so."""

import click

from mcpbridge.cli.engine import run
from mcpbridge.cli.exits import OK
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import note, print_json, visible
from mcpbridge.cli.sign_ins import sign_in_of
from mcpbridge.config.load import Loaded
from mcpbridge.redaction import Redactor

__all__ = ["command"]


@click.command("logout")
@click.argument("server")
@config_option
@as_json_option
def command(*, server: str, config: str | None, as_json: bool) -> int:
    """Forget the sign-in to SERVER. Bridges that are running notice when they next renew or are refused."""

    async def logout(loaded: Loaded, redact: Redactor) -> int:
        async with sign_in_of(loaded, server, redact) as account:
            was_signed_in, is_revoked = await account.sign_out()
        if as_json:
            print_json({"server": server, "was_signed_in": was_signed_in, "revoked": is_revoked})
        elif not was_signed_in:
            note(f"nobody was signed in to {server}")
        else:
            print(visible(f"signed out of {server}"))
            if not is_revoked:
                note("the token was not revoked: it stays good at the server until it ends by itself")
        return OK

    return run(logout, config, as_json=as_json)
