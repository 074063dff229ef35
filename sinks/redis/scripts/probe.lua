-- Tries what the ledger needs, on keys of its own that are gone when it ends.
--
-- KEYS: hash, list, stream, set
-- ARGV: nonce
local failed = {}
local function try(name, ...)
  local r = redis.pcall(name, ...)
  if type(r) == 'table' and r.err then failed[#failed + 1] = name .. ': ' .. r.err end
end
local function clear() try('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4]) end
-- What could not be removed is not made. To ask is better than to try, where that can
-- be done: after a DEL the server no longer says that it has no room.
if not redis.acl_check_cmd then
  clear()
elseif not redis.acl_check_cmd('DEL', KEYS[1]) then
  failed[1] = 'DEL: NOPERM'
end
if failed[1] then return {ARGV[1], 'ok', failed} end
try('TIME')
try('HSET', KEYS[1], 'v', '1')
try('HINCRBY', KEYS[1], 'w', 1)
try('HMGET', KEYS[1], 'v')
try('HGETALL', KEYS[1])
try('PERSIST', KEYS[1])
try('RPUSH', KEYS[2], 'x')
try('LTRIM', KEYS[2], -1, -1)
try('TYPE', KEYS[2])
try('XADD', KEYS[3], '*', 'x', 'y')
try('SADD', KEYS[4], 'x')
clear()
return {ARGV[1], 'ok', failed}
