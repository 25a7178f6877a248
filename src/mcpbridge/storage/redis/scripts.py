"""What runs on the server, and the layout of the keys. Commands of Redis 7.0 only.

All keys of a kind have the same hash tag, `{v1/KIND}`, so that they lie in one slot of a cluster:

    PREFIX:{v1/KIND}:v:PRINCIPAL/HANDLE   a hash: one value, its facts, and its bytes in parts (`b0`, `b1`, …)
    PREFIX:{v1/KIND}:d:RANDOM             a draft: a large value that is being written, or one that is being taken
    PREFIX:{v1/KIND}:order                names by when they were put or renewed
    PREFIX:{v1/KIND}:used                 names by when they were used
    PREFIX:{v1/KIND}:expires              names by when they expire
    PREFIX:{v1/KIND}:rooms                bytes that each name takes
    PREFIX:{v1/KIND}:total                the sum of those
    PREFIX:{v1/KIND}:seq                  the last number; numbers order what happens at the same time
    PREFIX:{v1/#counts}:days              `DAY:LEDGER` of all counts
    PREFIX:{v1/#counts}:n:DAY:LEDGER      a hash: numbers by what they count
    PREFIX:{v1/#counts}:a:RANDOM          the number of the last addition of one bridge, for a day
    PREFIX:{v1/#store}:kinds, :salt       which kinds there are; what the key of encrypted values is made with

Kinds, principals and handles are percent-encoded. The server removes what has expired by its own clock. Names of such
values stay in the lists of names until the next sweep, and whoever reads a list skips them.
"""

from urllib.parse import quote

from mcpbridge.storage.redis.connections import script

Name = tuple[str, str, str]
"""Kind, principal and handle."""


class Keys:
    """The keys under one prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.kinds = f"{prefix}:{{v1/#store}}:kinds"
        self.salt = f"{prefix}:{{v1/#store}}:salt"
        self.days = f"{prefix}:{{v1/#counts}}:days"

    def of(self, name: Name) -> list[str]:
        """What a script on one value touches, in the order that scripts expect."""
        return [self.values(name[0]) + member(name), *self.lists(name[0])]

    def lists(self, kind: str) -> list[str]:
        """The lists of a kind, in that order."""
        return [self._of_kind(kind) + part for part in ("order", "used", "expires", "rooms", "total", "seq")]

    def values(self, kind: str) -> str:
        """What the keys of a kind's values begin with."""
        return self._of_kind(kind) + "v:"

    def draft(self, kind: str, name: str) -> str:
        """The key of a draft."""
        return f"{self._of_kind(kind)}d:{name}"

    def counts(self, day: str, ledger: str) -> tuple[str, str]:
        """The key of a day's counts, and its name in the list of days."""
        name = f"{_quoted(day)}:{_quoted(ledger)}"
        return f"{self._prefix}:{{v1/#counts}}:n:{name}", name

    def additions(self, name: str) -> str:
        """The key of what is known of a bridge's additions."""
        return f"{self._prefix}:{{v1/#counts}}:a:{name}"

    def _of_kind(self, kind: str) -> str:
        return f"{self._prefix}:{{v1/{_quoted(kind)}}}:"


def member(name: Name) -> str:
    """The name of a value in the lists of its kind."""
    return member_start(name[1]) + _quoted(name[2])


def member_start(principal: str) -> str:
    """What the names of a principal's values begin with."""
    return _quoted(principal) + "/"


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


_ADDS = "#!lua\n"
"""What takes room is refused before it starts when the server's memory is full."""
_ALWAYS = "#!lua flags=allow-oom\n"
"""What reads or removes continues then, too."""

_COMMON = """
local FACTS = {'size', 'room', 'created', 'used', 'expires', 'form', 'seal', 'label', 'number', 'parts'}
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000
end
local function text(number) return string.format('%.6f', number) end
local function facts(key, now)
  local f = redis.call('HMGET', key, unpack(FACTS))
  if not f[5] or tonumber(f[5]) <= now then return nil end
  return f
end
local function live_until(key, name, now, expires)
  redis.call('HSET', key, 'expires', text(expires))
  redis.call('PEXPIRE', key, math.max(1, math.ceil((expires - now) * 1000)))
  redis.call('ZADD', KEYS[4], text(expires), name)
end
local function take_room(name, room)
  redis.call('INCRBY', KEYS[6], room - tonumber(redis.call('HGET', KEYS[5], name) or 0))
  redis.call('HSET', KEYS[5], name, room)
end
local function forget(key, name)
  local room = redis.call('HGET', KEYS[5], name)
  if room then
    redis.call('DECRBY', KEYS[6], room)
    redis.call('HDEL', KEYS[5], name)
  end
  redis.call('ZREM', KEYS[2], name)
  redis.call('ZREM', KEYS[3], name)
  redis.call('ZREM', KEYS[4], name)
  redis.call('UNLINK', key)
  return tonumber(room or 0)
end
local function with_start(f)
  f[#FACTS + 1] = redis.call('HGET', KEYS[1], 'b0')
  return f
end
"""
"""KEYS of all that use it: a value, then the lists of its kind."""

PUT = script(
    _ADDS
    + _COMMON
    + """
-- ARGV: now, name, seconds, size, room, form, seal, label, parts, what may be replaced ('*', '' or a number), body
-- KEYS[8]: the draft that has the body, if there is one
local now, name = clock(ARGV[1]), ARGV[2]
if ARGV[10] ~= '*' then
  local there = facts(KEYS[1], now)
  if there and there[9] ~= ARGV[10] then return with_start(there) end
end
if KEYS[8] and redis.call('HLEN', KEYS[8]) ~= tonumber(ARGV[9]) then return -1 end
forget(KEYS[1], name)
if KEYS[8] then redis.call('RENAME', KEYS[8], KEYS[1]) else redis.call('HSET', KEYS[1], 'b0', ARGV[11]) end
local number = redis.call('INCR', KEYS[7])
redis.call('HSET', KEYS[1], 'size', ARGV[4], 'room', ARGV[5], 'created', text(now), 'used', text(now), 'form', ARGV[6],
  'seal', ARGV[7], 'label', ARGV[8], 'parts', ARGV[9], 'number', number)
live_until(KEYS[1], name, now, now + tonumber(ARGV[3]))
redis.call('ZADD', KEYS[2], number, name)
redis.call('ZADD', KEYS[3], number, name)
take_room(name, tonumber(ARGV[5]))
return 1
"""
)

ADD_PART = script(
    _ADDS
    + """
-- KEYS: a draft. ARGV: the field, the bytes, seconds that the draft lives from now on
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
"""
)

GET = script(
    _ALWAYS
    + _COMMON
    + """
-- ARGV: now, name, seconds to live from now on ('': it is no use), own seal, seconds between two uses written down
local now, name = clock(ARGV[1]), ARGV[2]
local f = facts(KEYS[1], now)
if not f then return false end
local is_own = f[7] == '0' or f[7] == ARGV[4]
if ARGV[3] ~= '' and is_own and now - tonumber(f[4]) >= tonumber(ARGV[5]) then
  redis.call('HSET', KEYS[1], 'used', text(math.max(now, tonumber(f[4]))))
  live_until(KEYS[1], name, now, math.max(tonumber(f[5]), now + tonumber(ARGV[3])))
  redis.call('ZADD', KEYS[3], redis.call('INCR', KEYS[7]), name)
end
return with_start(f)
"""
)

PART = script(
    _ALWAYS
    + """
-- KEYS: a value, or what was taken. ARGV: the field, the number that it must have
if redis.call('HGET', KEYS[1], 'number') ~= ARGV[2] then return false end
return redis.call('HGET', KEYS[1], ARGV[1])
"""
)

TAKE = script(
    _ALWAYS
    + _COMMON
    + """
-- ARGV: now, name, own seal, seconds to read a large value in. KEYS[8]: where a large value is until it was read
local f = facts(KEYS[1], clock(ARGV[1]))
if not f then return false end
if f[7] ~= '0' and f[7] ~= ARGV[3] then return f end
with_start(f)
if tonumber(f[10]) > 1 then
  redis.call('RENAME', KEYS[1], KEYS[8])
  redis.call('EXPIRE', KEYS[8], ARGV[4])
end
forget(KEYS[1], ARGV[2])
return f
"""
)

RENEW = script(
    _ALWAYS
    + _COMMON
    + """
-- ARGV: now, name, seconds, own seal, whether there is a label, the label
local now, name = clock(ARGV[1]), ARGV[2]
local f = facts(KEYS[1], now)
if not f or (f[7] ~= '0' and f[7] ~= ARGV[4]) then return 0 end
if ARGV[5] == '1' then
  if f[7] ~= ARGV[4] then return 0 end
  local room = tonumber(f[2]) - #f[8] + #ARGV[6]
  redis.call('HSET', KEYS[1], 'label', ARGV[6], 'room', room)
  take_room(name, room)
end
redis.call('HSET', KEYS[1], 'created', text(now), 'used', text(now))
live_until(KEYS[1], name, now, math.max(tonumber(f[5]), now + tonumber(ARGV[3])))
local order = redis.call('INCR', KEYS[7])
redis.call('ZADD', KEYS[2], order, name)
redis.call('ZADD', KEYS[3], order, name)
return 1
"""
)

DROP = script(
    _ALWAYS
    + _COMMON
    + """
-- ARGV: now, name
local f = facts(KEYS[1], clock(ARGV[1]))
forget(KEYS[1], ARGV[2])
return f and 1 or 0
"""
)

FACTS = script(
    _ALWAYS
    + _COMMON
    + """
-- ARGV: now
return facts(KEYS[1], clock(ARGV[1])) or false
"""
)

LIST = script(
    _ALWAYS
    + _COMMON
    + """
-- KEYS[1]: what values begin with. ARGV: now, what names must begin with, newest first, where to start, how many
local now, start, found = clock(ARGV[1]), ARGV[2], {}
local page
if ARGV[3] == '1' then
  page = redis.call('ZRANGE', KEYS[2], ARGV[4], '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, ARGV[5], 'WITHSCORES')
else
  page = redis.call('ZRANGE', KEYS[2], ARGV[4], '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[5], 'WITHSCORES')
end
for at = 1, #page, 2 do
  local name = page[at]
  if string.sub(name, 1, #start) == start then
    local f = facts(KEYS[1] .. name, now)
    if f then found[#found + 1] = {name, f} end
  end
end
return {page[#page] or '', #page / 2, found}
"""
)

EXPIRE = script(
    _ALWAYS
    + _COMMON
    + """
-- KEYS[1]: what values begin with. ARGV: now, how many. Returns how many went, and the bytes that are left
local names = redis.call('ZRANGE', KEYS[4], '-inf', text(clock(ARGV[1])), 'BYSCORE', 'LIMIT', 0, ARGV[2])
for _, name in ipairs(names) do forget(KEYS[1] .. name, name) end
return {#names, tonumber(redis.call('GET', KEYS[6]) or 0)}
"""
)

EVICT = script(
    _ALWAYS
    + _COMMON
    + """
-- KEYS[1]: what values begin with. ARGV: bytes to free, how many values at most. Returns the bytes that became free
local gone, surplus = 0, tonumber(ARGV[1])
for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, tonumber(ARGV[2]) - 1)) do
  gone = gone + forget(KEYS[1] .. name, name)
  if gone >= surplus then break end
end
return gone
"""
)

FIND_COUNTS = script(
    _ALWAYS
    + """
-- KEYS: the days of the counts. ARGV: the fields
local found = {}
for at, key in ipairs(KEYS) do found[at] = redis.call('HGET', key, ARGV[at]) end
return found
"""
)

SET_COUNTS = script(
    _ADDS
    + """
-- KEYS: the list of days, whose addition it is, then the day of each count.
-- ARGV: the number of the addition, how many seconds that is known, then of each count: the name of its day in the
-- list, field, old ('': none), new
if tonumber(redis.call('GET', KEYS[2]) or 0) >= tonumber(ARGV[1]) then return 1 end -- its answer got lost
for at = 3, #KEYS do
  local first = (at - 3) * 4 + 2
  if (redis.call('HGET', KEYS[at], ARGV[first + 2]) or '') ~= ARGV[first + 3] then return 0 end
end
for at = 3, #KEYS do
  local first = (at - 3) * 4 + 2
  redis.call('HSET', KEYS[at], ARGV[first + 2], ARGV[first + 4])
  redis.call('ZADD', KEYS[1], 0, ARGV[first + 1])
end
redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
return 1
"""
)

FORGET_COUNTS = script(
    _ALWAYS
    + """
-- KEYS: the list of days, what their keys begin with. ARGV: the first day that is kept, how many counts are kept
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], '-', '(' .. ARGV[1], 'BYLEX')) do
  redis.call('UNLINK', KEYS[2] .. name)
  redis.call('ZREM', KEYS[1], name)
end
local names, surplus = redis.call('ZRANGE', KEYS[1], 0, -1), -tonumber(ARGV[2])
for _, name in ipairs(names) do surplus = surplus + redis.call('HLEN', KEYS[2] .. name) end
for _, name in ipairs(names) do
  if surplus <= 0 then break end
  local fields = redis.call('HKEYS', KEYS[2] .. name)
  if #fields <= surplus then
    redis.call('UNLINK', KEYS[2] .. name)
    redis.call('ZREM', KEYS[1], name)
  else
    for at = 1, surplus do redis.call('HDEL', KEYS[2] .. name, fields[at]) end
  end
  surplus = surplus - #fields
end
return 1
"""
)
