-- The steps of the home mark of a lane in a cluster. The rules for errors are
-- those of flush.lua.
--
-- KEYS: mark, audit list, dead letter stream, slot table
-- ARGV: nonce, fence, owner, session, chain, partial chain, done, step, time, then
--   open  seq chain batch slots           names the slots of a batch before they are touched
--   close done records dead count (number field code reason record)... checkpoint seq
--         keep head audit error (slot entry)...   moves on; head is empty if the batch goes on
--   heal  chain head records dead rows chains (slot entry)...   goes back to an earlier batch
local nonce, call, step, at = ARGV[1], redis.pcall, ARGV[8], ARGV[9]

local m = call('HMGET', KEYS[1], 'f', 'o', 's', 'c', 'b', 'd', 'g', 'p', 'y', 'z')
if m.err then return {nonce, 'ledger', KEYS[1], m.err} end
if not m[1] then return {nonce, 'missing'} end
local fence, mine = tonumber(m[1]), tonumber(ARGV[2])
if fence > mine or fence == mine and m[2] ~= ARGV[3] then return {nonce, 'fenced', m[1]} end
if fence < mine then return {nonce, 'behind', m[1]} end
if m[3] ~= ARGV[4] then return {nonce, 'stale'} end
if m[4] ~= ARGV[5] or m[5] ~= ARGV[6] or m[6] ~= ARGV[7] then return {nonce, 'moved'} end
for i, want in ipairs({'list', 'stream', 'hash'}) do
  local t = call('TYPE', KEYS[i + 1])
  if t.err then return {nonce, 'ledger', KEYS[i + 1], t.err} end
  if t.ok ~= 'none' and t.ok ~= want then return {nonce, 'ledger', KEYS[i + 1], 'WRONGTYPE ' .. t.ok} end
end

local function set(...)
  local r = call('HSET', KEYS[1], 't', at, ...)
  return type(r) == 'table' and r.err
end

if step == 'open' then
  local known = m[7] or ''
  if string.find(known, ' ' .. ARGV[10] .. ':', 1, true) and
     not string.find(known, ' ' .. ARGV[10] .. ':' .. ARGV[11] .. ' ', 1, true) then
    return {nonce, 'differs', ARGV[10]}
  end
  local err = set('p', ARGV[12], 'b', ARGV[11], 'i', ARGV[13])
  if err then return {nonce, 'refused', err} end
  return {nonce, 'ok'}
end

-- Writes the slot table from ARGV[i] on.
local function table_from(i)
  while i < #ARGV do
    local j = math.min(i + 1999, #ARGV)
    local r = call('HSET', KEYS[4], unpack(ARGV, i, j))
    if type(r) == 'table' then return r.err end
    i = j + 1
  end
end

if step == 'heal' then
  local err = set('e', 'a shard lost its last writes')
  if err then return {nonce, 'refused', err} end
  err = table_from(16)
  if err then return {nonce, 'ledger', KEYS[4], err} end
  set('c', ARGV[10], 'h', ARGV[11], 'n', ARGV[12], 'x', ARGV[13], 'g', ARGV[15], 'b', '', 'p', '', 'd', 0, 'u', 0, 'y', '',
    'z', 0)
  local rows = tonumber(ARGV[14])
  if rows > 0 then call('LTRIM', KEYS[2], 0, -rows - 1) end
  return {nonce, 'ok'}
end

local done, count, i = tonumber(ARGV[10]), tonumber(ARGV[13]), 14
local bad, nbad = m[9], tonumber(m[10])
local checkpoint, seq = ARGV[i + 5 * count], ARGV[i + 5 * count + 1]
local err = set('k', nonce)
if err then return {nonce, 'refused', err} end
for _ = 1, count do
  local id = seq .. '-' .. (ARGV[i] + 1)
  local there = call('XRANGE', KEYS[3], id, id)
  if there.err then return {nonce, 'ledger', KEYS[3], there.err} end
  if #there == 0 then
    local r = call('XADD', KEYS[3], id, 'checkpoint', checkpoint, 'number', ARGV[i], 'field', ARGV[i + 1], 'code',
      ARGV[i + 2], 'reason', ARGV[i + 3], 'record', ARGV[i + 4])
    if type(r) == 'table' and r.err then return {nonce, 'ledger', KEYS[3], r.err} end
  end
  bad = bad == '' and ARGV[i] or bad .. ',' .. ARGV[i]
  nbad, i = nbad + 1, i + 5
end
local keep, head, row, why = tonumber(ARGV[i + 2]), ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
err = table_from(i + 6)
if err then return {nonce, 'ledger', KEYS[4], err} end
if head == '' then
  set('d', done, 'n', ARGV[11], 'x', ARGV[12], 'y', bad, 'z', nbad, 'e', why)
  return {nonce, 'ok'}
end
if keep > 0 then
  local r = call('RPUSH', KEYS[2], nbad .. ':' .. row)
  if type(r) == 'table' then return {nonce, 'ledger', KEYS[2], r.err} end
  call('LTRIM', KEYS[2], -keep, -1)
end
set('c', m[5], 'h', head, 'b', '', 'p', '', 'd', 0, 'u', 0, 'y', '', 'z', 0, 'n', ARGV[11], 'x', ARGV[12], 'i', '', 'e', why)
return {nonce, 'ok'}
