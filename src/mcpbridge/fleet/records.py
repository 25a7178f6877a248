"""What the bridges of a fleet share on the server of the store: who is a member, and who has which session.

Each change is one script, and times are the server's. A member is one for as long as its lease lasts; whoever does not
renew it in time is no member any more, and its sessions are for whoever asks first. Layout, with one hash tag, so that
a script can look at a session and at its owner's lease at once:

    PREFIX:{v1/#fleet}:leases       members by when their leases end
    PREFIX:{v1/#fleet}:members      a hash: what is known of each member
    PREFIX:{v1/#fleet}:s:DIGEST     a hash: one session: `owner`, `who` may use it, what it was opened with (`record`),
                                    how often it was taken over (`moves`)
    PREFIX:{v1/#fleet}:e:DIGEST     what the client is answered that resumes a stream of a session, sealed
    PREFIX:{v1/#fleet}:u:DIGEST     which use of a seal was the first; there while the seal would still open
    PREFIX:{v1/#fleet}:settling     there while members may be about to come back

When no lease was renewed for a while, the server was away, or lost its data, and the first member that is back must not
take the others for dead: for some seconds then every member stays one, and nobody gets a session of one without a
lease.

A failover may lose the last writes. Who takes a session has it when a replica knows that. If all the same the record
falls back to a former owner, `moves` is less than what the owner has, who puts it right.

Ids of sessions are kept as digests: whoever can read the server does not learn them.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from secrets import token_hex

import msgspec
from anyio import CancelScope, Semaphore, move_on_after
from msgspec import Raw, Struct

from mcpbridge.base.errors import StoreFailed
from mcpbridge.base.log import get_logger
from mcpbridge.protocol.jsonrpc import Frame, encode
from mcpbridge.storage.redis.connections import COMMAND_SECONDS, Connections, script
from mcpbridge.storage.settings import RedisAddress

log = get_logger("mcpbridge.fleet")

FORMAT = 1
"""Of what is kept; bridges that write another one do not share a fleet.

It counts from the first release on. Before that, form 1 changed: answers on streams were in one hash for each session.
Nothing reads those, since no release wrote them. What changes in a released form gets another number here.
"""

_SESSION_FORMAT = 1
"""Of what a session was opened with."""
MOST_MESSAGES = 1000
"""What is kept of one session: messages, nearly all of them subscriptions."""
_LARGEST = 1 << 20
"""The same in bytes."""


class Member(Struct, frozen=True):
    """A bridge of the fleet."""

    id: str
    """Random; another one after each start."""
    address: str
    """`HOST:PORT` of its link."""
    name: str
    version: str
    settings: str
    """A digest of its configuration: those of a fleet are the same."""
    since: float
    """When it started, in seconds since 1970."""
    is_draining: bool = False
    """It takes nothing new."""
    format: int = FORMAT
    stopped: tuple[str, ...] = ()
    """Servers to which its breakers let no calls through."""


class Incompatible(Struct, frozen=True):
    """A bridge whose version keeps records in another form: nothing is shared with it. What is known of it."""

    id: str = ""
    name: str = ""
    version: str = ""
    format: int = 0
    """0: it says nothing that this version can read."""


class Beat(Struct, frozen=True):
    """What a member learns when it renews its lease."""

    held: bool
    """It still had one."""
    members: Mapping[str, Member]
    is_settling: bool
    """Others may be about to come back, after the server was away."""
    incompatible: list[Incompatible]
    """Who has a lease as well, and is no member for this version."""


class Kept(Struct, frozen=True):
    """What became of sessions whose records an owner wanted to keep."""

    lost: list[bytes]
    """Those that somebody else has, or ended."""
    missing: list[bytes]
    """Those that there is no record of."""
    undone: list[bytes]
    """Those whose records had fallen back to before this owner took them."""


class Claim(Struct, frozen=True):
    """Who has a session after somebody asked for it."""

    owner: str
    """Empty: nobody gets it yet, since whoever has it may be about to come back."""
    record: bytes = b""
    """For its new owner: what the session was opened with."""
    moves: int = 0
    """For its new owner: how often the session was taken over."""


SETTLING_SECONDS = 8.0
"""Members may need so long to come back after the server was away: a command that hangs, and pauses of attempts."""
_ENDED_SECONDS = 600
"""For so long the records know that a session has ended: a bridge that was paused must not write it down again."""
_LONGEST_PAUSE = 1.0
"""Seconds between two attempts to reach the server: leases must be there again while members settle."""
_MOST_WAITING = 8
"""Commands that wait for a replica at a time, half of the connections: while it is behind, leases are still renewed."""


class SessionRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """What a session was opened with, and what its client asked for since."""

    messages: dict[str, Raw]
    format: int = _SESSION_FORMAT


class _Subscription(Struct):
    uri: str


_sessions = msgspec.json.Decoder(SessionRecord)
_subscriptions = msgspec.json.Decoder(_Subscription)


OF_ANOTHER_VERSION = (
    "not sent: another version of the bridge wrote this session down; a bridge of that version takes it"
)


def read_session(encoded: bytes) -> SessionRecord | None:
    """None: another version wrote it."""
    try:
        record = _sessions.decode(encoded)
    except msgspec.MsgspecError:
        return None
    return record if record.format == _SESSION_FORMAT else None


def note(messages: dict[str, Raw], frame: Frame) -> bool:
    """Add what a client asked for to the messages of its session. Of each kind, and each subscription, the last counts.

    False: nothing changed. There is a limit to subscriptions: those above it are not kept.
    """
    if frame.method not in ("resources/subscribe", "resources/unsubscribe"):
        messages[frame.method] = _raw(frame, frame.params or None)
        return True
    try:
        wanted = _subscriptions.decode(frame.params)
    except msgspec.MsgspecError:
        return False
    name = f"resources/subscribe {wanted.uri}"
    if frame.method == "resources/unsubscribe":
        return messages.pop(name, None) is not None
    if name in messages:
        return False
    raw = _raw(frame, wanted)  # without what is of this one request
    if len(messages) >= MOST_MESSAGES or sum(map(len, map(bytes, messages.values()))) + len(bytes(raw)) > _LARGEST:
        log.warning("a subscription ends with this bridge: its session has too many to be written down")
        return False
    messages[name] = raw
    return True


def _raw(frame: Frame, params: object) -> Raw:
    """The message as it is kept."""
    members = {"jsonrpc": "2.0", "id": frame.id or None, "method": frame.method, "params": params}
    return Raw(encode({name: value for name, value in members.items() if value is not None}))


_NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""
_BEAT = script(
    _NOW
    + """
-- KEYS: leases, members, settling. ARGV: the member, milliseconds of a lease, what is known of it, ms of settling
local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
local held = (ends and tonumber(ends) >= now) and 1 or 0
local latest = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
-- Half a lease without a beat of anybody: some might have none left before they are back.
if not latest or tonumber(latest) < now + ARGV[2] / 2 then redis.call('SET', KEYS[3], 1, 'PX', ARGV[4]) end
local settling = redis.call('EXISTS', KEYS[3])
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
if settling == 0 then
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. now)) do
    redis.call('ZREM', KEYS[1], gone)
    redis.call('HDEL', KEYS[2], gone)
  end
end
return {held, redis.call('HVALS', KEYS[2]), settling}
"""
)
_LEAVE = script("redis.call('ZREM', KEYS[1], ARGV[1]) return redis.call('HDEL', KEYS[2], ARGV[1])")
_MEMBERS = script(
    _NOW
    + """
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now, '+inf')) do
  found[#found + 1] = redis.call('HGET', KEYS[2], id)
end
return found
"""
)
_IS_MINE = """
-- Whether a member that took a session so often has it; if the record says less, a failover undid that it was taken.
local function is_mine(key, owner, member, moves)
  if owner == member then return true end
  return owner ~= '-' and tonumber(redis.call('HGET', key, 'moves') or 0) < tonumber(moves)
end
"""
_WRITE = script(
    _IS_MINE
    + """
-- ARGV: the member, who may use it, the record, milliseconds, `new` or `known`, how often it was taken over
local owner = redis.call('HGET', KEYS[1], 'owner')
if (ARGV[5] == 'new') == (owner ~= false) then return 0 end
if owner and not is_mine(KEYS[1], owner, ARGV[1], ARGV[6]) then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'who', ARGV[2], 'record', ARGV[3], 'moves', ARGV[6])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
)
_CLAIM = script(
    _NOW
    + """
-- KEYS: leases, the session, settling. ARGV: the member, who asks, whether another one may have it without a record
local settling = redis.call('EXISTS', KEYS[3]) == 1
local owner = redis.call('HGET', KEYS[2], 'owner')
if not owner and settling and ARGV[3] == '1' then return {''} end
if not owner or redis.call('HGET', KEYS[2], 'who') ~= ARGV[2] then return false end
if owner ~= '' and owner ~= ARGV[1] then
  local ends = redis.call('ZSCORE', KEYS[1], owner) -- none: it has left in order, or was gone before
  if ends and tonumber(ends) >= now then return {owner} end
  if ends and settling then return {''} end
end
redis.call('HSET', KEYS[2], 'owner', ARGV[1])
return {ARGV[1], redis.call('HGET', KEYS[2], 'record'), redis.call('HINCRBY', KEYS[2], 'moves', 1)}
"""
)
_END = script(
    _IS_MINE
    + """
-- ARGV: the member, seconds, and of each session how often it was taken over
for i, key in ipairs(KEYS) do
  local owner = redis.call('HGET', key, 'owner')
  if not owner or is_mine(key, owner, ARGV[1], ARGV[i + 2]) then
    redis.call('DEL', key)
    redis.call('HSET', key, 'owner', '-') -- no member
    redis.call('EXPIRE', key, ARGV[2])
  end
end
return 1
"""
)
_GIVE_UP = script(
    """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
return redis.call('HSET', KEYS[1], 'owner', '') + 1
"""
)
_KEEP = script(
    _IS_MINE
    + """
-- ARGV: the member, milliseconds, and of each session how often it was taken over
local lost, missing, undone = {}, {}, {}
for i, key in ipairs(KEYS) do
  local owner = redis.call('HGET', key, 'owner')
  if not owner then
    missing[#missing + 1] = i
  elseif is_mine(key, owner, ARGV[1], ARGV[i + 2]) then
    if owner ~= ARGV[1] then
      redis.call('HSET', key, 'owner', ARGV[1], 'moves', ARGV[i + 2])
      undone[#undone + 1] = i
    end
    redis.call('PEXPIRE', key, ARGV[2])
  else
    lost[#lost + 1] = i
  end
end
return {lost, missing, undone}
"""
)
_UNUSE = script("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
_NOT_USED = "not sent: the fleet's records cannot be reached, so nobody knows whether this was answered before"
_PERHAPS_USED = f"{_NOT_USED}; if it is refused once they can be reached, make the call anew"
_members = msgspec.json.Decoder(Member)
_incompatible = msgspec.json.Decoder(Incompatible)


class FleetRecords:
    """The shared records. Every method raises `StoreFailed` where the server does not answer."""

    def __init__(self, address: RedisAddress, prefix: str) -> None:
        self._server = Connections(address, longest_pause=_LONGEST_PAUSE)
        self._may_wait = Semaphore(_MOST_WAITING)
        begin = f"{prefix}:{{v1/#fleet}}:"
        self._members, self._settling = [f"{begin}leases", f"{begin}members"], f"{begin}settling"
        self._begin, self._used, self._streams = f"{begin}s:", f"{begin}u:", f"{begin}e:"

    def _session(self, id_: bytes) -> str:
        return self._begin + sha256(id_).hexdigest()

    async def beat(self, member: Member, seconds: float) -> Beat:
        """Renew a member's lease, which lasts so long. Members are to beat three times in that."""
        keys, settling = [*self._members, self._settling], int(SETTLING_SECONDS * 1000)
        held, found, is_settling = await self._server.run(
            _BEAT, keys, member.id, int(seconds * 1000), msgspec.json.encode(member), settling
        )
        members, incompatible = _read(found)
        return Beat(bool(held), members, bool(is_settling), incompatible)

    async def leave(self, member: str) -> None:
        """The lease ends now."""
        await self._server.run(_LEAVE, self._members, member)

    async def members(self) -> Mapping[str, Member]:
        """Whoever has a lease."""
        return _read(await self._server.run(_MEMBERS, self._members))[0]

    async def write(
        self, id_: bytes, owner: str, who: bytes, record: bytes, seconds: float, *, is_new: bool, moves: int = 0
    ) -> bool:
        """Write down a session for so long. False: somebody else has it, or, unless it is new, there is none any more.

        `who`: what only requests of its user have, for `claim`. `moves`: see `Claim`.
        """
        mode = "new" if is_new else "known"
        arguments = (owner, who, record, int(seconds * 1000), mode, moves)
        return bool(await self._server.run(_WRITE, [self._session(id_)], *arguments))

    async def claim(self, id_: bytes, member: str, who: bytes, *, is_own: bool = False) -> Claim | None:
        """Take a session over whose owner has no lease. None: there is none for this user.

        `is_own`: nobody but this member ever had it, so that it is over if there is no record.
        """
        keys = [self._members[0], self._session(id_), self._settling]
        async with self._waiting():
            found = await self._server.run(_CLAIM, keys, member, who, int(not is_own), until="on a replica that is up")
        return None if not found else Claim(found[0].decode(), *found[1:])

    async def end(self, moves: Mapping[bytes, int], owner: str) -> None:
        """These sessions are over, unless somebody else has them. `moves`: of each, see `Claim`."""
        keys = [self._session(id_) for id_ in moves]
        async with self._waiting():
            await self._server.run(_END, keys, owner, _ENDED_SECONDS, *moves.values(), until="on a replica that is up")

    async def give_up(self, id_: bytes, owner: str) -> None:
        """The session is for whoever asks first, unless somebody else has it."""
        await self._server.run(_GIVE_UP, [self._session(id_)], owner)

    async def keep(self, moves: Mapping[bytes, int], owner: str, seconds: float) -> Kept:
        """Keep sessions of this owner's for so long from now. `moves`: of each, see `Claim`."""
        kept = list(moves)
        keys, until = [self._session(id_) for id_ in kept], int(seconds * 1000)
        lost, missing, undone = await self._server.run(_KEEP, keys, owner, until, *moves.values())
        return Kept(
            [kept[number - 1] for number in lost],
            [kept[number - 1] for number in missing],
            [kept[number - 1] for number in undone],
        )

    async def is_first_use(self, seal: bytes, seconds: float) -> bool:
        """Whether nobody has used this seal, which is good for so many seconds; from now on it is used.

        Cancelling gives the use back, as an error does.

        Raises:
            StoreFailed: that is not known, or a failover could undo it; says whether the seal still opens.
        """
        key, use = self._used + sha256(seal).hexdigest(), token_hex(8)
        try:
            async with self._waiting():
                command = ("SET", key, use, "NX", "PX", max(1, int(seconds * 1000)))
                return await self._server.call(*command, until="on a replica") is not None
        except BaseException as error:
            was_given_back = await self._gave_back(key, use)
            if not isinstance(error, StoreFailed):
                raise
            raise StoreFailed(_NOT_USED if was_given_back else _PERHAPS_USED) from error

    async def _gave_back(self, key: str, use: str) -> bool:
        """Whether this use of a seal is none, so that another one is the first."""
        with CancelScope(shield=True), suppress(StoreFailed):
            await self._server.run(_UNUSE, [key], use)
            return True
        return False

    async def keep_stream(self, session: bytes, name: bytes, record: bytes, seconds: float) -> None:
        """Keep what is known of a stream of a session, for so long."""
        await self._server.call("SET", self._stream(session, name), record, "PX", max(1, int(seconds * 1000)))

    async def drop_streams(self, session: bytes, names: Iterable[bytes]) -> None:
        """Nothing needs to be known of these any more."""
        await self._server.call("UNLINK", *(self._stream(session, name) for name in names))

    async def stream(self, session: bytes, name: bytes) -> bytes:
        """What is known of a stream; empty: nothing."""
        return await self._server.call("GET", self._stream(session, name)) or b""

    def _stream(self, session: bytes, name: bytes) -> str:
        return self._streams + sha256(session + b" " + name).hexdigest()

    @asynccontextmanager
    async def _waiting(self) -> AsyncGenerator[None]:
        """For a command that waits for a replica, with a connection for all that time."""
        with move_on_after(COMMAND_SECONDS) as scope:
            await self._may_wait.acquire()
        if scope.cancelled_caught:
            raise StoreFailed("too many commands wait for a replica of the server")
        try:
            yield
        finally:
            self._may_wait.release()

    async def close(self) -> None:
        """End the connections."""
        await self._server.close()


def _read(entries: Iterable[bytes]) -> tuple[Mapping[str, Member], list[Incompatible]]:
    """Members by their ids, and those of formats that this version does not know, which are none for it."""
    members: dict[str, Member] = {}
    incompatible: list[Incompatible] = []
    for encoded in entries:
        try:
            member = _members.decode(encoded)
        except msgspec.MsgspecError:
            member = None
        if member is not None and member.format == FORMAT:
            members[member.id] = member
        else:
            incompatible.append(_parse_incompatible(encoded))
    return members, incompatible


def _parse_incompatible(encoded: bytes) -> Incompatible:
    try:
        return _incompatible.decode(encoded)
    except msgspec.MsgspecError:
        return Incompatible()
