-- One chunk of a batch in one slot of a cluster; without items it only fences the
-- slot. The rules for errors are those of flush.lua. Progress is a coordinate in
-- the lane, batch and record, so that a record that comes again is passed over,
-- however the batch is cut this time.
--
-- KEYS: slot mark, and every key that the items touch
-- ARGV: nonce, fence, owner, session, batch, chain of the batch, batch and record
--       that the slot must have reached, then items from FIRST on:
--   number count (argc args...)...        a record of count commands
local FIRST = 9
local nonce, call = ARGV[1], redis.pcall
local mine, seq = tonumber(ARGV[2]), tonumber(ARGV[5])

local m = call('HMGET', KEYS[1], 'f', 'o', 's', 'q', 'd', 'u', 'c', 'w', 'a')
if m.err then return {nonce, 'ledger', KEYS[1], m.err} end
local fence = tonumber(m[1] or 0)
if fence > mine or fence == mine and m[2] ~= ARGV[3] then return {nonce, 'slot fenced', m[1]} end
if fence == mine and tonumber(m[3]) > tonumber(ARGV[4]) then return {nonce, 'stale'} end
if m[8] ~= m[9] then return {nonce, 'torn', KEYS[1], m[8]} end
local q, d, u = tonumber(m[4] or 0), tonumber(m[5] or 0), tonumber(m[6] or 0)
local needed = tonumber(ARGV[7])
if q < needed or q == needed and d < tonumber(ARGV[8]) then return {nonce, 'lost', q, d} end
if seq > 0 and q == seq and m[7] ~= ARGV[6] then return {nonce, 'differs', q} end

local started = call('TIME')
if started.err then return {nonce, 'refused', started.err} end
local w = call('HINCRBY', KEYS[1], 'w', 1)
if type(w) == 'table' then return {nonce, 'refused', w.err} end
local chain = m[7] or ''

local function finish(status, ...)
  redis.call('HSET', KEYS[1], 'f', ARGV[2], 'o', ARGV[3], 's', ARGV[4], 'q', q, 'd', d, 'u', u, 'c', chain,
    'a', string.format('%.0f', w))
  local t = redis.call('TIME')
  return {nonce, status, (t[1] - started[1]) * 1000000 + t[2] - started[2], ...}
end

local i, top = FIRST, #ARGV
while i <= top do
  local number, count = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local known = q > seq or q == seq and number < d
  i = i + 2
  if not known then
    if q ~= seq or number ~= d then q, d, u = seq, number, 0 end
    chain = ARGV[6]
  end
  local skip = u
  for j = 1, count do
    local argc = tonumber(ARGV[i])
    if not known and j > skip then
      local r = call(unpack(ARGV, i + 1, i + argc))
      if type(r) == 'table' and r.err then return finish('stop', number, u, r.err) end
      u = j
    end
    i = i + argc + 1
  end
  if not known then d, u = number + 1, 0 end
end
return finish('ok', q, d)
