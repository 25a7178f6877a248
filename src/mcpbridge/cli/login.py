"""`mcpbridge login`: sign in to a server; bridges that are running take the token over by themselves.

The browser comes back to this machine. Where it cannot, because it runs elsewhere, the address it ended at is pasted.
"""

import asyncio
import sys
import threading

import click

from mcpbridge.cli.engine import run
from mcpbridge.cli.exits import OK
from mcpbridge.cli.options import as_json_option, config_option
from mcpbridge.cli.output import note, print_json, visible
from mcpbridge.cli.sign_ins import sign_in_of
from mcpbridge.config.load import Loaded
from mcpbridge.redaction import Redactor
from mcpbridge.upstream.auth_account import Account, Page
from mcpbridge.upstream.auth_challenge import Challenge
from mcpbridge.upstream.auth_grant import Grant

__all__ = ["command"]


@click.command("login")
@click.argument("server")
@config_option
@click.option("--no-browser", is_flag=True, help="Open no browser: show the address of the page.")
@click.option("--scope", multiple=True, metavar="WORD", help="Ask for this right too; may be repeated.")
@as_json_option
def command(*, server: str, config: str | None, no_browser: bool, scope: tuple[str, ...], as_json: bool) -> int:
    """Sign in to SERVER, as the configuration names it. Bridges that are running need no restart."""

    async def login(loaded: Loaded, redact: Redactor) -> int:
        async with sign_in_of(loaded, server, redact) as account:
            settings = loaded.settings.servers[server]
            challenge = await account.knock(settings.headers, is_sse=settings.kind == "sse")
            if challenge is None:
                note(f"{server} lets anybody begin; signing in all the same")
            wanted = (challenge or Challenge()).with_more(" ".join(scope))
            grant = await _sign_in(account, wanted, no_browser=no_browser)
        if as_json:
            told = {"server": server, "issuer": grant.issuer, "scope": grant.scope, "expires_at": grant.expires_at}
            print_json(told)
        else:
            rights = f", with {grant.scope}" if grant.scope else ""
            print(visible(f"signed in to {server} at {grant.issuer or 'the server itself'}{rights}"))
        return OK

    return run(login, config, as_json=as_json)


async def _sign_in(account: Account, challenge: Challenge, *, no_browser: bool) -> Grant:
    if account.settings.type == "client-credentials":
        return await account.sign_in_alone(challenge)

    async def show(page: Page) -> bool:
        from mcpbridge.upstream.auth_browser import open_page

        # Shown first: a browser that cannot be started may take its time to say so.
        note("to sign in, visit this page" + (":" if no_browser else " (the browser opens it, if there is one):"))
        print(visible(page.url), file=sys.stderr, flush=True)
        _take_pasted(page)
        if not no_browser:
            await open_page(page.url)
        return True

    return await account.sign_in(challenge, show)


def _take_pasted(page: Page) -> None:
    """Read addresses from standard input until one is the answer, on a thread of its own: a read has no end."""
    note("if the browser is on another machine, paste the address it ends at, and press Enter")
    loop = asyncio.get_running_loop()

    def taken(line: str) -> None:
        trouble = page.take(line)
        if trouble:
            note(f"{trouble}: {visible(line.strip())[:60]}")

    def read() -> None:
        try:
            for line in sys.stdin:
                if line.strip():
                    loop.call_soon_threadsafe(taken, line)
        except (OSError, ValueError, RuntimeError):
            pass  # there is no input, or the sign-in is over

    threading.Thread(target=read, daemon=True, name="pasted address").start()
