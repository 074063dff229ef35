-- One chunk of a flush: see doc.go. Nothing that a record holds is ever script
-- text. After the first write nothing may raise an error, since a script that
-- ends early keeps what it wrote: every command goes through pcall, and what is
-- not a record is checked before.
--
-- KEYS: mark, audit list, dead letter stream
-- ARGV: nonce, fence, owner, session, chain, partial chain, done, flush id,
--       tolerated, records, dead, audit rows, time, items, long items...
-- The items are MessagePack values. A long one comes behind them, in the order of the
-- values true that stand for them. The letters are never long:
--   B index checkpoint batch chain        the batch that follows
--   C count longs argc args...            count records of one command each, with longs
--                                         long items in all
--   H count longs argc name fields... (key values...)...
--                                         the same, all with this name and these fields,
--                                         as in: name key field value field value
--   S count longs (key value)...          count records of SET key value
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
-- take returns where the items behind it begin, and then n items.
local pack, take = ARGV[ITEMS], cmsgpack.unpack_limit
local pos, op = take(pack, 1, 0)
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

-- The wire form of a command, for the dead letters.
local function wire(args)
  local w = {uvarint(#args)}
  for _, a in ipairs(args) do w[#w + 1] = uvarint(#a); w[#w + 1] = a end
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
local function fatal(err, args)
  if not tolerated(err) then return err end
  return reject(err, '\1' .. wire(args))
end

-- What follows reads the items from pos on, which is negative when there are no more.
local long = ITEMS -- the last long item that was read

local function list(next, ...)
  pos = next
  return {...}
end

-- The next n items, with the long ones.
local function read(n)
  local t = list(take(pack, n, pos))
  for j = 1, n do
    if t[j] == true then
      long = long + 1
      t[j] = ARGV[long]
    end
  end
  return t
end

-- What take returns goes straight into the call where nothing of it is long: a table
-- of arguments takes longer to fill and to read than all else that is done here.
local apply = call
local function command(next, ...) pos = next; return apply(...) end
local function mset(next, ...) pos = next; return apply('MSET', ...) end
local series = {
  [3] = function(c, f) return function(o, k) pos = o; return apply(c, k, f) end end,
  [4] = function(c, f) return function(o, k, v) pos = o; return apply(c, k, f, v) end end,
  [6] = function(c, f, g) return function(o, k, v, w) pos = o; return apply(c, k, f, v, g, w) end end,
  [8] = function(c, f, g, h) return function(o, k, v, w, x) pos = o; return apply(c, k, f, v, g, w, h, x) end end,
  [10] = function(c, f, g, h, i)
    return function(o, k, v, w, x, y) pos = o; return apply(c, k, f, v, g, w, h, x, i, y) end
  end,
  [12] = function(c, f, g, h, i, j)
    return function(o, k, v, w, x, y, z) pos = o; return apply(c, k, f, v, g, w, h, x, i, y, j, z) end
  end,
}

-- The arguments of one command of a series.
local function mixed(form, values)
  local args = {}
  for j, f in ipairs(form) do args[2 * j - 1] = f; args[2 * j] = values[j] end
  return args
end

-- Most answers, to be found out faster than by their type.
local fine = {[0] = true, true}

while op do
  if op == 'C' or op == 'H' then
    local count, longs, argc, n, form, quick
    pos, count, longs, argc = take(pack, 3, pos)
    if op == 'C' then
      n, quick = argc, command
    else
      n = math.floor(argc / 2)
      form = read(argc - n)
      quick = series[argc](unpack(form))
    end
    local function args()
      local values = read(n)
      return form and mixed(form, values) or values
    end
    for _ = 1, count do
      local was, full, r = pos, nil, nil
      if longs == 0 then
        r = quick(take(pack, n, pos))
      else
        full = args()
        r = apply(unpack(full))
      end
      if fine[r] or type(r) ~= 'table' or not r.err then
        records = records + 1
      else
        if not full then
          pos = was
          full = args()
        end
        local err = fatal(r.err, full)
        if err then return stop(err) end
      end
      done = done + 1
    end
  elseif op == 'S' then
    local left, longs, most = nil, nil, 500
    pos, left, longs = take(pack, 2, pos)
    while left > 0 do
      -- MSET either does all of it or nothing, and fails for no key's sake.
      local n, was, first, r = math.min(left, most), pos, long, nil
      if longs == 0 then
        r = mset(take(pack, 2 * n, pos))
      else
        r = apply('MSET', unpack(read(2 * n)))
      end
      if r.err then
        n, most, pos, long = 1, 1, was, first
        r = apply('SET', unpack(read(2)))
        if r.err then return stop(r.err) end
      end
      records, done, left = records + n, done + n, left - n
    end
  elseif op == 'M' then
    local count, argc, body, failed = nil, nil, {}, nil
    pos, count = take(pack, 1, pos)
    local skip = applied
    for j = 1, count do
      pos, argc = take(pack, 1, pos)
      local args = read(argc)
      if not failed and j > skip then
        local r = apply(unpack(args))
        if type(r) == 'table' and r.err then
          if not tolerated(r.err) then return stop(r.err) end
          failed = r.err
        else
          applied = j
        end
      end
      if room > 0 then body[j] = wire(args) end
    end
    local lost = failed and reject(failed, uvarint(count) .. table.concat(body))
    if lost then return stop(lost) end
    if not failed then records = records + 1 end
    done, applied = done + 1, 0
  elseif op == 'D' then
    local lost = letter(applied, unpack(read(4)))
    if lost then return stop(lost) end
    done, applied = done + 1, 0
  elseif op == 'B' then
    index, checkpoint, batch, id = unpack(read(4))
  else
    local t = read(2)
    local r = keep > 0 and call('RPUSH', KEYS[2], nbad .. ':' .. t[2])
    if type(r) == 'table' then return stop(r.err) end
    head, chain, ended = t[1], id, true
    done, applied, bad, nbad, pinned, batch, id = 0, 0, '', 0, '', '', ''
  end
  if pos < 0 then break end
  pos, op = take(pack, 1, pos)
end
save('')
return {nonce, 'ok', micros(), rejects}
