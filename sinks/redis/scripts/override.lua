-- Moves the mark on an operator's word: no record is written. The rules for errors
-- are those of flush.lua.
--
-- KEYS: mark, audit list
-- ARGV: nonce, fence, owner, session, chain, partial chain, done, time,
--       next chain, head, records, dead, audit rows, row (empty: none), 1 if the row
--       does not follow those that are there, which go
local nonce, call = ARGV[1], redis.pcall
local m = call('HMGET', KEYS[1], 'f', 'o', 's', 'c', 'b', 'd', 'w', 'a')
if m.err then return {nonce, 'ledger', KEYS[1], m.err} end
if not m[1] then return {nonce, 'missing'} end
local fence, mine = tonumber(m[1]), tonumber(ARGV[2])
if fence > mine or fence == mine and m[2] ~= ARGV[3] then return {nonce, 'fenced', m[1]} end
if fence < mine then return {nonce, 'behind', m[1]} end
if m[3] ~= ARGV[4] then return {nonce, 'stale'} end
if m[7] ~= m[8] then return {nonce, 'torn', KEYS[1], m[7]} end
if m[4] ~= ARGV[5] or m[5] ~= ARGV[6] or m[6] ~= ARGV[7] then return {nonce, 'moved'} end
local t = call('TYPE', KEYS[2])
if t.err then return {nonce, 'ledger', KEYS[2], t.err} end
if t.ok ~= 'none' and t.ok ~= 'list' then return {nonce, 'ledger', KEYS[2], 'WRONGTYPE ' .. t.ok} end

local r = call('HSET', KEYS[1], 'c', ARGV[9], 'h', ARGV[10], 'b', '', 'p', '', 'd', 0, 'u', 0, 'y', '', 'z', 0,
  'n', ARGV[11], 'x', ARGV[12], 'k', nonce, 'r', 0, 'e', '', 'i', '', 't', ARGV[8])
if type(r) == 'table' then return {nonce, 'refused', r.err} end
local keep = tonumber(ARGV[13])
if ARGV[14] ~= '' and keep > 0 then
  if ARGV[15] == '1' then call('DEL', KEYS[2]) end
  call('RPUSH', KEYS[2], ARGV[14])
  call('LTRIM', KEYS[2], -keep, -1)
end
return {nonce, 'ok'}
