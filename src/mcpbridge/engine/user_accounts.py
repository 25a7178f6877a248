"""The accounts of users in a running bridge: made with the first server that wants them; what follows from a change.

Whoever has no server with `auth.as` `"user"`, `"exchange"` or `"id-jag"` loads nothing of it.
"""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio

from mcpbridge.base.background_tasks import OwnedTasks, repeat
from mcpbridge.base.errors import ConfigError
from mcpbridge.config.schema import Settings
from mcpbridge.config.variables import secret_references
from mcpbridge.core.identity import Identity, with_rights
from mcpbridge.storage.settings import redis_address
from mcpbridge.storage.token_store import SealedFiles, open_secrets, secrets_directory
from mcpbridge.upstream.accounts.settings import AccountsSettings
from mcpbridge.upstream.auth.context import AuthContext
from mcpbridge.upstream.pool import Pool
from mcpbridge.upstream.settings import ServerSettings
from mcpbridge.upstream.supervisor import Upstream

if TYPE_CHECKING:
    from mcpbridge.storage.redis.shared_secrets import SharedSecrets
    from mcpbridge.upstream.accounts.accounts import UserAccounts


def read_keys(accounts: AccountsSettings) -> tuple[str | None, list[str]]:
    """The key and the old keys of the vault, as configured.

    Raises:
        ConfigError: one of them was not read, such as that of a command that failed.
    """
    for name, key in [("key", accounts.key or ""), *(("old_keys", key) for key in accounts.old_keys)]:
        if any(secret_references(key)):
            hint = "`mcpbridge check` says why; until then no account of users is opened or kept."
            raise ConfigError("the key of the account vault could not be read", key=f"accounts.{name}", hint=hint)
    return accounts.key, accounts.old_keys


def open_secrets_of(settings: Callable[[], Settings]) -> "SealedFiles | SharedSecrets":
    """Where the tokens of the bridge itself are kept. `settings`: as they are when a token is read or kept."""

    def keys() -> Sequence[str]:
        key, old_keys = read_keys(settings().accounts)
        return [] if key is None else [key, *old_keys]

    now = settings()
    return open_secrets(now.store, None if now.accounts.key is None else keys)


CONNECTED, DISCONNECTED = "account.connected", "account.disconnected"


class SignIns(Protocol):
    """Who is signed in at the bridge itself; see `AuthorizationServer`, which knows."""

    async def people(self) -> Mapping[str, int]:
        """Programs that they are signed in with, by principal."""
        ...

    async def end_all(self, principal: str) -> int:
        """End all sign-ins of this person; returns how many there were."""
        ...

    async def assertion(self, principal: str, audience: str, resource: str, scope: str) -> str:
        """See `IdentityAssertions` (`upstream/accounts/identity_assertion.py`)."""
        ...


class Doors(Protocol):
    """Who lets people in by tokens of issuers; see `ResourceServer`, which does."""

    async def revoke(self, principal: str) -> None:
        """Put somebody out: no token that was issued by now lets them in, and what they have open ends."""
        ...


Note = Callable[[str, Mapping[str, object]], object]
"""Gets the kind of an event, and its facts."""


class EngineAccounts:
    """The accounts of one bridge, and what a change of them does to what runs."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        around: AuthContext,
        *,
        pool: Callable[[], Pool],
        forget_results: Callable[[str], object],
        note: Note,
    ) -> None:
        """`forget_results`: what was kept of a server answers nobody any more. `note`: writes the audit trail."""
        self._settings, self._around, self._pool = settings, around, pool
        self._forget_results, self._note = forget_results, note
        self.sign_ins: SignIns | None = None
        """Where the bridge signs people in itself; set by its front."""
        self.doors: Doors | None = None
        """Where tokens of issuers let people in; set by the front."""
        self.visits: list[Callable[[str], object]] = []
        """Each signs a user out of the pages of the bridge in every browser; added by the fronts."""
        self.on_put_out: Callable[[str], object] = lambda principal: None
        """Gets everybody who was put out at this bridge; set by its fleet."""
        self.origin: Callable[[], str] = lambda: ""
        """Where browsers reach the bridge, `https://HOST`; empty: nowhere."""
        self.bridge: str = ""
        """What links name this bridge by, where it is one of a fleet."""

    @property
    def are_open(self) -> bool:
        """Something needed them."""
        return "all" in self.__dict__

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hear of what other bridges change; close what keeps them after everybody who uses them."""
        tasks = OwnedTasks()
        try:
            async with tasks.running():
                if self._settings().store.kind == "redis":
                    tasks.spawn(self._follow())
                yield
        finally:
            with anyio.CancelScope(shield=True):
                if self.are_open:
                    await self.all.vault.close()
                await self._around.store.close()

    async def _follow(self) -> None:
        async def follow() -> None:
            if self.are_open:
                await self.all.vault.follow()

        from mcpbridge.storage.redis.shared_vault import FOLLOW_SECONDS

        await repeat(FOLLOW_SECONDS, follow)

    @property
    def are_wanted(self) -> bool:
        """A server that is configured now has accounts of users."""
        return any(server.auth.is_per_user for server in self._settings().servers.values())

    @cached_property
    def all(self) -> "UserAccounts":
        """The accounts."""
        accounts = _open_accounts(self._settings, self._around)
        accounts.sign_ins.origin = lambda: self.origin()  # noqa: PLW0108 - the front may set another one later
        accounts.sign_ins.bridge = lambda: self.bridge
        accounts.assertions = lambda: self.sign_ins
        accounts.connected, accounts.disconnected = self._connected, self._disconnected
        accounts.changed_elsewhere = self._changed_elsewhere
        return accounts

    @staticmethod
    def without_bridge(settings: Settings, around: AuthContext) -> "UserAccounts":
        """The accounts for a command, beside whatever bridges run."""
        return _open_accounts(lambda: settings, around)

    @property
    def want_tokens(self) -> bool:
        """Some server takes tokens that were exchanged (`auth.as = "exchange"`)."""
        return bool(self._servers("exchange"))

    def _servers(self, account: str) -> list[str]:
        return [name for name, server in self._settings().servers.items() if server.auth.account == account]

    async def put_out(self, principal: str) -> tuple[int, bool]:
        """End what a user is signed in with: tokens, visits of pages, and sign-ins at the bridge itself.

        Returns how many of the latter there were, and whether tokens of issuers are refused now that were issued by
        now. What is open ends.
        """
        if self.doors is not None:
            await self.doors.revoke(principal)
        ended = await self.sign_ins.end_all(principal) if self.sign_ins is not None else 0
        self.end_visits(principal)  # last: with what is revoked by now, no other visit begins
        self.on_put_out(principal)
        return ended, self.doors is not None and self.is_of_issuer(principal)

    def end_visits(self, principal: str) -> None:
        """Sign a user out of the pages of this bridge."""
        for end in self.visits:
            end(principal)

    def is_of_issuer(self, principal: str) -> bool:
        """Whether this is a person or program of one of the issuers of `[auth]`."""
        issuer, hash_, subject = principal.partition("#")
        issuers = {one.issuer for one in self._settings().auth.issuers.values()}
        return bool(hash_ and subject) and issuer in issuers

    def present(self, identity: Identity, token: bytes) -> None:
        """Somebody came in with this token: it may be exchanged for one of a server with `auth.as = "exchange"`."""
        servers = self._servers("exchange")
        if servers:
            user = with_rights(identity.principal, identity)
            self.all.presented.present(user, token.decode("ascii", "replace"), identity.expires_at)
            self._poke(servers)

    def arrived(self, principal: str) -> None:
        """Somebody came in who signed in at the bridge: servers with `auth.as = "id-jag"` may be reached for them."""
        servers = self._servers("id-jag")
        if servers:
            self.all.arrived(principal)
            self._poke(servers)

    async def left(self, principal: str) -> None:
        """Somebody is signed in at the bridge with no program any more: what was got for that sign-in ends."""
        if self.are_open:
            await self.all.sign_out(principal)

    def _poke(self, servers: Iterable[str]) -> None:
        pool = self._pool()
        for name in servers:
            base = pool.upstreams.get(name)
            if base is not None and base.session is None:
                base.connection.poke()  # what it lists may be learned now

    async def require(self, upstream: Upstream, principal: str) -> None:
        """See `RequireAccount` (`upstream/instances/chooser.py`)."""
        await self.all.require(upstream, principal)

    def _connected(self, server: str, principal: str) -> None:
        self._note(CONNECTED, {"server": server, "principal": principal})
        self._wake(server)

    def _changed_elsewhere(self, server: str, principal: str, is_there: bool) -> None:
        if is_there:
            self._wake(server)
        else:
            self._end(server, principal)

    def _wake(self, server: str) -> None:
        pool = self._pool()
        for upstream in pool.everyone():
            if upstream.name == server:
                upstream.connection.poke()
        base = pool.upstreams.get(server)
        if base is not None and base.session is None and base.settings.auth.variables:
            pool.list_anew(server)  # it is to start with the variables that there are now

    def _disconnected(self, server: str, principal: str) -> None:
        self._end(server, principal)
        self._note(DISCONNECTED, {"server": server, "principal": principal})

    def _end(self, server: str, principal: str) -> None:
        pool = self._pool()
        pool.end_of_user(principal, server)
        if self.all.lends(server, principal):
            pool.list_anew(server)
        self._forget_results(server)


def _open_accounts(settings: Callable[[], Settings], around: AuthContext) -> "UserAccounts":
    from mcpbridge.storage.vault import Vault
    from mcpbridge.storage.vault_keys import VaultKeys, vault_keys
    from mcpbridge.upstream.accounts.accounts import UserAccounts
    from mcpbridge.upstream.transports.factory import network_of

    def servers() -> Mapping[str, ServerSettings]:
        return settings().servers

    def keys(directory: Path) -> VaultKeys:
        return vault_keys(directory, *read_keys(settings().accounts))

    def directory() -> Path:
        return secrets_directory(os.environ) / "accounts"

    now = settings()
    if now.store.kind == "redis" and now.accounts.key is not None:
        from mcpbridge.storage.redis.shared_secrets import SharedRows
        from mcpbridge.storage.redis.shared_vault import SharedVault

        vault: Vault = SharedVault(directory, keys, SharedRows(redis_address(now.store), now.store.prefix))
    else:
        vault = Vault(directory, keys)
    return UserAccounts(vault, around, network_of, servers)
