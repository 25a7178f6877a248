"""`mcpbridge users` and `mcpbridge connections`: the accounts of single users at servers, seen by who runs the bridge.

Tokens and values are never shown. What a running bridge can do (a link to its page, the end of what runs) it is asked
for; the rest is done with the files.
"""

import getpass
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import time
from typing import Any, cast

import anyio.to_thread
import click

from mcpbridge.app.admin.control_client import ask_all
from mcpbridge.app.cli.access.known_users import KnownUser, document_of, known_users, origin_of
from mcpbridge.app.cli.bridge_session import run
from mcpbridge.app.cli.config.audited import audit
from mcpbridge.app.cli.failures import fail
from mcpbridge.app.cli.options import as_json_option, config_option, header_option
from mcpbridge.app.cli.output import note, print_json, print_table, print_text, visible
from mcpbridge.app.exit_codes import OK, UNREACHABLE, USAGE
from mcpbridge.base.directories import runtime_directory
from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.config.schema import Settings
from mcpbridge.downstream.auth.sign_in_settings import SignInSettings
from mcpbridge.engine.user_accounts import EngineAccounts, open_secrets_of
from mcpbridge.storage.open_store import LazyStore
from mcpbridge.upstream.accounts.accounts import LARGEST_VALUE, UserAccounts
from mcpbridge.upstream.auth.context import AuthContext
from mcpbridge.upstream.auth.grant import AuthTasks

_LOCAL = "(local user)"


@asynccontextmanager
async def _accounts_of(loaded: Loaded, redact: Redactor) -> AsyncGenerator[UserAccounts]:
    """The accounts, without a bridge that runs."""
    flights = AuthTasks()
    kept = open_secrets_of(lambda: loaded.settings)
    accounts = EngineAccounts.without_bridge(loaded.settings, AuthContext(kept, flights.spawn, learn=redact.learn))
    try:
        async with flights.running():
            await accounts.vault.follow()
            yield accounts
        await accounts.vault.settle()
    finally:
        await accounts.vault.close()
        await kept.close()


@click.group("users")
def users_command() -> None:
    """Show who uses the bridge and what they hold here, and take it away.

    \u0008
    Examples:
      mcpbridge users list
      mcpbridge users revoke alice
    """


@users_command.command("list")
@config_option
@as_json_option
@header_option
def list_users(*, config: str | None, as_json: bool) -> int:
    """List the users: who called, who has accounts at servers, and who is signed in at a running bridge.

    Users are those who are in the call log, as far back as `call_log.keep`, who have used something of a quota that
    still counts, who have accounts of their own, or who are signed in (`[auth.sign_in]`). From is what lets them in:
    `http.tokens`, `auth.sign_in` or one of `auth.issuers`; nothing, if the configuration does not have it any more.

    \u0008
    Examples:
      mcpbridge users list
    """

    async def show(loaded: Loaded, redact: Redactor) -> int:
        users, problems = await _known_users(loaded, redact)
        for problem in problems:
            note(redact(problem))
        if as_json:
            print_json("users-list/1", {"users": [document_of(one, _time) for one in users]})
        elif users:
            print_table(["User", "Name", "From", "Last call", "Holds"], [_cells(one) for one in users], wraps="User")
        else:
            print_text("nobody has called, has an account at a server, or is signed in")
        return OK

    return run(show, config, as_json=as_json)


async def _known_users(loaded: Loaded, redact: Redactor) -> tuple[list[KnownUser], list[str]]:
    answers = await anyio.to_thread.run_sync(ask_all, runtime_directory(os.environ), {"do": "users.list"})
    people: dict[str, int] = {}
    for answer in answers:
        for user, count in cast("dict[str, int]", answer.get("people") or {}).items():
            people[user] = people.get(user, 0) + count
    async with _accounts_of(loaded, redact) as accounts:
        held = await anyio.to_thread.run_sync(accounts.users)
    return await anyio.to_thread.run_sync(known_users, loaded.settings, held, people, time())


def _cells(user: KnownUser) -> list[str]:
    holds = [f"{row.server} ({row.kind} since {_time(row.since)[:10]})" for row in user.accounts]
    holds += [f"{user.sign_ins} signed in"] * bool(user.sign_ins)
    seen = "-" if user.last_seen is None else _time(user.last_seen)
    name = user.name if user.name != user.user else ""
    return [user.user or _LOCAL, name or "-", user.origin or "-", seen, ", ".join(holds) or "-"]


@users_command.command("revoke")
@click.argument("user")
@config_option
@as_json_option
def revoke_user(*, user: str, config: str | None, as_json: bool) -> int:
    """Disconnect USER from every server: tokens are revoked at their providers, and what runs with them ends.

    USER is what `mcpbridge users list` shows in its first column; for a person it is ISSUER#SUBJECT. Where people
    sign in at the bridge, all sign-ins of this user end, too. Tokens of an issuer of `[auth]` that were issued by now
    are refused from now on; whoever may have new ones is for the provider to say. A token of `http.tokens` has to be
    removed from the configuration. Exit code 2: nothing of this user is known, or there is nothing to take away but
    such a token.

    \u0008
    Examples:
      mcpbridge users revoke alice
    """
    user = "" if user == _LOCAL else user

    async def revoke(loaded: Loaded, redact: Redactor) -> int:
        request = {"do": "users.revoke", "user": user}
        found = await anyio.to_thread.run_sync(ask_all, runtime_directory(os.environ), request)
        answers: list[dict[str, Any]] = [dict(answer) for answer in found]
        servers = {str(name) for answer in answers for name in answer.get("servers") or ()}
        calls = sum(int(answer.get("calls") or 0) for answer in answers)
        async with _accounts_of(loaded, redact) as accounts:  # what no running bridge had to do with
            servers |= set(await accounts.revoke(user))
        try:
            kept, refuses_tokens = await _put_out(loaded.settings, user)
        except StoreFailed:
            if not any(answer.get("tokens") or answer.get("signs_in") for answer in answers):
                raise
            kept, refuses_tokens = 0, False  # a bridge that runs writes it down as soon as it can
        sign_ins = sum(int(answer.get("sign_ins") or 0) for answer in answers) + kept
        refuses_tokens = refuses_tokens or any(answer.get("tokens") for answer in answers)
        if not servers and not calls and not sign_ins and not refuses_tokens:
            await _explain_nothing(loaded, redact, user)
        audit(
            loaded.settings.audit, "account.revoked", {"principal": user, "detail": ", ".join(sorted(servers))}, redact
        )
        if as_json:
            print_json(
                "users-revoke/1",
                {
                    "user": user,
                    "servers": sorted(servers),
                    "calls": calls,
                    "sign_ins": sign_ins,
                    "tokens": refuses_tokens,
                },
            )
        else:
            ended = f", and ended {sign_ins} of their sign-ins here" if sign_ins else ""
            print_text(visible(f"disconnected {user} from {', '.join(sorted(servers)) or 'nothing'}{ended}"))
            if refuses_tokens:
                print_text("tokens that their provider issued until now are refused; new ones count")
        return OK

    return run(revoke, config, as_json=as_json)


async def _explain_nothing(loaded: Loaded, redact: Redactor, user: str) -> None:
    """There was nothing to take away. Return if all is well by that; else the command fails."""
    origin = origin_of(loaded.settings, user)
    if origin == "http.tokens":
        fail(
            USAGE,
            visible(f"nothing is taken away from {user[:80]!r}: a token of `http.tokens` lets it in"),
            "Remove the entry of this name from `http.tokens`, and restart the bridge (`mcpbridge restart`).",
        )
    users, _ = await _known_users(loaded, redact)
    if any(one.user == user for one in users):
        return  # somebody of the list whom nothing lets in any more
    named = [one.user for one in users if one.name == user]
    advice = "`mcpbridge users list` shows the users there are."
    if named:  # names are not taken: whoever may choose theirs could have somebody else put out, or not be
        advice = f"People are named as `mcpbridge users list` does it: {', '.join(named[:3])}."
    fail(USAGE, visible(f"no user {user[:80]!r} is known here"), visible(advice))


async def _put_out(settings: Settings, user: str) -> tuple[int, bool]:
    """Write down that a user was put out, for bridges that do not run now and read the same store.

    Returns how many sign-ins ended that no running bridge has ended, and whether tokens of an issuer are refused.
    """
    auth = settings.auth
    is_of_issuer = user.partition("#")[0] in {one.issuer for one in auth.issuers.values()} and "#" in user
    if auth.sign_in is not None:
        await _forget_provider_tokens(settings, auth.sign_in, user)
    if settings.store.kind == "memory" or not (is_of_issuer or auth.sign_in is not None):
        return 0, False
    store = LazyStore(settings.store)
    try:
        ended = 0
        if auth.sign_in is not None:
            from mcpbridge.app.sign_in.grants import Grants

            lifetimes = auth.sign_in.token_lifetime, auth.sign_in.session_lifetime
            grants = Grants(store.shared, token_seconds=lifetimes[0], session_seconds=lifetimes[1])
            ended = await grants.put_out(user)
        if is_of_issuer:
            from mcpbridge.downstream.auth.revocations import Revocations

            await Revocations(store.shared).revoke(user)
        return ended, is_of_issuer
    finally:
        await store.close()


async def _forget_provider_tokens(settings: Settings, sign_in: SignInSettings, user: str) -> None:
    from mcpbridge.app.sign_in.identity_provider import IdentityProvider
    from mcpbridge.app.sign_in.provider_tokens import ProviderTokenStore

    provider = IdentityProvider(sign_in, redirect_uri="")  # nobody is sent anywhere
    kept = open_secrets_of(lambda: settings)
    try:
        await ProviderTokenStore(kept, provider, time).forget(user)
    finally:
        await provider.close()
        await kept.close()


@click.group("connections")
def connections_command() -> None:
    """Link to the page where users connect their accounts, set variables of users, and change the key of the vault.

    \u0008
    Examples:
      mcpbridge connections link --user alice
      mcpbridge connections rotate
    """


@connections_command.command("link")
@click.option("--user", metavar="NAME", default="", help="Whose page it is. Default: the local user's.")
@as_json_option
def link(*, user: str, as_json: bool) -> int:
    """Print a link to the page of a user's accounts. It works once, and for a minute; whoever opens it is that user.

    Exit code 4: no bridge that browsers can reach is running.

    \u0008
    Examples:
      mcpbridge connections link --user alice
    """
    answers = ask_all(runtime_directory(os.environ), {"do": "connections.link", "user": user})
    found = next((str(answer["url"]) for answer in answers if "url" in answer), "")
    if not found:
        why = next((str(answer["error"]) for answer in answers if "error" in answer), "no bridge is running")
        fail(UNREACHABLE, why, "Start one with `mcpbridge serve --http`.")
    if as_json:
        print_json("connections-link/1", {"url": found})
    else:
        print_text(found)
    return OK


@connections_command.command("set")
@click.argument("server")
@click.argument("name")
@click.option("--user", metavar="NAME", default="", help="Whose value it is. Default: the local user's.")
@config_option
@as_json_option
def set_variable(*, server: str, name: str, user: str, config: str | None, as_json: bool) -> int:
    """Keep a value of the variable NAME with which a user's process of SERVER starts.

    The value is asked for without echo, or read from standard input. A running bridge takes it at the next call.

    \u0008
    Examples:
      mcpbridge connections set github GITHUB_PERSONAL_ACCESS_TOKEN --user alice < FILE
    """

    async def keep(loaded: Loaded, redact: Redactor) -> int:
        value = await anyio.to_thread.run_sync(_value, name)
        async with _accounts_of(loaded, redact) as accounts:
            await accounts.set_variables(server, user, {name: value})
        facts = {"principal": user, "server": server, "detail": name}
        audit(loaded.settings.audit, "account.variable_set", facts, redact)
        if as_json:
            print_json("connections-set/1", {"server": server, "user": user, "name": name})
        else:
            print_text(visible(f"kept {name} of {user or 'the local user'} for {server}"))
        return OK

    return run(keep, config, as_json=as_json)


@connections_command.command("rotate")
@config_option
@as_json_option
def rotate(*, config: str | None, as_json: bool) -> int:
    """Encrypt all accounts of users with another key: a new one of the bridge's own, or the `accounts.key` of now.

    Running bridges continue. Exit code 2: the key cannot be had.

    \u0008
    Examples:
      mcpbridge connections rotate
    """

    async def encrypt(loaded: Loaded, redact: Redactor) -> int:
        async with _accounts_of(loaded, redact) as accounts:
            done, lost = await accounts.vault.rotate_all()
        audit(loaded.settings.audit, "account.key_rotated", {"detail": f"{done} accounts"}, redact)
        if as_json:
            print_json("connections-rotate/1", {"encrypted": done, "lost": lost})
            return OK
        print_text(f"{done} {'account is' if done == 1 else 'accounts are'} encrypted with the new key")
        if lost:
            note(f"{lost} cannot be opened with any key; those users have to connect again")
        return OK

    return run(encrypt, config, as_json=as_json)


def _value(name: str) -> str:
    if sys.stdin.isatty():
        value = getpass.getpass(f"Value of {name} (not shown): ")
    else:
        value = sys.stdin.buffer.read(4 * LARGEST_VALUE).decode("utf-8", "replace")
        value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        fail(USAGE, "there is no value", f"Type it, or pipe it in: mcpbridge connections set SERVER {name} < FILE.")
    return value


def _time(since: float) -> str:
    return datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
