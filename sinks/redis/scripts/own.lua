-- Takes a lane over, or reads its mark for the handle that holds it.
--
-- KEYS: mark
-- ARGV: nonce, owner, fence (0: take over), settle (1: refuse what is in flight), genesis, time, seen (a fence to exceed)
local nonce, mine = ARGV[1], tonumber(ARGV[3])
local m = redis.pcall('HMGET', KEYS[1], 'v', 'f', 'o')
if m.err then return {nonce, 'ledger', KEYS[1], m.err} end
if m[1] and m[1] ~= '1' then return {nonce, 'format', m[1]} end
local fence = tonumber(m[2] or 0)
local set = {}
if mine == 0 then
  mine = math.max(fence, tonumber(ARGV[7])) + 1
elseif fence > mine or fence == mine and m[3] ~= ARGV[2] then
  return {nonce, 'fenced', m[2]}
elseif ARGV[7] ~= '0' then
  mine = math.max(mine, tonumber(ARGV[7]) + 1)
end
if not m[1] then
  set = {'v', '1', 's', '0', 'c', ARGV[5], 'h', '', 'b', '', 'p', '', 'd', '0', 'u', '0', 'y', '', 'z', '0', 'n', '0',
    'x', '0', 'k', '', 'r', '0', 'e', '', 't', ARGV[6]}
end
if fence ~= mine or m[3] ~= ARGV[2] then
  for _, v in ipairs({'f', string.format('%.0f', mine), 'o', ARGV[2]}) do set[#set + 1] = v end
end
if #set > 0 then
  local r = redis.pcall('HSET', KEYS[1], unpack(set))
  if type(r) == 'table' then return {nonce, 'refused', r.err} end
end
if ARGV[4] == '1' then
  local r = redis.pcall('HINCRBY', KEYS[1], 's', 1)
  if type(r) == 'table' then return {nonce, 'refused', r.err} end
end
redis.pcall('PERSIST', KEYS[1])
return {nonce, 'ok', redis.call('HGETALL', KEYS[1])}
