"""What the ledger does inside Redis: scripts that the server runs each as a whole.

All keys begin with ``KEYS[1]``, which has the one hash tag of the ledger, so that they lie together in a cluster:

==========================  ==========================================================================================
``call:KEY``                one call: ``e``, the entry as it came (JSON, opaque here), and what changes or is asked for
``w:WHAT|`` ``w:WHAT|T``    sorted by arrival, the keys of calls that wait: of that id or name, in any trace, in trace T
``p:WHAT|`` ``p:WHAT|T``    the same of those that wait no more
``due``                     when each call that waits is due
``past``                    when each of the others may be forgotten
``turn:TURN``               the calls of a turn that wait, by arrival
``of:PROCESS``              the calls of a process that wait
``taken:PROCESS``           judgements that a process is to report
``alive``                   when each process was last heard of, by the server's clock
``claim:TOKEN``             a claim that found no announcement, for a while
``c:WHAT``                  tokens of such claims
``last:PROCESS``            number and results of its last batch, in case the answer did not reach it
``seq``                     how many calls came
==========================  ==========================================================================================

Numbers go in and out as text: Lua would cut the microseconds off.
"""

from __future__ import annotations

from typing import Final

__all__ = ["APPLY", "JUDGE", "RELEASE", "REPORTED"]

_COMMON: Final = """
local base, KEPT, LOOK_BACK = KEYS[1] .. ':', 2592000, 63
local function call(...) return redis.call(...) end
local function k(kind, name) return base .. kind .. ':' .. name end
local function field(key, name) return call('HGET', k('call', key), name) end

local function zadd(set, score, member)
  call('ZADD', set, score, member)
  call('EXPIRE', set, KEPT)
end

local function groups(id, name, trace)
  local what = id and 'i:' .. id or 'n:' .. (name or '')
  return what .. '|', what .. '|' .. trace
end

local function forget(key)
  local row = call('HMGET', k('call', key), 'id', 'name', 'trace')
  if row[3] then
    local any, traced = groups(row[1], row[2], row[3])
    call('ZREM', k('p', any), key)
    call('ZREM', k('p', traced), key)
  end
  call('DEL', k('call', key))
end

local function retire(key, now, history, most)
  local row = call('HMGET', k('call', key), 'id', 'name', 'trace', 'seq', 'turn', 'process')
  call('ZREM', base .. 'due', key)
  if not row[4] then return end
  local any, traced = groups(row[1], row[2], row[3])
  call('ZREM', k('w', any), key)
  call('ZREM', k('w', traced), key)
  call('ZREM', k('turn', row[5]), key)
  call('SREM', k('of', row[6]), key)
  zadd(k('p', any), row[4], key)
  zadd(k('p', traced), row[4], key)
  zadd(base .. 'past', now + history, key)
  if call('ZCARD', base .. 'past') > most then
    forget(call('ZPOPMIN', base .. 'past')[1])
  end
end

local function shown(key)
  local row = call('HMGET', k('call', key), 'e', 'due', 'reason', 'process', 'lost', 'at')
  return {row[1] or '', row[2] or '', row[3] or '', row[4] or '', row[5] or '', row[6] or ''}
end
"""

APPLY: Final = (
    _COMMON
    + """
local process, number, now = ARGV[1], ARGV[2], ARGV[3]
local history, most, remembered = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local operations = cjson.decode(ARGV[7])

local time = call('TIME')
zadd(base .. 'alive', time[1], process)
local last = call('HMGET', k('last', process), 'number', 'results')
if last[1] == number then return last[2] end

local function kind(by) return (by == 'span') and 'dispatch' or by end

local function equals(space, what, trace)
  local keys = trace and call('ZREVRANGE', k(space, what .. '|' .. trace), 0, LOOK_BACK) or {}
  if #keys > 0 then return keys end
  return call('ZREVRANGE', k(space, what .. '|'), 0, LOOK_BACK)
end

local function choose(keys, name, meant)
  if #keys == 1 then return keys[1], false end
  local first, named, preferred = nil, 0, nil
  for _, key in ipairs(keys) do
    if key == meant then preferred = key end
    if (field(key, 'name') or nil) == name then
      named = named + 1
      first = first or key
    end
  end
  if named == 0 then return preferred or keys[1], true end
  return preferred or first, named > 1
end

local function first_of_turn(keys)
  local turn, first = field(keys[1], 'turn'), keys[1]
  for _, key in ipairs(keys) do
    if field(key, 'turn') == turn then first = key end
  end
  return first
end

local function find(claim)
  local meant = claim.key and call('EXISTS', k('call', claim.key)) == 1 and claim.key or nil
  if not claim.id and not claim.name then return meant, false end
  if claim.id then
    local keys = equals('w', 'i:' .. claim.id, claim.trace)
    if #keys > 0 then return choose(keys, claim.name, meant) end
  end
  if meant then return meant, false end
  if claim.id then
    local past = call('ZREVRANGE', k('p', 'i:' .. claim.id .. '|'), 0, 0)
    if past[1] then return past[1], false end
  end
  if claim.name then
    local keys = equals('w', 'n:' .. claim.name, claim.trace)
    if #keys > 0 then return first_of_turn(keys), true end
    keys = equals('p', 'n:' .. claim.name, claim.trace)
    if #keys > 0 and field(keys[1], 'lost') then return first_of_turn(keys), true end
  end
  return nil, false
end

local function remember(claim)
  local row = k('claim', claim.token)
  call('HSET', row, 'by', claim.by, 'name', claim.name or '', 'trace', claim.trace or '')
  call('EXPIRE', row, remembered)
  for _, what in ipairs({claim.id and 'i:' .. claim.id or '', claim.name and 'n:' .. claim.name or ''}) do
    if what ~= '' then
      local list = k('c', what)
      call('RPUSH', list, claim.token)
      call('LTRIM', list, -LOOK_BACK - 1, -1)
      call('EXPIRE', list, remembered)
    end
  end
end

-- The claims that were here before a call: the oldest of each kind that fits is for it.
local function met(entry)
  local list = k('c', entry.id and 'i:' .. entry.id or 'n:' .. (entry.name or ''))
  local best, order = {}, {}
  for _, token in ipairs(call('LRANGE', list, 0, -1)) do
    local row = call('HMGET', k('claim', token), 'by', 'name', 'trace')
    if row[1] then
      local what = kind(row[1])
      local fit = (row[3] == entry.trace and 2 or 0) + (row[2] == (entry.name or '') and 1 or 0)
      if not best[what] then order[#order + 1] = what end
      if not best[what] or fit > best[what].fit then best[what] = {fit = fit, token = token, by = row[1]} end
    end
  end
  if #order == 0 then return {} end
  local tokens = {}
  for _, what in ipairs(order) do
    tokens[#tokens + 1] = best[what].token
    call('DEL', k('claim', best[what].token))
    call('LREM', list, 1, best[what].token)
  end
  local by = best[order[1]].by
  retire(entry.key, now, history, most)
  call('HSET', k('call', entry.key), 'by', by, 'n', best.dispatch and 1 or 0, 'met', table.concat(tokens, ' '))
  return {by}
end

local does = {}

function does.add(entry)
  local row = k('call', entry.key)
  if call('EXISTS', row) == 1 then return {} end
  local seq = call('INCR', base .. 'seq')
  call('EXPIRE', base .. 'seq', KEPT)
  local fields = {'e', entry.e, 'seq', seq, 'due', entry.due, 'reason', entry.reason, 'process', process,
                  'trace', entry.trace, 'turn', entry.turn, 'n', 0}
  if entry.id then fields[#fields + 1] = 'id'; fields[#fields + 1] = entry.id end
  if entry.name then fields[#fields + 1] = 'name'; fields[#fields + 1] = entry.name end
  call('HSET', row, unpack(fields))
  call('EXPIRE', row, KEPT)
  local any, traced = groups(entry.id, entry.name, entry.trace)
  zadd(k('w', any), seq, entry.key)
  zadd(k('w', traced), seq, entry.key)
  zadd(k('turn', entry.turn), seq, entry.key)
  zadd(base .. 'due', entry.due, entry.key)
  call('SADD', k('of', process), entry.key)
  call('EXPIRE', k('of', process), KEPT)
  return met(entry)
end

function does.settle(claim)
  local key, ambiguous = find(claim)
  if not key then
    if not claim.again then remember(claim) end
    return {}
  end
  local row = k('call', key)
  local state = call('HMGET', row, 'n', 'met', 'by', 'lost')
  local dispatches, first = tonumber(state[1]), false
  if claim.again then call('DEL', k('claim', claim.token)) end
  if not (claim.again and state[2] and string.find(' ' .. state[2] .. ' ', ' ' .. claim.token .. ' ', 1, true)) then
    first = not state[3] and not state[4]
    if first then
      retire(key, now, history, most)
      call('HSET', row, 'by', claim.by)
    end
    if kind(claim.by) == 'dispatch' then dispatches = call('HINCRBY', row, 'n', 1) end
  end
  return {shown(key), first and '1' or '', ambiguous and '1' or '', tostring(dispatches), state[4] or ''}
end

function does.hasten(operation)
  local turn = operation.turn
  if not turn then
    local keys = equals('w', 'i:' .. operation.id, operation.trace)
    if #keys == 0 then return {} end
    turn = field(keys[1], 'turn')
  end
  for _, key in ipairs(call('ZRANGE', k('turn', turn), 0, -1)) do
    if tonumber(field(key, 'due')) > tonumber(operation.due) then
      call('HSET', k('call', key), 'due', operation.due, 'reason', operation.reason)
      zadd(base .. 'due', operation.due, key)
    end
  end
  return {}
end

function does.drop(operation)
  local dropped = {}
  for _, key in ipairs(call('ZRANGE', k('turn', operation.turn), 0, -1)) do
    retire(key, now, history, most)
    call('HSET', k('call', key), 'by', 'exempt')
    dropped[#dropped + 1] = shown(key)
  end
  return dropped
end

local results = {}
for index, operation in ipairs(operations) do results[index] = does[operation['do']](operation) end
local text = cjson.encode(results)
call('HSET', k('last', process), 'number', number, 'results', text)
call('EXPIRE', k('last', process), 3600)
return text
"""
)
"""process, number of the batch, now, seconds and number of past calls kept, seconds that a claim is, operations as JSON
→ their results as JSON."""

JUDGE: Final = (
    _COMMON
    + """
local process, now, history, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local silence, limit = ARGV[5], tonumber(ARGV[6])

local time = call('TIME')
zadd(base .. 'alive', time[1], process)
local mine = k('taken', process)

local function take(key, seq)
  call('ZADD', mine, seq or 0, key)
  call('EXPIRE', mine, KEPT)
end

local function lose(key, reason)
  call('HSET', k('call', key), 'lost', reason, 'at', now)
  retire(key, now, history, most)
  take(key, field(key, 'seq'))
end

if silence ~= '' then
  for _, dead in ipairs(call('ZRANGEBYSCORE', base .. 'alive', '-inf', '(' .. (time[1] - silence), 'LIMIT', 0, 16)) do
    for _, key in ipairs(call('ZRANGE', k('taken', dead), 0, -1)) do take(key, field(key, 'seq')) end
    call('DEL', k('taken', dead))
    local left = call('SPOP', k('of', dead), limit)
    for _, key in ipairs(left) do
      if field(key, 'seq') then
        call('HSET', k('call', key), 'reason', 'process_lost')
        lose(key, 'process_lost')
      end
    end
    if #left < limit then
      call('DEL', k('of', dead), k('last', dead))
      call('ZREM', base .. 'alive', dead)
    end
  end
end
for _, key in ipairs(call('ZRANGE', base .. 'left', 0, limit - 1)) do
  take(key, field(key, 'seq'))
  call('ZREM', base .. 'left', key)
end
for _, key in ipairs(call('ZRANGEBYSCORE', base .. 'due', '-inf', now, 'LIMIT', 0, limit)) do
  local reason = field(key, 'reason')
  if reason then lose(key, reason) else call('ZREM', base .. 'due', key) end
end
for _, key in ipairs(call('ZRANGEBYSCORE', base .. 'past', '-inf', now, 'LIMIT', 0, limit)) do
  call('ZREM', base .. 'past', key)
  forget(key)
end
local judged = {}
for index, key in ipairs(call('ZRANGE', mine, 0, limit - 1)) do judged[index] = {key, shown(key)} end
return judged
"""
)
"""process, now, seconds and number of past calls kept, seconds of silence after which a process counts as dead (empty:
none does), how many at once → key and call of each judgement that the process is to report."""

REPORTED: Final = """
for index = 2, #ARGV do redis.call('ZREM', KEYS[1] .. ':taken:' .. ARGV[1], ARGV[index]) end
"""
"""process, keys."""

RELEASE: Final = (
    _COMMON
    + """
local process, limit = ARGV[1], tonumber(ARGV[2])
local left = call('SPOP', k('of', process), limit)
for _, key in ipairs(left) do call('HSET', k('call', key), 'process', '') end
if #left == limit then return 1 end
for _, key in ipairs(call('ZRANGE', k('taken', process), 0, -1)) do zadd(base .. 'left', 0, key) end
call('DEL', k('taken', process), k('last', process))
call('ZREM', base .. 'alive', process)
return 0
"""
)
"""process, how many at once → whether there is more."""
