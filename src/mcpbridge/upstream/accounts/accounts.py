"""The accounts of all users at all servers: who has one, what calls use of it, and what becomes of it.

A server with `auth.as` `"user"`, `"exchange"` or `"id-jag"` gets calls of a user on a connection (or in a process) of
that user alone, with that user's account. A user without one is asked to connect it, and the call waits for that.

The one instance of such a server that lists gets no calls. It signs in as the local user, or else with the account of
the user who connected first: what it lists are the definitions of the server, which all users see.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from mcpbridge.base.errors import BridgeError, ConfigError, SignInNeeded
from mcpbridge.base.log import get_logger
from mcpbridge.core.identity import without_rights
from mcpbridge.protocol.http.bearer_auth import Authorizer
from mcpbridge.protocol.http.tls_and_proxy import Network
from mcpbridge.storage.vault import Row, Vault
from mcpbridge.upstream.accounts.exchange import ExchangedToken, PresentedTokens, nothing_to_exchange
from mcpbridge.upstream.accounts.identity_assertion import (
    AssertedToken,
    AuthorizationServerOfUpstream,
    IdentityAssertions,
    nothing_to_assert,
)
from mcpbridge.upstream.accounts.row_secrets import RowSecrets
from mcpbridge.upstream.accounts.sign_ins import SignIns, UserSignIn
from mcpbridge.upstream.accounts.user_token import UserToken
from mcpbridge.upstream.auth.authorization import Authorization
from mcpbridge.upstream.auth.challenge import Challenge
from mcpbridge.upstream.auth.context import AuthContext
from mcpbridge.upstream.auth.oauth_tokens import Account
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream

log = get_logger("mcpbridge.auth")

WITHOUT_PAGE = frozenset({"exchange", "id-jag"})
"""Values of `auth.as` with which the sign-in at the bridge is all that a user needs."""
_MOST_SIGNED_IN = 10_000
LARGEST_VALUE = 16 << 10
"""Characters of one variable."""


class Connection(Struct, frozen=True):
    """What a user sees of one server on the page of connections."""

    server: str
    how: Literal["sign-in", "variables", "exchange", "id-jag"]
    is_connected: bool
    since: float = 0.0
    """Unix time; 0: not connected, or nobody knows."""
    issuer: str = ""
    variables: tuple[str, ...] = ()
    """What the user sets, by name."""


class UserAccounts:
    """The accounts of one bridge."""

    def __init__(
        self,
        vault: Vault,
        around: AuthContext,
        network_of: Callable[[ServerSettings], Network],
        servers: Callable[[], Mapping[str, ServerSettings]],
    ) -> None:
        """`servers`: as they are configured now."""
        self.vault, self._around, self._network_of, self._servers = vault, around, network_of, servers
        self.sign_ins = SignIns()
        self.presented = PresentedTokens()
        """The tokens that users came with, to be exchanged."""
        self.assertions: Callable[[], IdentityAssertions | None] = lambda: None
        """Has the identity provider vouch for people who signed in at the bridge; None: nobody does."""
        self.signed_in: dict[str, None] = {}
        """Who came in by a sign-in at the bridge, the latest last."""
        self.connected: Callable[[str, str], None] = lambda server, principal: None
        """Gets server and principal when there is an account that was not there, or another one."""
        self.disconnected: Callable[[str, str], None] = lambda server, principal: None
        """The same when there is none any more: what runs with it has to end."""
        self.changed_elsewhere: Callable[[str, str, bool], None] = lambda server, principal, is_there: None
        """The same of an account that was changed at another bridge, and whether there is one."""
        vault.changed_elsewhere = lambda row, is_there: self.changed_elsewhere(row.server, row.principal, is_there)
        self._at: dict[tuple[str, str], tuple[object, UserAuthorization]] = {}
        self._exchanged: dict[tuple[str, str], tuple[object, UserToken]] = {}
        self._authorization_servers: dict[str, tuple[object, AuthorizationServerOfUpstream]] = {}
        self._values: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
        self._lenders: dict[str, str] = {}
        """Whose account the instance that lists uses, by server."""

    # -- for calls

    async def require(self, upstream: Upstream, principal: str) -> None:
        """See `RequireAccount` (`upstream/instances/chooser.py`)."""
        name, settings = upstream.name, upstream.settings
        auth = settings.auth
        if auth.account not in WITHOUT_PAGE:
            await self.vault.follow()
        if auth.account == "exchange":
            if self.presented.of(principal) is None:
                raise nothing_to_exchange(name)
        elif auth.account == "id-jag":
            if principal not in self.signed_in or self.assertions() is None:
                raise nothing_to_assert(name)
        elif auth.variables:
            if not await self._has_values(name, settings, principal):
                raise self._needed(name, principal, "")
        elif principal:  # the local user has the account of `mcpbridge login`, as everywhere
            authorization = self.at(name, settings, principal)
            account = authorization.account
            if not account.is_loaded or not self.vault.has(authorization.row):
                had = bool(account.token)
                await account.load()
                if had and not account.token:
                    self.disconnected(name, principal)
            if not account.token:
                raise self._needed(name, principal, "")

    def authorizer(
        self, name: str, settings: ServerSettings, principal: str | None, own: Authorization | None
    ) -> Authorizer | None:
        """Whoever puts the token on the requests of one instance. `principal` None: of the one that lists.

        `own`: the sign-in of the local user.
        """
        if principal is None:
            return _Lister(self, name, settings, own)
        if settings.auth.account in WITHOUT_PAGE:
            return self.exchanged(name, settings, principal)
        return self.at(name, settings, principal) if principal else own

    def environment(self, name: str, settings: ServerSettings, principal: str | None) -> dict[str, str]:
        """The variables that a process of this user gets. None: the one that lists, see at the top."""
        if principal is None:
            rows = [row for row in self._rows_at(name, settings) if row.kind == "variables"]
            rows.sort(key=lambda row: (row.principal != "", row.since))
            if not rows:
                return {}
            principal = self._lenders[name] = rows[0].principal
        row = self._row(name, settings, principal)
        known = self._values.get((name, principal))
        if known is None or known[0] != self.vault.changed_at(row):
            self._values[name, principal] = self.vault.changed_at(row), _values_of(self.vault.load_blocking(row))
        values = self._values[name, principal][1]
        return {key: values[key] for key in settings.auth.variables if key in values}

    def at(self, name: str, settings: ServerSettings, principal: str) -> "UserAuthorization":
        """The sign-in of a user at a server."""
        network = self._network_of(settings)
        made_for = settings.url, settings.auth, network
        known = self._at.get((name, principal))
        if known is None or known[0] != made_for:
            row = self._row(name, settings, principal)
            around = AuthContext(RowSecrets(self.vault, row), self._around.spawn, learn=self._around.learn)
            account = Account(name, row.url, settings.auth, around, network)
            known = self._at[name, principal] = made_for, UserAuthorization(account, around, row, self)
        return known[1]

    def exchanged(self, name: str, settings: ServerSettings, principal: str) -> UserToken:
        """The token of a user at a server that takes exchanged tokens, or identity assertions."""
        made_for = settings.url, settings.auth
        known = self._exchanged.get((name, principal))
        if known is None or known[0] != made_for:
            about = name, _over_http(settings), principal, settings.auth, self._network_of(settings)
            token: UserToken
            if settings.auth.account == "id-jag":
                server = self._authorization_server(name, made_for)
                token = AssertedToken(*about, self._around.learn, lambda: self.assertions(), server)  # noqa: PLW0108 - the front sets it later
            else:
                token = ExchangedToken(*about, self.presented, self._around.learn)
            known = self._exchanged[name, principal] = made_for, token
        return known[1]

    def arrived(self, principal: str) -> None:
        """A user came in who signed in at the bridge."""
        self.signed_in.pop(principal, None)
        self.signed_in[principal] = None
        while len(self.signed_in) > _MOST_SIGNED_IN:
            del self.signed_in[next(iter(self.signed_in))]

    # -- for pages and commands

    async def connections(self, principal: str) -> list[Connection]:
        """Every server where users have accounts of their own, and whether this user has one."""
        found: list[Connection] = []
        await self.vault.follow()
        rows = {(row.place, row.url): row for row in await asyncio.to_thread(self.vault.rows)}
        for name, settings in self._of_users().items():
            auth = settings.auth
            row = self._row(name, settings, principal)
            kept = rows.get((row.place, row.url))
            is_connected = kept is not None
            how: Literal["sign-in", "variables", "exchange", "id-jag"] = "variables" if auth.variables else "sign-in"
            if auth.account == "exchange":
                how, is_connected = "exchange", self.presented.is_of(principal)
            elif auth.account == "id-jag":
                how, is_connected = "id-jag", principal in self.signed_in
            since, issuer = (kept.since, kept.issuer) if kept is not None else (0.0, auth.issuer or "")
            found.append(Connection(name, how, is_connected, since, issuer, tuple(auth.variables)))
        return found

    async def provider_page(self, sign_in: UserSignIn) -> str:
        """Where the browser of the user goes to sign in.

        Raises:
            BridgeError: the server cannot be reached, or says nothing that can be used.
        """
        settings = self._settings(sign_in.server)
        authorization = self.at(sign_in.server, settings, sign_in.principal)

        async def knock() -> Challenge:
            if authorization.wants is not None:
                return authorization.wants
            is_sse = settings.kind == "sse"
            return await authorization.account.knock(settings.headers, is_sse=is_sse) or Challenge()

        def spawn(work: Coroutine[Any, Any, None]) -> object:
            return self._around.spawn(self._signing_in(work, authorization, sign_in))

        return await sign_in.provider_page(authorization.account, knock, self.sign_ins.callback, spawn)

    async def set_variables(self, server: str, principal: str, values: Mapping[str, str]) -> None:
        """Keep these values of a user, beside those that are there; an empty one takes its variable out.

        Raises:
            ConfigError: the server takes no such variables, or they cannot be kept.
        """
        settings = self._settings(server)
        for name, value in values.items():
            if name not in settings.auth.variables:
                raise ConfigError(
                    f"{server!r} takes no {name[:80]!r} from users", key=f"servers.{server}.auth.variables"
                )
            if "\0" in value or len(value) > LARGEST_VALUE:
                raise ConfigError(f"{name}: a value is text of at most {LARGEST_VALUE} characters without NUL")
        row = self._row(server, settings, principal)
        async with self.vault.lock(row, "set", 10.0):
            before = _values_of(await self.vault.load(row))
            kept = {name: value for name, value in {**before, **values}.items() if value}
            if kept:
                await self.vault.save(row, msgspec.json.encode(kept))
            else:
                await self.vault.drop(row)
        self._around.learn(server, list(kept.values()))
        self._values.pop((server, principal), None)
        if before:
            self.disconnected(server, principal)  # what runs has the old values
        if kept.keys() >= set(settings.auth.variables):
            self.sign_ins.begin(server, principal).finish()
            self.connected(server, principal)

    async def disconnect(self, server: str, principal: str) -> tuple[bool, bool]:
        """Forget an account and end what runs with it: whether there was one, and whether its server took it back."""
        settings = self._servers().get(server)
        was_there, was_revoked = False, False
        await self.vault.follow()
        if settings is not None and settings.auth.is_per_user and not settings.auth.variables:
            if settings.auth.account in WITHOUT_PAGE:
                for key in [key for key in self._exchanged if (key[0], without_rights(key[1])) == (server, principal)]:
                    was_there, (_, token) = True, self._exchanged.pop(key)
                    was_revoked |= await token.revoke()
            elif principal:
                account = self.at(server, settings, principal).account
                try:
                    was_there, was_revoked = await account.sign_out()
                except BridgeError as error:  # the tokens are forgotten all the same
                    log.warning("account not revoked at its provider", upstream=server, reason=str(error))
        for row in self.vault.rows():
            if (row.server, row.principal) == (server, principal):
                was_there |= await self.vault.drop(row)
        self._at.pop((server, principal), None)
        self._values.pop((server, principal), None)
        self.sign_ins.end_of_user(principal, server)
        self.disconnected(server, principal)
        log.info("account disconnected", upstream=server)
        return was_there, was_revoked

    async def revoke(self, principal: str) -> list[str]:
        """Disconnect a user everywhere; returns the servers where there was an account."""
        await self.vault.follow()
        servers = {row.server for row in self.vault.rows() if row.principal == principal}
        servers |= {name for name, user in self._exchanged if without_rights(user) == principal}
        found = [name for name in sorted(servers) if (await self.disconnect(name, principal))[0]]
        self.presented.forget(principal)
        self.signed_in.pop(principal, None)
        self.sign_ins.end_of_user(principal)
        return found

    async def sign_out(self, principal: str) -> None:
        """Disconnect a user where the sign-in at the bridge was all that it took (`WITHOUT_PAGE`)."""
        self.presented.forget(principal)
        self.signed_in.pop(principal, None)
        for name in sorted({name for name, user in self._exchanged if without_rights(user) == principal}):
            await self.disconnect(name, principal)

    def users(self) -> dict[str, list[Row]]:
        """Everybody who has something in the vault, and what; by principal."""
        found: dict[str, list[Row]] = {}
        for row in self.vault.rows():
            found.setdefault(row.principal, []).append(row)
        return found

    def lends(self, server: str, principal: str) -> bool:
        """The instance that lists uses the account of this user."""
        return without_rights(self._lenders.get(server, "\0")) == principal

    # -- internals

    async def lender(self, name: str, settings: ServerSettings) -> Authorizer | None:
        """Whose account lists, where the local user has none: of the user who connected first."""
        if settings.auth.account in WITHOUT_PAGE:
            is_asserted = settings.auth.account == "id-jag"
            latest = reversed(self.signed_in) if is_asserted else iter(self.presented.principals())
            if (principal := next(latest, None)) is None:
                return None
            self._lenders[name] = principal
            return self.exchanged(name, settings, principal)
        await self.vault.follow()
        rows = [row for row in self._rows_at(name, settings) if row.kind == "account"]
        for row in sorted(rows, key=lambda row: row.since):
            authorization = self.at(name, settings, row.principal)
            if not authorization.account.is_loaded:
                await authorization.account.load()
            if authorization.account.token:
                self._lenders[name] = row.principal
                return authorization
        return None

    def needed(self, authorization: "UserAuthorization", asked: Challenge, *, is_step_up: bool) -> SignInNeeded:
        """The error that asks the user of this account for another sign-in."""
        authorization.wants = asked if is_step_up else None
        row = authorization.row
        return self._needed(row.server, row.principal, asked.scope if is_step_up else "")

    def _needed(self, name: str, principal: str, scope: str) -> SignInNeeded:
        sign_in = self.sign_ins.begin(name, principal)
        needed = SignInNeeded(name, scope=scope, page=sign_in.url)

        async def by_asking(ask_to_open: Callable[[str], Any]) -> None:
            if not await sign_in.put_to(ask_to_open):
                raise needed

        needed.by_asking = by_asking
        return needed

    async def _signing_in(
        self, work: Coroutine[Any, Any, None], authorization: "UserAuthorization", sign_in: UserSignIn
    ) -> None:
        await work
        if sign_in.over.done() and sign_in.over.exception() is None:
            authorization.wants = None
            self.connected(sign_in.server, sign_in.principal)

    async def _has_values(self, name: str, settings: ServerSettings, principal: str) -> bool:
        row = self._row(name, settings, principal)
        changed_at = self.vault.changed_at(row)
        known = self._values.get((name, principal))
        if known is None or known[0] != changed_at:
            values = _values_of(await self.vault.load(row))
            is_changed = known is not None and known[1] != values  # by a command
            if is_changed and known is not None and known[1]:
                self.disconnected(name, principal)  # what runs has the old ones
            self._around.learn(name, list(values.values()))
            known = self._values[name, principal] = changed_at, values
            if is_changed and values.keys() >= set(settings.auth.variables):
                self.connected(name, principal)
        return known[1].keys() >= set(settings.auth.variables)

    def _authorization_server(self, name: str, made_for: object) -> AuthorizationServerOfUpstream:
        known = self._authorization_servers.get(name)
        if known is None or known[0] != made_for:
            known = self._authorization_servers[name] = made_for, AuthorizationServerOfUpstream()
        return known[1]

    def _row(self, name: str, settings: ServerSettings, principal: str) -> Row:
        if settings.auth.variables:
            return Row("variables", principal, name, "")
        return Row("account", principal, name, _over_http(settings))

    def _rows_at(self, name: str, settings: ServerSettings) -> list[Row]:
        url = "" if settings.auth.variables else _over_http(settings)
        return [row for row in self.vault.rows() if row.server == name and row.url == url]

    def _of_users(self) -> dict[str, ServerSettings]:
        servers = self._servers().items()
        return {name: settings for name, settings in servers if settings.auth.is_per_user and not settings.disabled}

    def _settings(self, server: str) -> ServerSettings:
        settings = self._of_users().get(server)
        if settings is None:
            raise ConfigError(f"no server {server[:80]!r} has accounts of users", key="servers")
        return settings


class UserAuthorization(Authorization):
    """The way of one user into one server. Nobody is shown a page unasked; whom the server refuses is asked anew."""

    def __init__(self, account: Account, around: AuthContext, row: Row, accounts: UserAccounts) -> None:
        super().__init__(account, around)
        self.row, self._accounts = row, accounts
        self.wants: Challenge | None = None
        """The rights that the next sign-in has to bring, beyond those there are."""

    async def _ask_person(self, used: str, asked: Challenge, *, is_step_up: bool) -> None:
        if not is_step_up and self.account.token in ("", used):
            await self.account.forget()
        raise self._accounts.needed(self, asked, is_step_up=is_step_up)


class _Lister:
    """The `Authorizer` of the instance that lists: the local user's sign-in, or that of the user who came first."""

    def __init__(self, accounts: UserAccounts, name: str, settings: ServerSettings, own: Authorization | None) -> None:
        self._accounts, self._name, self._settings, self._own = accounts, name, settings, own
        self._used: Authorizer | None = None

    @property
    def ready(self) -> str | None:
        return self._used.ready if self._used is not None else None

    @property
    def waits_for(self) -> str:
        return self._own.waits_for if self._own is not None else ""

    async def token(self) -> str:
        return await (await self._choice()).token()

    async def refused(self, used: str, status: int, challenge: str) -> bool:
        chosen = await self._choice()
        try:
            return await chosen.refused(used, status, challenge)
        except SignInNeeded:
            self._used = None
            again = await self._choice()
            if again is chosen:
                raise
            return True  # the account of somebody else, or of nobody, who is asked in the next round

    def accepted(self) -> None:
        if self._used is not None:
            self._used.accepted()

    async def _choice(self) -> Authorizer:
        if self._used is not None:
            return self._used
        own = self._own
        if own is not None:
            if not own.account.is_loaded:
                await own.account.load()
            if own.account.token:
                self._used = own
                return own
        lender = await self._accounts.lender(self._name, self._settings)
        if lender is not None:
            self._used = lender
            return lender
        if own is None:
            is_asserted = self._settings.auth.account == "id-jag"
            raise nothing_to_assert(self._name) if is_asserted else nothing_to_exchange(self._name)
        return own


def _over_http(settings: ServerSettings) -> str:
    """The address as HTTP has it: a WebSocket begins as an HTTP request."""
    url = settings.url or ""
    return f"http{url[2:]}" if url[:2].lower() == "ws" else url


def _values_of(encoded: bytes | None) -> dict[str, str]:
    try:
        return msgspec.json.decode(encoded, type=dict[str, str]) if encoded else {}
    except msgspec.DecodeError:
        return {}
