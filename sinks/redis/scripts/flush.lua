-- One chunk of a flush: see doc.go. Nothing that a record holds is ever script
-- text. After the first write nothing may raise an error, since a script that
-- ends early keeps what it wrote: every command goes through pcall, and what is
-- not a record is checked before.
--
-- KEYS: mark, audit list, dead letter stream
-- ARGV: nonce, fence, owner, session, chain, partial chain, done, flush id,
--       tolerated, records, dead, audit rows, time, items, long items...
-- The items are a MessagePack array. A long one comes behind it, in the order of
-- the values true that stand for them:
--   B index checkpoint batch chain        the batch that follows
--   C count argc args...                  count records of one command each
--   T count argc form args...             the same, all of one form: argc arguments, with
--                                         false for those that come with each record
--   S count (key value)...                count records of SET key value
--   M count (argc args...)...             one record of count commands
--   D field code reason record            a record already known as bad
--   E head audit                          the batch ends
local ITEMS = 14
local nonce, call, type, unpack = ARGV[1], redis.pcall, type, unpack

local m = call('HMGET', KEYS[1], 'f', 'o', 's', 'c', 'b', 'd', 'u', 'y', 'z', 'k', 'r', 'p', 'w', 'a')
if m.err then return {nonce, 'ledger', KEYS[1], m.err} end
if not m[1] then return {nonce, 'missing'} end
local fence, mine = tonumber(m[1]), tonumber(ARGV[2])
if fence > mine or fence == mine and m[2] ~= ARGV[3] then return {nonce, 'fenced', m[1]} end
if fence < mine then return {nonce, 'behind', m[1]} end
if m[3] ~= ARGV[4] then return {nonce, 'stale'} end
if m[13] ~= m[14] then return {nonce, 'torn', KEYS[1], m[13]} end
if m[4] ~= ARGV[5] or m[5] ~= ARGV[6] or m[6] ~= ARGV[7] then return {nonce, 'moved'} end

for i, want in ipairs({'list', 'stream'}) do
  local t = call('TYPE', KEYS[i + 1])
  if t.err then return {nonce, 'ledger', KEYS[i + 1], t.err} end
  if t.ok ~= 'none' and t.ok ~= want then return {nonce, 'ledger', KEYS[i + 1], 'WRONGTYPE ' .. t.ok} end
end
local started = call('TIME')
if started.err then return {nonce, 'refused', started.err} end
local items, long = cmsgpack.unpack(ARGV[ITEMS]), ITEMS
for i = 1, #ARGV > ITEMS and #items or 0 do
  if items[i] == true then
    long = long + 1
    items[i] = ARGV[long]
  end
end
-- The first write: a server that takes no writes says so here, before any record.
local w = call('HINCRBY', KEYS[1], 'w', 1)
if type(w) == 'table' then return {nonce, 'refused', w.err} end

local chain, head = m[4], nil
local part, pinned = m[12], m[5]         -- the batch in progress, its chain if the mark shows it
local done, applied = tonumber(m[6]), tonumber(m[7])
local bad, nbad = m[8], tonumber(m[9])
local used, room = 0, tonumber(ARGV[9])
if m[10] == ARGV[8] then used = tonumber(m[11]) end
local records, dead = tonumber(ARGV[10]) - used, tonumber(ARGV[11]) + used
local keep, at = tonumber(ARGV[12]), ARGV[13]
local index, checkpoint, batch, id = -1, '', part, pinned
local rejects, ended = {}, false

-- Errors that are about the server, not about the record.
local server = {OOM=1, READONLY=1, MISCONF=1, NOREPLICAS=1, NOPERM=1, NOAUTH=1, MASTERDOWN=1, LOADING=1, BUSY=1,
  TRYAGAIN=1, CLUSTERDOWN=1, MOVED=1, ASK=1, UNKILLABLE=1}
local function tolerated(err)
  if used >= room or server[string.match(err, '^%-?(%u+)')] then return false end
  return not string.find(err, 'non local key', 1, true) and not string.find(err, 'user executing the script', 1, true)
end

local function letter(n, field, code, reason, record)
  local r = call('XADD', KEYS[3], '*', 'checkpoint', checkpoint, 'number', done, 'applied', n, 'field', field, 'code', code,
    'reason', reason, 'record', record)
  if type(r) == 'table' and r.err then return r.err end
  bad = bad == '' and tostring(done) or bad .. ',' .. done
  nbad, dead = nbad + 1, dead + 1
end

local function save(err)
  local shown = done > 0 or applied > 0 or pinned ~= ''
  local set = {'c', chain, 'b', shown and id or '', 'p', shown and batch or '', 'd', done, 'u', applied,
    'y', bad, 'z', nbad, 'n', records, 'x', dead, 'r', used, 'e', err, 't', at,
    'k', ARGV[8], 'a', string.format('%.0f', w)}
  if head then set[#set + 1] = 'h'; set[#set + 1] = head end
  redis.call('HSET', KEYS[1], unpack(set))
  if ended and keep > 0 then call('LTRIM', KEYS[2], -keep, -1) end
end

local function micros()
  local t = redis.call('TIME')
  return (t[1] - started[1]) * 1000000 + t[2] - started[2]
end

local function stop(err)
  save(err)
  return {nonce, 'stop', micros(), rejects, index, done, applied, err}
end

local function uvarint(n)
  local s = ''
  while n >= 128 do s = s .. string.char(n % 128 + 128); n = math.floor(n / 128) end
  return s .. string.char(n)
end

-- The wire form of a command, argc arguments of t from i on, for the dead letters.
local function wire(t, i, argc)
  local w = {uvarint(argc)}
  for j = i, i + argc - 1 do w[#w + 1] = uvarint(#t[j]); w[#w + 1] = t[j] end
  return table.concat(w)
end

local function reject(err, record)
  local lost = letter(applied, '', string.match(err, '^%-?(%u*)') or '', err, '\1' .. record)
  if lost then return lost end
  used = used + 1
  rejects[#rejects + 1] = {index, done, err}
end

-- What to stop at after the only command of a record has failed; nothing if it is a
-- dead letter now.
local function fatal(err, t, i, argc)
  if not tolerated(err) then return err end
  return reject(err, '\1' .. wire(t, i, argc))
end

-- Most answers, to be found out faster than by their type.
local fine = {[0] = true, true}

local i, top = 1, #items
while i <= top do
  local op = items[i]
  if op == 'C' then
    local count, argc = items[i + 1], items[i + 2]
    i = i + 3
    for _ = 1, count do
      local r = call(unpack(items, i, i + argc - 1))
      if fine[r] or type(r) ~= 'table' or not r.err then
        records = records + 1
      else
        local err = fatal(r.err, items, i, argc)
        if err then return stop(err) end
      end
      done, i = done + 1, i + argc
    end
  elseif op == 'T' then
    local count, argc = items[i + 1], items[i + 2]
    local cmd, place, n = {}, {}, 0
    for j = 1, argc do
      cmd[j] = items[i + 2 + j]
      if not cmd[j] then n = n + 1; place[n] = j end
    end
    i = i + 3 + argc
    for _ = 1, count do
      for j = 1, n do cmd[place[j]] = items[i + j - 1] end
      local r = call(unpack(cmd, 1, argc))
      if fine[r] or type(r) ~= 'table' or not r.err then
        records = records + 1
      else
        local err = fatal(r.err, cmd, 1, argc)
        if err then return stop(err) end
      end
      done, i = done + 1, i + n
    end
  elseif op == 'S' then
    local left = items[i + 1]
    i = i + 2
    while left > 0 do
      -- MSET either does all of it or nothing, and fails for no key's sake.
      local n = math.min(left, 500)
      local r = call('MSET', unpack(items, i, i + 2 * n - 1))
      if r.err then
        n = 1
        r = call('SET', items[i], items[i + 1])
        if r.err then return stop(r.err) end
      end
      records, done, left, i = records + n, done + n, left - n, i + 2 * n
    end
  elseif op == 'M' then
    local count, body, failed = items[i + 1], {}, nil
    i = i + 2
    local skip = applied
    for j = 1, count do
      local argc = items[i]
      if not failed and j > skip then
        local r = call(unpack(items, i + 1, i + argc))
        if type(r) == 'table' and r.err then
          if not tolerated(r.err) then return stop(r.err) end
          failed = r.err
        else
          applied = j
        end
      end
      if room > 0 then body[j] = wire(items, i + 1, argc) end
      i = i + argc + 1
    end
    local lost = failed and reject(failed, uvarint(count) .. table.concat(body))
    if lost then return stop(lost) end
    if not failed then records = records + 1 end
    done, applied = done + 1, 0
  elseif op == 'D' then
    local lost = letter(applied, items[i + 1], items[i + 2], items[i + 3], items[i + 4])
    if lost then return stop(lost) end
    done, applied, i = done + 1, 0, i + 5
  elseif op == 'B' then
    index, checkpoint, batch, id = items[i + 1], items[i + 2], items[i + 3], items[i + 4]
    i = i + 5
  else
    local r = keep > 0 and call('RPUSH', KEYS[2], nbad .. ':' .. items[i + 2])
    if type(r) == 'table' then return stop(r.err) end
    head, chain, ended = items[i + 1], id, true
    done, applied, bad, nbad, pinned, batch, id = 0, 0, '', 0, '', '', ''
    i = i + 3
  end
end
save('')
return {nonce, 'ok', micros(), rejects}
