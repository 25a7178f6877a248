"""Which bridge runs the one process of a server with `share = "fleet"`: leases on the server of the store.

A lease has an epoch, which grows with each owner and never falls: whoever has seen a higher one says so, so that it
survives a server that lost its data. Each change is one script, and times are the server's. An owner that does not
renew its lease is followed only after the lease and a margin; the owner itself stops much earlier, by a clock of its
own. Where nothing is known of a server, one lease is waited for as well: an owner may be there whose record was lost.

    PREFIX:{v1/#fleet}:u:NAME       a hash: `owner` (empty: nobody), `epoch`, and when the lease `ends`
    PREFIX:{v1/#fleet}:used:CLIENT:NAME    the epoch that a client has used last; the client by the digest of its name
"""

from hashlib import sha256
from urllib.parse import quote

from msgspec import Struct

from mcpbridge.storage.redis.connections import Connections, script
from mcpbridge.storage.settings import RedisAddress

LEASE_SECONDS = 8.0
"""How long a lease lasts."""
MARGIN_SECONDS = 2.0
"""How much longer a successor waits."""
VALID_SECONDS = 3.0
"""How long an owner uses a lease that it could not renew: the rest is for its process to end (`ServerProcess.stop`)."""
RENEW_SECONDS = 1.0
"""Between two renewals."""
_USED_SECONDS = 7 * 24 * 3600
"""How long it is remembered what a client has used."""

_NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local owner = redis.call('HGET', KEYS[1], 'owner')
local ends = tonumber(redis.call('HGET', KEYS[1], 'ends') or 0)
local epoch = math.max(tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0), ARGV[2])
"""
_ACQUIRE = script(
    _NOW
    + """
-- ARGV: this bridge, the highest epoch that it has seen, milliseconds of a lease, of the margin, whether it may take it
-- Returns the owner, the epoch, whether the lease lasts, whether it is new, and milliseconds to wait
if not owner then
  owner, ends = '', now + ARGV[3]
  redis.call('HSET', KEYS[1], 'owner', owner, 'ends', ends, 'epoch', epoch)
end
local is_live = ends >= now and owner ~= ''
local free_at = ends
if owner ~= '' then free_at = ends + ARGV[4] end
if (owner == ARGV[1] and is_live) or now <= free_at or ARGV[5] == '0' then
  return {owner, epoch, is_live and 1 or 0, 0, math.max(0, free_at - now + 1)}
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', epoch + 1, 'ends', now + ARGV[3])
return {ARGV[1], epoch + 1, 1, 1, 0}
"""
)
_RENEW = script(
    _NOW
    + """
-- ARGV: the owner, its epoch, milliseconds. Returns whether it is its own
local known = tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0)
local is_lost = not owner or owner == ''
if known > tonumber(ARGV[2]) or (not is_lost and (owner ~= ARGV[1] or ends < now)) then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'epoch', ARGV[2], 'ends', now + ARGV[3])
return 1
"""
)
_RELEASE = script(
    _NOW
    + """
-- ARGV: the owner, its epoch
if owner ~= ARGV[1] or epoch ~= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'owner', '', 'ends', 0)
return 1
"""
)
_USED = script("""
-- ARGV: the epoch, seconds to remember it. Returns the last that was used before
local before = tonumber(redis.call('GET', KEYS[1]) or 0)
redis.call('SET', KEYS[1], math.max(before, tonumber(ARGV[1])), 'EX', ARGV[2])
return before
""")


class Claim(Struct, frozen=True):
    """What an attempt to get a lease found."""

    owner: str
    """Who has it; empty: nobody."""
    epoch: int
    is_live: bool
    is_new: bool
    """Whoever asked has it from now on."""
    wait: float
    """Seconds after which it may be had."""


class ServerLeases:
    """The leases. Every method raises `StoreFailed` where the server does not answer."""

    def __init__(self, address: RedisAddress, prefix: str) -> None:
        self._server = Connections(address, seconds=RENEW_SECONDS)
        self._begin = f"{prefix}:{{v1/#fleet}}:u:"
        self._begin_of_uses = f"{prefix}:{{v1/#fleet}}:used:"

    def _key(self, name: str) -> list[str]:
        return [self._begin + quote(name, safe="")]

    async def acquire(self, name: str, member: str, seen: int, *, may_take: bool) -> Claim:
        """Take the lease of a server, if nobody has it. `seen`: the highest epoch that is known here."""
        lease, margin = int(LEASE_SECONDS * 1000), int(MARGIN_SECONDS * 1000)
        arguments = member, seen, lease, margin, int(may_take)
        found = await self._server.run(_ACQUIRE, self._key(name), *arguments, until="on a replica that is up")
        return Claim(found[0].decode(), int(found[1]), bool(found[2]), bool(found[3]), found[4] / 1000)

    async def renew(self, name: str, member: str, epoch: int) -> bool:
        """Keep it. False: it is over, or somebody else's.

        A failover may undo it: the lease is so much longer than its use that a lost renewal lets nobody in early.
        """
        arguments = member, epoch, int(LEASE_SECONDS * 1000)
        return bool(await self._server.run(_RENEW, self._key(name), *arguments))

    async def release(self, name: str, member: str, epoch: int) -> None:
        """It is for whoever asks first: the process is gone."""
        await self._server.run(_RELEASE, self._key(name), member, epoch)

    async def used(self, name: str, client: str, epoch: int) -> int:
        """Write down that a client has used the process of this epoch. Returns the last that it had; 0: none."""
        digest = sha256(client.encode()).hexdigest()[:32]
        key = f"{self._begin_of_uses}{digest}:{quote(name, safe='')}"
        return int(await self._server.run(_USED, [key], epoch, _USED_SECONDS))

    async def close(self) -> None:
        """End the connections."""
        await self._server.close()
