-- session.lua holds what the transitions of a session share: it reads the record, ends it when its time
-- is over, and judges what several of them judge. It says in Lua what the package
-- statestore/internal/rules says in Go; storetest holds the two to the same answers.
--
-- KEYS  1 record  2 tombstone  3 open tail  4 log  5 placements  6 parked writes
--       7 due  8 index  9 fences  10 staged writes   (7 to 10 of the whole partition)
-- ARGV  1 ms added to the clock (0 outside tests)  2 channel of the feed  3 digest  4 pool  5 call
--
-- A call is a random number of the caller's. The change it made is remembered with it, so that a call
-- which is sent again, because no answer came, is answered and not judged again.
--
-- A transition judges first and writes last: what it returns before save() has changed nothing.

-- Of the session that the call under way is about:
local recordKey, tombKey, openKey, logKey, placedKey, parkedKey, dueKey, indexKey, fenceKey, stagedKey
local channel, digest, pool, call

-- session registers a transition of a session.
local function session(name, flags, run)
  register(name, flags, function()
    recordKey, tombKey, openKey, logKey, placedKey, parkedKey, dueKey, indexKey, fenceKey, stagedKey = unpack(KEYS)
    channel, digest, pool, call = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
    return run()
  end)
end

-- The record is one packed string. These are its places in the table that stands for it; codec.go reads
-- the same. BORN and REWRITTEN stand first, where a load can read them alone.
local FORMAT, BORN, REWRITTEN, EXPIRES, AFFINITY, CREATED, LASTTURN, BOUND = 1, 2, 3, 4, 5, 6, 7, 8
local EPOCH, VERSION, TURNS, BYTES, TOKENS, CHAIN, AFFINITYKEY = 9, 10, 11, 12, 13, 14, 15
local BEFORE, BEFOREWHY, LOSTEPOCH, LOSTWANT, TAILEPOCH = 16, 17, 18, 19, 20
local PLANUNTIL, PLANTOKEN = 21, 22
local TOMBLIFE, KEEP, DUE, LASTCALL, PARKED = 23, 24, 25, 26, 27
local ENTRIES, PIECES, STREAM, SINCE, SEQ = 28, 29, 30, 31, 32
local OWNER, TAIL, PLANJOB, PLANTARGET, NAMES, CHANGES, OPS = 33, 34, 35, 36, 37, 38, 39
local LAYOUT = '>BI6I6I6I6I6I6I6' .. 'I6I6I6I6c8c20c16' .. 'I6BI6I8I6' .. 'I6I8' .. 'I6I6I6c8B' .. 'I4I4I6I4I4' ..
  'I2c0I2c0I2c0I2c0I2c0I2c0'

local CREATED_BY_APPEND, REPORTED, CLAIMED, REPLACED, LOST, MOVED, DETACHED, FINISHED = 1, 2, 3, 4, 5, 6, 7, 8
local EXPIRED, DELETED = 1, 2
local OP, OPS_REMEMBERED, CHANGES_REMEMBERED = 27, 32, 16 -- an op: c8 op, c16 content, I3 kept
local NOTHING8 = '\0\0\0\0\0\0\0\0'

local function encode(r)
  return struct.pack(LAYOUT,
    r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15], r[16], r[17], r[18],
    r[19], r[20], r[21], r[22], r[23], r[24], r[25], r[26], r[27], r[28], r[29], r[30], r[31], r[32],
    #r[OWNER], r[OWNER], #r[TAIL], r[TAIL], #r[PLANJOB], r[PLANJOB], #r[PLANTARGET], r[PLANTARGET],
    #r[NAMES], r[NAMES], #r[CHANGES], r[CHANGES]) .. r[OPS]
end

-- fresh is a record of nothing, made over the tombstone t.
local function fresh(t, names, key)
  return {
    1, 0, 0, 0, 0, now, 0, 0,
    t.epoch, 0, 0, 0, NOTHING8, string.rep('\0', 20), key,
    t.epoch, t.why, 0, 0, 0,
    0, 0,
    0, 0, 0, NOTHING8, 0,
    0, 0, 0, 0, 0,
    '', '', '', '', names, '', '',
  }
end

-- owners are written as instance NUL incarnation; nobody is ''.
local function instance_of(owner) return string.match(owner, '^[^%z]*') end
local function indexed(owner) return pool .. '\0' .. instance_of(owner) .. '\0' .. digest end
local function is_fenced(owner) return redis.call('HEXISTS', fenceKey, 'i' .. pool .. '\0' .. owner) == 1 end

local function publish(epoch) redis.call('PUBLISH', channel, struct.pack('>Bc16I8', 1, digest, epoch)) end

-- bury ends the session: nothing of it stays but the tombstone.
local function bury(r, why, at, life)
  local t = { epoch = math.max(r[EPOCH] + 1, at), why = why, call = call }
  redis.call('UNLINK', recordKey, openKey, logKey, placedKey, parkedKey)
  redis.call('ZREM', dueKey, digest)
  redis.call('ZREM', indexKey, indexed(r.found or r[OWNER]))
  if life > 0 then
    redis.call('SET', tombKey, struct.pack('>BI6BI6c8', 1, t.epoch, why, now + life, call), 'PX', life)
  end
  publish(t.epoch)
  return t
end

-- find returns the record, or nil, and the tombstone, which is zero where there is none.
local function find()
  local stored = redis.call('GET', recordKey)
  if stored then
    local r = { struct.unpack(LAYOUT, stored) }
    r[OPS] = string.sub(stored, r[OPS])
    r.stored, r.found = stored, r[OWNER]
    -- A sweep knows sessions by their digests alone.
    if pool == '' then pool = select(2, struct.unpack('>I2c0I2c0', r[NAMES])) end
    if now < r[EXPIRES] then return r, { epoch = 0, why = 0 } end
    return nil, bury(r, EXPIRED, r[EXPIRES], r[TOMBLIFE])
  end
  stored = redis.call('GET', tombKey)
  if stored then
    local _, epoch, why, till, by = struct.unpack('>BI6BI6c8', stored)
    if now < till then return nil, { epoch = epoch, why = why, call = by } end
  end
  return nil, { epoch = 0, why = 0 }
end

-- touch makes all keys of the session end together. Their time is a backstop, a little longer than
-- needed, so that not every write touches every key; what ends a session is EXPIRES.
local function touch(r, need)
  r[KEEP] = need + math.max(60000, math.floor((need - now) / 8))
  for _, key in ipairs({ openKey, logKey, placedKey, parkedKey }) do redis.call('PEXPIREAT', key, r[KEEP]) end
end

-- save writes the record and what follows from it. r.touch: a key of the session was made.
local function save(r)
  local need = r[EXPIRES] + r[TOMBLIFE]
  if r.touch or r[KEEP] < need then touch(r, need) end
  if r[DUE] == 0 or r[EXPIRES] < r[DUE] then
    -- An entry may be early, never late: the sweeper files it again.
    r[DUE] = r[EXPIRES]
    redis.call('ZADD', dueKey, r[DUE], digest)
  end
  redis.call('SET', recordKey, encode(r), 'PXAT', r[KEEP])
  if r.found and instance_of(r.found) ~= instance_of(r[OWNER]) then redis.call('ZREM', indexKey, indexed(r.found)) end
  if r.rebound then
    redis.call('ZADD', indexKey, 0, indexed(r[OWNER]))
    publish(r[EPOCH])
  end
  if not r.stored then redis.call('DEL', tombKey) end
end

-- again writes the record as it stands, so that WAIT covers what a call of before wrote.
local function again(r) redis.call('SET', recordKey, r.stored, 'KEEPTTL') end

-- floors unpacks what a handle says: lists of epoch, version and op. The first is the handle's own.
local function floors(packed)
  local list = {}
  for i = 1, #packed, 24 do list[#list + 1] = { struct.unpack('>I8I8c8', packed, i) } end
  return list
end

-- changes unpacks the changes of owner: lists of epoch, version, time, reason and instance.
local function changes(r)
  local list, at = {}, 1
  while at <= #r[CHANGES] do
    local c = { struct.unpack('>I6I6I6BBc0', r[CHANGES], at) }
    at = c[6]
    list[#list + 1] = c
  end
  return list
end

local function pack_changes(list, first)
  local out = {}
  for i = first, #list do
    local c = list[i]
    out[#out + 1] = struct.pack('>I6I6I6BBc0', c[1], c[2], c[3], c[4], #c[5], c[5])
  end
  return table.concat(out)
end

-- rebind gives the record to owner at a new epoch.
local function rebind(r, owner, why)
  r[EPOCH] = math.max(r[EPOCH] + 1, now)
  r[OWNER], r[BOUND], r[LASTCALL], r.rebound = owner, now, call, true
  r[PLANUNTIL], r[PLANTOKEN], r[PLANJOB], r[PLANTARGET] = 0, 0, '', ''
  local list = changes(r)
  list[#list + 1] = { r[EPOCH], r[VERSION], now, why, instance_of(owner) }
  r[CHANGES] = pack_changes(list, math.max(1, #list - CHANGES_REMEMBERED + 1))
end

local function renew(r, affinity, retention, tombstone)
  r[AFFINITY], r[EXPIRES], r[TOMBLIFE] = now + affinity, now + retention, tombstone
end

-- reached judges a floor older than the remembered ops by its epoch.
local function reached(r, f)
  local list = changes(r)
  for i, c in ipairs(list) do
    if c[1] == f[1] then return i == #list or f[2] <= list[i + 1][2] end
  end
  return #list == 0 or f[1] < list[1][1]
end

-- holds reports whether the record continues the history that f was told of.
local function holds(r, f)
  if f[2] > r[VERSION] then return false end
  if f[2] == 0 then return true end
  -- One op a version, the newest last.
  local back, n = r[VERSION] - f[2], #r[OPS] / OP
  if back < n then
    local at = (n - 1 - back) * OP
    return string.sub(r[OPS], at + 1, at + 8) == f[3]
  end
  return reached(r, f)
end

-- check_lineage holds all floors against the record.
local function check_lineage(r, list)
  local want, forgiven = 0, false
  for _, f in ipairs(list) do
    if f[1] >= r[BEFORE] and not holds(r, f) then
      if r[LOSTEPOCH] > 0 and f[1] < r[LOSTEPOCH] and f[2] <= r[LOSTWANT] then
        forgiven = true
      else
        want = math.max(want, f[2])
      end
    end
  end
  if want > 0 then return { 'behind', r[VERSION], r[TURNS], want } end
  if forgiven then return { 'stale', r[OWNER], r[EPOCH] } end
end

-- check_ended refuses what was told of a life before this one, and, where there is no record, all but
-- what may begin a session. handle may be nil; have are the floors of the caller's copy.
local function check_ended(r, t, handle, have)
  local epoch, why = t.epoch, t.why
  if r then epoch, why = r[BEFORE], r[BEFOREWHY] end
  if handle and handle[1][1] < epoch then return { 'ended', why, epoch } end
  if r then return nil end
  local want = 0
  for _, list in ipairs({ have, handle or {} }) do
    for _, f in ipairs(list) do
      if f[1] >= epoch then want = math.max(want, f[2]) end
    end
  end
  if want > 0 then return { 'behind', 0, 0, want } end
  if handle and handle[1][1] > epoch then return { 'ended', EXPIRED, epoch } end
end

-- not_owner says who may write instead of by, and why.
local function not_owner(r, by)
  local why, list = 'failover', changes(r)
  if r[OWNER] == '' then
    why = 'unbound'
  elseif instance_of(r[OWNER]) == instance_of(by) and r[OWNER] ~= by then
    why = 'replaced'
  elseif #list > 0 and list[#list][4] == MOVED then
    why = 'moved'
  end
  return { 'not_owner', why, r[OWNER], r[EPOCH], 0 }
end

-- absent says how the session that is not here ended.
local function absent(t) return { 'ended', t.why == DELETED and DELETED or EXPIRED, t.epoch } end

-- named refuses a handle that does not name the record's present epoch.
local function named(r, t, handle)
  local no = check_ended(r, t, handle, {})
  if no then return no end
  if not r then return absent(t) end
  no = check_lineage(r, handle)
  if no then return no end
  if handle[1][1] ~= r[EPOCH] then return { 'stale', r[OWNER], r[EPOCH] } end
end

-- planned refuses a job that may not act on the record: it is gone, or another holder was seen.
local function planned(r, t, job, token)
  if not r then return absent(t) end
  local seen = tonumber(redis.call('HGET', fenceKey, 'j' .. job) or 0)
  if token < seen then return { 'held', job, '', seen } end
end

-- receipt says what the record is as of now.
local function receipt(r)
  return { 'ok', now, r[VERSION], r[EPOCH], r[TURNS], r[BYTES], r[OWNER], r[AFFINITY], string.sub(r[OPS], -OP, -OP + 7) }
end
