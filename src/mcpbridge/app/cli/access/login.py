"""`mcpbridge login` and `logout`: begin and end the sign-in to one configured server. No server is started for it.

Running bridges take the token over by themselves. The browser comes back to this machine; where it cannot, because it
runs elsewhere, the address that it ended at is pasted.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import click

from mcpbridge.app.admin.tool_documents import require_server
from mcpbridge.app.cli.bridge_session import run
from mcpbridge.app.cli.config.audited import audit
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option
from mcpbridge.app.cli.output import StatusLine, note, print_json, progress, visible
from mcpbridge.app.exit_codes import OK, USAGE
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.engine.user_accounts import open_secrets_of
from mcpbridge.upstream.auth.challenge import Challenge
from mcpbridge.upstream.auth.context import AuthContext, Page
from mcpbridge.upstream.auth.grant import AuthTasks, Grant
from mcpbridge.upstream.auth.oauth_tokens import Account
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.transports.factory import TransportMaker


@asynccontextmanager
async def sign_in_of(loaded: Loaded, server: str, redact: Redactor) -> AsyncGenerator[Account]:
    """The account at a server; ends the command when it is none to sign in to.

    Raises:
        ConfigError: there is no server of such a name.
    """
    settings = require_server(loaded.settings, server)
    flights = AuthTasks()
    kept = open_secrets_of(lambda: loaded.settings)
    around = AuthContext(kept, flights.spawn, learn=redact.learn)
    maker = TransportMaker(max_bytes=loaded.settings.limits.max_frame, redact=redact, around=around)
    maker(server, settings)
    authorization = maker.authorizations.get(server)
    if authorization is None:
        fail(USAGE, f"'{server}' is not a server to sign in to", _why_not(settings))
    try:
        async with flights.running():
            yield authorization.account
    finally:
        await kept.close()


def _why_not(settings: ServerSettings) -> str:
    if settings.is_started:
        return "It is a program that the bridge starts: it takes its credentials from `env`."
    if settings.auth.type == "none":
        return 'Its configuration says `auth.type = "none"`.'
    return "Its configuration sets `headers.Authorization`, which is used instead."


@click.command("login")
@click.argument("server")
@config_option
@click.option("--no-browser", is_flag=True, help="Open no browser: show the address of the page.")
@click.option("--scope", multiple=True, metavar="WORD", help="Ask for this right too; may be repeated.")
@as_json_option
def login_command(*, server: str, config: str | None, no_browser: bool, scope: tuple[str, ...], as_json: bool) -> int:
    """Sign in to SERVER, by its name in the configuration. Running bridges use the sign-in at once.

    \u0008
    Examples:
      mcpbridge login linear
      mcpbridge login linear --no-browser
    """

    async def login(loaded: Loaded, redact: Redactor) -> int:
        async with sign_in_of(loaded, server, redact) as account:
            settings = loaded.settings.servers[server]
            with progress(f"asking {server} how to sign in …"):
                challenge = await account.knock(settings.headers, is_sse=settings.kind == "sse")
            if challenge is None:
                note(f"{server} lets anybody begin; signing in all the same")
            wanted = (challenge or Challenge()).with_more(" ".join(scope))
            with progress(f"asking {server} how to sign in …", ticks=False) as line:
                grant = await _sign_in(account, wanted, line, no_browser=no_browser)
        audit(loaded.settings.audit, "sign_in.by_command", {"server": server, "detail": grant.issuer}, redact)
        if as_json:
            told = {"server": server, "issuer": grant.issuer, "scope": grant.scope, "expires_at": grant.expires_at}
            print_json("login/1", told)
        else:
            rights = f", with {grant.scope}" if grant.scope else ""
            print(visible(f"signed in to {server} at {grant.issuer or 'the server itself'}{rights}"))
        return OK

    return run(login, config, as_json=as_json)


async def _sign_in(account: Account, challenge: Challenge, line: StatusLine, *, no_browser: bool) -> Grant:
    if account.settings.type == "client-credentials":
        return await account.sign_in_alone(challenge)

    async def show(page: Page) -> bool:
        from mcpbridge.upstream.auth.browser import open_page

        line.clear()
        # Shown first: a browser that cannot be started may take its time to say so.
        note("to sign in, visit this page" + (":" if no_browser else " (the browser opens it, if there is one):"))
        print(visible(page.url), file=sys.stderr, flush=True)
        _take_pasted(page)
        line.show("waiting until you have signed in … ")
        if not no_browser:
            await open_page(page.url)
        return True

    return await account.sign_in(challenge, show)


def _take_pasted(page: Page) -> None:
    """Read addresses from standard input until one is the answer, on a thread of its own: a read has no end."""
    note("if the browser is on another machine, paste the address it ends at, and press Enter")
    loop = asyncio.get_running_loop()

    def take_line(line: str) -> None:
        trouble = page.take(line)
        if trouble:
            note(f"{trouble}: {visible(line.strip())[:60]}")

    def read() -> None:
        try:
            for line in sys.stdin:
                if line.strip():
                    loop.call_soon_threadsafe(take_line, line)
        except (OSError, ValueError, RuntimeError):
            pass  # there is no input, or the sign-in is over

    threading.Thread(target=read, daemon=True, name="pasted address").start()


@click.command("logout")
@click.argument("server")
@config_option
@as_json_option
def logout_command(*, server: str, config: str | None, as_json: bool) -> int:
    """Forget the sign-in to SERVER. Running bridges notice when they next renew it, or are refused.

    \u0008
    Examples:
      mcpbridge logout linear
    """

    async def logout(loaded: Loaded, redact: Redactor) -> int:
        async with sign_in_of(loaded, server, redact) as account:
            was_signed_in, is_revoked = await account.sign_out()
        audit(loaded.settings.audit, "sign_out.by_command", {"server": server}, redact)
        if as_json:
            print_json("logout/1", {"server": server, "was_signed_in": was_signed_in, "revoked": is_revoked})
        elif not was_signed_in:
            note(f"nobody was signed in to {server}")
        else:
            print(visible(f"signed out of {server}"))
            if not is_revoked:
                note("the token was not revoked: it stays good at the server until it ends by itself")
        return OK

    return run(logout, config, as_json=as_json)
