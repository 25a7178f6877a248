"""One row of the vault as the place where the tokens of one user at one server are kept."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from mcpbridge.storage.vault import Row, Vault
from mcpbridge.upstream.auth.grant import Grant


class RowSecrets:
    """A `SecretStore` (`upstream/auth/grant.py`), whatever the key."""

    def __init__(self, vault: Vault, row: Row) -> None:
        self._vault, self._row = vault, row

    async def load(self, key: str) -> bytes | None:
        """What the row has. See `SecretStore`."""
        return await self._vault.load(self._row)

    async def save(self, key: str, value: bytes) -> None:
        """Keep this in the row, with who gave it. See `SecretStore`."""
        grant = Grant.decode(value)
        await self._vault.save(replace(self._row, issuer=grant.issuer if grant is not None else ""), value)

    async def drop(self, key: str) -> bool:
        """Take the row away. See `SecretStore`."""
        return await self._vault.drop(self._row)

    async def close(self) -> None:
        """The vault is closed by whoever has it."""

    @asynccontextmanager
    async def lock(self, name: str, seconds: float) -> AsyncGenerator[None]:
        """Hold a lock of this row. See `SecretStore`."""
        async with self._vault.lock(self._row, name, seconds):
            yield
