-- session.lua holds what the transitions of a session share: it reads the record, ends it when its time
-- is over, and judges what several of them judge. It says in Lua what the package
-- statestore/internal/rules says in Go; storetest holds the two to the same answers.
--
-- KEYS  1 record  2 tombstone  3 open tail  4 log  5 directory  6 placements  7 parked writes
--       8 due  9 index  10 fences  11 staged writes   (8 to 11 of the whole partition)
-- ARGV  1 see library.lua  2 '>c16 c8 I2c0 I2c0': digest, call, pool, channel of the feed
--
-- A call is a random number of the caller's. The change it made is remembered with it, so that a call
-- which is sent again, because no answer came, is answered and not judged again.
--
-- A transition judges first and writes last: what it returns before save() has changed nothing.
local recordKey, tombKey, openKey, logKey, dirKey, placedKey, parkedKey, dueKey, indexKey, fenceKey, stagedKey
local digest, call, pool, channel -- pool and channel once origin() was asked for them

-- The record is one packed string: numbers, a ring of the last ops, in which the op of version v has place
-- (v - 1) % OPS_REMEMBERED, and strings. So what an append changes stands in a row. r is the list of its numbers
-- and strings; names in capitals, as in r[EPOCH], are places in it, and r[OPS] and r[STRINGSAT] are where the
-- ring and the strings begin in the packed record. Lua has room for 200 names, so
-- library.go puts in the numbers of these. Tokens have 64 bits, in two halves. BORN and REWRITTEN stand first,
-- where a load can read them alone.
local NUMBERS = '>BI6I6I6I6I6I6I6I6I6I6I6I4I4c20c16I6BI6I8I6I6I8I6I6I6c8BI4I4I6I4I4'
local STRINGS = '>I2c0I2c0I2c0I2c0I2c0I2c0'

local CREATED_BY_APPEND, REPORTED, CLAIMED, REPLACED, LOST, MOVED, DETACHED, FINISHED = 1, 2, 3, 4, 5, 6, 7, 8
local EXPIRED, DELETED = 1, 2
local OP, OPS_REMEMBERED, CHANGES_REMEMBERED = 27, 32, 16 -- an op: c8 op, c16 content, I3 kept
local TOMBSTONE, FLOOR, CHANGE = '>BI6BI6c8', '>I8I8c8', '>I6I6I6BBc0'

-- stored is the record as it was found, nil when there was none, and found its owner. What save() has to do:
-- touched, when a key of the session was made; restrung, when a string of the record changed; rebound, when its
-- owner did; next_op is the op that this call adds. buried, when the session was ended and its keys are gone.
local stored, found, touched, restrung, rebound, next_op, buried

-- The transitions of a session by their names, for calls that run several.
local transition = {}

-- session registers a transition of a session.
local function session(name, flags, run)
  transition[name] = function()
    recordKey, tombKey, openKey, logKey, dirKey, placedKey, parkedKey, dueKey, indexKey, fenceKey, stagedKey = spread(KEYS)
    digest, call, pool, channel = sub(ARGV[2], 1, 16), sub(ARGV[2], 17, 24), nil, nil
    return run()
  end
  register(name, flags, transition[name])
end

-- origin unpacks what few calls need: the pool of the session and the channel of the feed.
local function origin()
  if not pool then pool, channel = unpack_at('>I2c0I2c0', ARGV[2], 25) end
end

local function pack_numbers(r)
  return pack(NUMBERS, r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15],
    r[16], r[17], r[18], r[19], r[20], r[21], r[22], r[23], r[24], r[25], r[26], r[27], r[28], r[29], r[30], r[31], r[32],
    r[33])
end

-- encode is the whole record, with the ring as it stands or with the next op.
local function encode(r)
  local ring = r[OPS] and sub(stored, r[OPS], r[STRINGSAT] - 1) or ''
  if next_op then
    local at = (r[VERSION] - 1) % OPS_REMEMBERED * OP
    ring = sub(ring, 1, at) .. next_op .. sub(ring, at + OP + 1)
  end
  return pack_numbers(r) .. ring .. pack(STRINGS, #r[OWNER], r[OWNER], #r[TAIL], r[TAIL], #r[PLANJOB], r[PLANJOB],
    #r[PLANTARGET], r[PLANTARGET], #r[NAMES], r[NAMES], #r[CHANGES], r[CHANGES])
end

-- decode is the inverse of encode.
local function decode(packed)
  local r = { unpack_at(NUMBERS, packed) }
  r[OPS] = r[OWNER] -- where unpack stopped
  r[STRINGSAT] = r[OPS] + min(r[VERSION], OPS_REMEMBERED) * OP
  r[OWNER], r[TAIL], r[PLANJOB], r[PLANTARGET], r[NAMES], r[CHANGES] = unpack_at(STRINGS, packed, r[STRINGSAT])
  return r
end

-- fresh is a record of nothing, made over the tombstone t.
local function fresh(t, names, key)
  return {
    1, 0, 0, 0, 0, now, 0, 0,
    t.epoch, 0, 0, 0, 0, 0, string.rep('\0', 20), key,
    t.epoch, t.why, 0, 0, 0, 0, 0,
    0, 0, 0, '\0\0\0\0\0\0\0\0', 0,
    0, 0, 0, 0, 0,
    '', '', '', '', names, '',
  }
end

-- owners are written as instance NUL incarnation; nobody is ''.
local function instance_of(owner) return string.match(owner, '^[^%z]*') end

local function indexed(owner)
  origin()
  return pool .. '\0' .. instance_of(owner) .. '\0' .. digest
end

local function is_fenced(owner)
  origin()
  return rcall('HEXISTS', fenceKey, 'i' .. pool .. '\0' .. owner) == 1
end

local function publish(epoch)
  origin()
  rcall('PUBLISH', channel, pack('>Bc16I8', 1, digest, epoch))
end

-- bury ends the session: nothing of it stays but the tombstone.
local function bury(r, why, at, life)
  local t = { epoch = max(r[EPOCH] + 1, at), why = why, call = call }
  rcall('UNLINK', recordKey, openKey, logKey, dirKey, placedKey, parkedKey)
  buried = true
  rcall('ZREM', dueKey, digest)
  rcall('ZREM', indexKey, indexed(found))
  if life > 0 then
    rcall('SET', tombKey, pack(TOMBSTONE, 1, t.epoch, why, now + life, call), 'PX', life)
  end
  publish(t.epoch)
  return t
end

local NO_TOMBSTONE = { epoch = 0, why = 0 }

-- find returns the record, or nil, and the tombstone, which is zero where there is none.
local function find()
  stored, found, touched, restrung, rebound, next_op, buried = rcall('GET', recordKey), nil, false, false, false, nil, false
  if stored then
    assert(sub(stored, 1, 1) == '\1', 'the record has a layout of another version')
    local r = decode(stored)
    found = r[OWNER]
    if now < r[EXPIRES] then return r, NO_TOMBSTONE end
    -- A sweep knows sessions by their digests alone.
    origin()
    if pool == '' then pool = select(2, unpack_at('>I2c0I2c0', r[NAMES])) end
    local t = bury(r, EXPIRED, r[EXPIRES], r[TOMBLIFE])
    stored, found = nil, nil
    return nil, t
  end
  stored = nil -- and not false
  local tomb = rcall('GET', tombKey)
  if not tomb then return nil, NO_TOMBSTONE end
  local _, epoch, why, till, by = unpack_at(TOMBSTONE, tomb)
  if now >= till then return nil, NO_TOMBSTONE end
  return nil, { epoch = epoch, why = why, call = by }
end

-- touch makes all keys of the session end together. Their time is a backstop, a little longer than
-- needed, so that not every write touches every key; what ends a session is EXPIRES.
local function touch(r, need)
  r[KEEP] = need + max(60000, floor((need - now) / 8))
  for _, key in ipairs({ recordKey, openKey, logKey, dirKey, placedKey, parkedKey }) do
    rcall('PEXPIREAT', key, r[KEEP])
  end
end

-- save writes the record and what follows from it. When no string changed and the ring is full, it is written
-- to the end of the op that is new.
local function save(r)
  local need = r[EXPIRES] + r[TOMBLIFE]
  if r[DUE] == 0 or r[EXPIRES] < r[DUE] then
    -- An entry may be early, never late: the sweeper files it again.
    r[DUE] = r[EXPIRES]
    rcall('ZADD', dueKey, r[DUE], digest)
  end
  if touched or r[KEEP] < need then touch(r, need) end
  if restrung or r[VERSION] <= OPS_REMEMBERED then
    rcall('SET', recordKey, encode(r), 'PXAT', r[KEEP])
  else
    local front = pack_numbers(r)
    if next_op then front = front .. sub(stored, r[OPS], r[OPS] - 1 + (r[VERSION] - 1) % OPS_REMEMBERED * OP) .. next_op end
    rcall('SETRANGE', recordKey, 0, front)
  end
  if not rebound then return end
  if found and instance_of(found) ~= instance_of(r[OWNER]) then rcall('ZREM', indexKey, indexed(found)) end
  rcall('ZADD', indexKey, 0, indexed(r[OWNER]))
  if not stored then rcall('DEL', tombKey) end
  publish(r[EPOCH])
end

-- again writes the record as it stands, so that WAIT covers what a call of before wrote.
local function again() rcall('SET', recordKey, stored, 'KEEPTTL') end

-- floors unpacks what a handle says: lists of epoch, version and op. The first is the handle's own.
local function floors(packed)
  if #packed == 24 then return { { unpack_at(FLOOR, packed) } } end
  local list = {}
  for i = 1, #packed, 24 do list[#list + 1] = { unpack_at(FLOOR, packed, i) } end
  return list
end

-- changes unpacks the changes of owner: lists of epoch, version, time, reason and instance.
local function changes(r)
  local list, at = {}, 1
  while at <= #r[CHANGES] do
    local c = { unpack_at(CHANGE, r[CHANGES], at) }
    at = c[6]
    list[#list + 1] = c
  end
  return list
end

local function set_changes(r, list, first)
  local out = {}
  for i = first, #list do
    local c = list[i]
    out[#out + 1] = pack(CHANGE, c[1], c[2], c[3], c[4], #c[5], c[5])
  end
  r[CHANGES], restrung = concat(out), true
end

local function set_plan(r, till, token, job, target)
  r[PLANUNTIL], r[PLANTOKEN], r[PLANJOB], r[PLANTARGET], restrung = till, token, job, target, true
end

local function set_tail(r, owner, epoch) r[TAIL], r[TAILEPOCH], restrung = owner, epoch, true end

-- rebind gives the record to owner at a new epoch.
local function rebind(r, owner, why)
  r[EPOCH] = max(r[EPOCH] + 1, now)
  r[OWNER], r[BOUND], r[LASTCALL], rebound = owner, now, call, true
  set_plan(r, 0, 0, '', '')
  local list = changes(r)
  list[#list + 1] = { r[EPOCH], r[VERSION], now, why, instance_of(owner) }
  set_changes(r, list, max(1, #list - CHANGES_REMEMBERED + 1))
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

-- op_of is the op that made a remembered version.
local function op_of(r, version)
  if version == 0 then return '\0\0\0\0\0\0\0\0' end
  if version == r[VERSION] and next_op then return sub(next_op, 1, 8) end
  local at = r[OPS] + (version - 1) % OPS_REMEMBERED * OP
  return sub(stored, at, at + 7)
end

-- holds reports whether the record continues the history that f was told of.
local function holds(r, f)
  local version = f[2]
  if version > r[VERSION] then return false end
  if version == 0 then return true end
  if r[VERSION] - version < OPS_REMEMBERED then return op_of(r, version) == f[3] end
  return reached(r, f)
end

-- check_lineage holds all floors against the record.
local function check_lineage(r, list)
  local want, forgiven = 0, false
  for i = 1, #list do
    local f = list[i]
    if f[1] >= r[BEFORE] and not holds(r, f) then
      if r[LOSTEPOCH] > 0 and f[1] < r[LOSTEPOCH] and f[2] <= r[LOSTWANT] then
        forgiven = true
      else
        want = max(want, f[2])
      end
    end
  end
  if want > 0 then return { 'behind', r[VERSION], r[TURNS], want } end
  if forgiven then return { 'stale', r[OWNER], r[EPOCH] } end
end

-- check_ended refuses what was told of a life before this one, and, where there is no record, all but
-- what may begin a session. handle may be nil; have are the floors of the caller's copy, or nil.
local function check_ended(r, t, handle, have)
  if r then
    if handle and handle[1][1] < r[BEFORE] then return { 'ended', r[BEFOREWHY], r[BEFORE] } end
    return nil
  end
  if handle and handle[1][1] < t.epoch then return { 'ended', t.why, t.epoch } end
  local want = 0
  for _, list in ipairs({ have or {}, handle or {} }) do
    for _, f in ipairs(list) do
      if f[1] >= t.epoch then want = max(want, f[2]) end
    end
  end
  if want > 0 then return { 'behind', 0, 0, want } end
  if handle and handle[1][1] > t.epoch then return { 'ended', EXPIRED, t.epoch } end
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
  local no = check_ended(r, t, handle)
  if no then return no end
  if not r then return absent(t) end
  no = check_lineage(r, handle)
  if no then return no end
  if handle[1][1] ~= r[EPOCH] then return { 'stale', r[OWNER], r[EPOCH] } end
end

-- planned refuses a job that may not act on the record: it is gone, or another holder was seen.
local function planned(r, t, job, token)
  if not r then return absent(t) end
  local seen = tonumber(rcall('HGET', fenceKey, 'j' .. job) or 0)
  if token < seen then return { 'held', job, '', seen } end
end

-- reserved refuses a job while another one than over, which earlier versions do not name, has plans for the session.
local function reserved(r, job, over)
  if now < r[PLANUNTIL] and r[PLANJOB] ~= job and r[PLANJOB] ~= over then
    return { 'held', 'reservation', r[PLANJOB], r[PLANTOKEN] }
  end
end

-- receipt says what the record is as of now, and of a write its version, its op, the epoch of the writer's floor,
-- and whether it is a duplicate, was the tail's, and adopts a parked one or is the first after a move (1 and 2 of one
-- number). It is packed: a list costs more.
local function receipt(r, version, op, epoch, duplicate, of_tail, adopts, arrives)
  return { 'ok', pack('>I6I6I6I6I6I6I6c8BBBI2c0', now, r[EPOCH], r[TURNS], r[BYTES], r[AFFINITY],
    version or r[VERSION], epoch or r[EPOCH], op or op_of(r, r[VERSION]), duplicate and 1 or 0, of_tail and 1 or 0,
    (adopts and 1 or 0) + (arrives and 2 or 0), #r[OWNER], r[OWNER]) }
end
